"""One ring file that is open and followed: header, records, lock, and what they say about the rank."""

from __future__ import annotations

import os
from functools import partial

from straggler.errors import SourceFailedError, WireError
from straggler.model.from_wire import own_reason_of, totals_of
from straggler.model.identity import clean_identity
from straggler.model.progress import HangLimits
from straggler.model.rank import RankFacts, RankKey, RankState
from straggler.model.window import Window
from straggler.sources.rings.assess import Liveness, Sight
from straggler.sources.rings.lock import ask_lock
from straggler.sources.rings.tail import Batch, Tail
from straggler.wire import layout
from straggler.wire.decode import decode_identity, decode_live, decode_preamble, file_bytes
from straggler.wire.records import Identity, Live, Preamble


class NotReadyError(SourceFailedError):
    """The writer has created the file but not yet written preamble and identity."""

    def __init__(self, detail: str) -> None:
        super().__init__("not_ready", detail)


class Ring:
    """One open ring.

    Args:
        descriptor: open for reading; owned by the ring from now on.
        limits: how long silence may last.
        now: monotonic seconds.
        wall: seconds since the epoch, for the age of the file at first sight.

    Raises:
        NotReadyError: try again later.
        SourceFailedError: ``truncated``.
        WireError: the header is no ring's, with a reason of ``layout.WIRE_REASONS``.
        OSError: the file cannot be read. After any of these the descriptor is the caller's to close.
    """

    def __init__(self, descriptor: int, limits: HangLimits, *, now: float, wall: float) -> None:
        self._descriptor = descriptor
        self.held, self.writer_pid = ask_lock(descriptor)
        status = os.fstat(descriptor)
        self.uid = status.st_uid
        self.directory = "."
        header = os.pread(descriptor, layout.RECORDS_OFFSET, 0)
        self._preamble_bytes = header[: layout.PREAMBLE_BYTES]
        self.preamble = _preamble_of(header, status.st_size)
        self._identity_bytes = b""
        self.identity = self._read_identity(header)
        self.live: Live | None = None
        self._read_live(header)
        self.age_seconds = max(wall - status.st_mtime, 0.0)
        self.first_seen = now
        self.window = Window()
        self._tail = Tail(partial(os.pread, descriptor), self.preamble)
        self._liveness = Liveness(limits, now=now, age_seconds=self.age_seconds)

    @property
    def key(self) -> RankKey:
        """Whose ring it is; may change while the rank learns who it is."""
        return RankKey(self.identity.run, self.identity.rank)

    @property
    def state(self) -> RankState:
        """As of the last look."""
        return self._liveness.state

    @property
    def alive(self) -> bool:
        """Whether the process was there at the last look."""
        return self._liveness.gone_since is None

    @property
    def last_progress(self) -> float:
        """Monotonic seconds."""
        return self._liveness.progress.since

    def gone_for(self, now: float) -> float:
        """Seconds since the rank is known to be gone; 0 while it lives."""
        return 0.0 if self._liveness.gone_since is None else now - self._liveness.gone_since

    @property
    def is_off(self) -> bool:
        """Whether the hook switched itself off: the rank may live, but is unseen."""
        return self.live is not None and self.live.status == layout.STATUS_OFF

    @property
    def said_goodbye(self) -> bool:
        """Whether the process itself ended the ring."""
        return self.live is not None and self.live.status in (layout.STATUS_FINISHED, layout.STATUS_EXCEPTION)

    def look(self, now: float) -> Batch:
        """Read what is new, and judge. The lock is asked for first: see ``assess.Sight``.

        Raises:
            SourceFailedError: ``truncated`` or ``replaced``: nothing of this ring can be believed from now on.
            WireError: ``bad_identity``.
            OSError: the file cannot be read any more.
        """
        self.held, self.writer_pid = ask_lock(self._descriptor)
        header = os.pread(self._descriptor, layout.RECORDS_OFFSET, 0)
        if os.fstat(self._descriptor).st_size < file_bytes(self.preamble):
            raise SourceFailedError("truncated", "smaller than it was")
        if header[: layout.PREAMBLE_BYTES] != self._preamble_bytes:
            raise SourceFailedError("replaced", "another preamble than before")
        self._read_live(header)
        self.identity = self._read_identity(header)
        batch = self._tail.poll(self.live.records if self.live is not None else 0)
        self.window.extend(batch.records)
        newest = self.window.newest
        self._liveness.assess(
            Sight(
                now=now,
                held=self.held,
                live=self.live,
                serial=newest.serial if newest is not None else 0,
                mean_step_seconds=self.window.mean_step_seconds,
            )
        )
        return batch

    def facts(self, now: float) -> RankFacts:
        """What the last look saw."""
        newest = self.window.newest
        phase = self.live.excluded_phase if self.live is not None and self.alive else None
        return RankFacts(
            identity=self.identity,
            state=self.state,
            totals=totals_of(newest, self.live, clock=self.identity.clock) if newest is not None else None,
            recent=self.window.recent if self.alive else None,
            step=newest.step if newest is not None else None,
            last_step_timestamp_seconds=newest.end_realtime_ns * 1e-9 if newest is not None else None,
            excluded_phase=layout.PHASES[phase] if phase is not None else None,
            own_reason=own_reason_of(newest, self.identity),
            source="rings",
            since_progress_seconds=self._liveness.progress.age(now),
            pid=self.preamble.pid,
            uid=self.uid,
            directory=self.directory,
        )

    def status(self) -> os.stat_result:
        """Ask for the status of the open file."""
        return os.fstat(self._descriptor)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)

    def _read_live(self, header: bytes) -> None:
        try:
            self.live = decode_live(header[layout.LIVE_OFFSET : layout.IDENTITY_OFFSET])
        except WireError:
            return  # being written: what was read before stands until the next look

    def _read_identity(self, header: bytes) -> Identity:
        block = header[layout.IDENTITY_OFFSET :]
        if block == self._identity_bytes:
            return self.identity
        try:
            identity = clean_identity(decode_identity(block))
        except WireError as error:
            if error.reason != "bad_checksum":
                raise
            if not self._identity_bytes:
                raise NotReadyError("the identity is incomplete") from error
            return self.identity  # being written
        self._identity_bytes = block
        return identity


def _preamble_of(header: bytes, size: int) -> Preamble:
    if not header[: layout.PREAMBLE_BYTES].strip(b"\0"):
        raise NotReadyError(f"no preamble in {size} bytes")
    preamble = decode_preamble(header)
    if size < file_bytes(preamble):
        raise SourceFailedError("truncated", f"{size} bytes, but its preamble says {file_bytes(preamble)}")
    return preamble
