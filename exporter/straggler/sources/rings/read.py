"""The rings of this node as one source: who is here, how they stand, what their last steps say."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from straggler.errors import SourceAbsentError, SourceFailedError, WireError
from straggler.model.clock import Clock
from straggler.model.host import Writer
from straggler.model.progress import HangLimits
from straggler.model.rank import RankFacts, RankKey
from straggler.model.reading import Problem, Reading, SourceState
from straggler.sources.rings.contest import settle
from straggler.sources.rings.discover import RingKey, Scan, open_ring, scan
from straggler.sources.rings.parked import ParkingLot, Refusal
from straggler.sources.rings.ring import NotReadyError, Ring
from straggler.sources.rings.strangers import Claims, RingPolicy

SOURCE = "rings"

_NOT_READY_SECONDS = 10.0
_OPENS_PER_LOOK = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RingCounters:
    """Since the source was made."""

    records_read: int = 0
    records_missed: int = 0
    """Overwritten before they were read."""
    records_torn: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    """By reason; the sum of the problems of all readings. Each file counts when its refusal begins."""
    refused_now: Mapping[str, int] = field(default_factory=dict)
    """By reason: what is not published at present."""
    removed: int = 0


class RingSource:
    """Follows all rings below one directory. For one thread; call ``collect`` once per scrape.

    Not for a process whose own rings are there: see ``lock``.

    Args:
        root: the ring directory.
        clock: both clocks.
        hang_steps: ``Policy.hang_steps``.
        hang_min_seconds: ``Policy.hang_min_seconds``.
        hang_excluded_seconds: ``Policy.hang_excluded_seconds``.
        gone_seconds: how long a rank that is gone keeps its counters and state.
        remove_after_seconds: age at which the file of a dead rank is removed; ``None``: never.
        max_ranks: open files, and ranks on the page.
        policy: whose rings are believed.
    """

    def __init__(
        self,
        root: Path,
        *,
        clock: Clock,
        hang_steps: float,
        hang_min_seconds: float,
        hang_excluded_seconds: float,
        gone_seconds: float,
        remove_after_seconds: float | None = 3600.0,
        max_ranks: int = 512,
        policy: RingPolicy = RingPolicy(),  # noqa: B008 - frozen
    ) -> None:
        self._root = root
        self._policy = policy
        self._claims = Claims(policy)
        self._clock = clock
        self._limits = HangLimits(
            steps=hang_steps, min_seconds=hang_min_seconds, excluded_seconds=hang_excluded_seconds
        )
        self._gone_seconds = gone_seconds
        self._max_ranks = max_ranks
        self._followed: dict[RingKey, Ring] = {}
        self._pending: dict[RingKey, float] = {}
        self._parked = ParkingLot(root, clock, keep_seconds=gone_seconds, remove_after_seconds=remove_after_seconds)
        self._writers: Mapping[RankKey, Writer] = {}
        self._standing: dict[tuple[object, str], Problem] = {}
        self._refused: Counter[str] = Counter()
        self._read = self._missed = self._torn = 0

    @property
    def counters(self) -> RingCounters:
        """A copy of the counts so far."""
        now: Counter[str] = Counter()
        for problem in self._standing.values():
            now[problem.reason] += problem.count
        return RingCounters(
            records_read=self._read,
            records_missed=self._missed,
            records_torn=self._torn,
            refused=dict(self._refused),
            refused_now=dict(now),
            removed=self._parked.removed,
        )

    @property
    def writers(self) -> Mapping[RankKey, Writer]:
        """The processes of living ranks at the last look, where this process can see them. Any thread may ask."""
        return self._writers

    def collect(self) -> Reading[RankFacts]:
        """Look at everything once.

        The problems of the reading are what began to be refused since the last one; what still is stands in
        ``counters.refused_now``. Ranks that are gone are given as long as their counters are to stay. Blind reason:
        ``hook_off``.
        """
        now = self._clock.monotonic()
        standing: dict[tuple[object, str], Problem] = {}
        state = SourceState.OK
        self._parked.next_turn()
        try:
            found = scan(self._root, lambda key: key not in self._followed and self._parked.is_due(key))
        except SourceAbsentError:
            self.close()
            return Reading(source=SOURCE, state=SourceState.ABSENT, duration_seconds=self._clock.monotonic() - now)
        except SourceFailedError as error:
            state = SourceState.FAILED  # the rings that are open already are followed all the same
            standing["", error.reason] = Problem(reason=error.reason, detail=error.detail)
        else:
            for problem in found.problems:
                standing[problem.detail, problem.reason] = problem
            self._forget(found)
            self._admit(found, now)
        torn = self._follow(now)
        claims = self._claims.sort(self._followed)
        standing |= claims.problems
        settled = settle(claims.believed)
        self._close_superseded(settled.superseded)
        self._writers = {
            ring.key: Writer(ring.writer_pid, ring.preamble.pid)
            for ring in settled.published
            if ring.alive and ring.writer_pid is not None
        }
        for rings in settled.duplicates:
            standing[rings[-1].key, "duplicate_rank"] = _duplicate(rings)
        standing |= {(key, problem.reason): problem for key, problem in self._parked.problems()}
        problems = [problem for key, problem in standing.items() if key not in self._standing]
        if torn:
            problems.append(Problem(reason="torn", detail="records that were never completed", count=torn))
        self._standing = standing
        for problem in problems:
            self._refused[problem.reason] += problem.count
        return Reading(
            source=SOURCE,
            state=state,
            facts=tuple(ring.facts(now) for ring in settled.published if not ring.is_off),
            problems=tuple(problems),
            blind=_blind(settled.published),
            duration_seconds=self._clock.monotonic() - now,
        )

    def close(self) -> None:
        """Let go of all files, and of what is known about them; the counts stay."""
        for ring in self._followed.values():
            ring.close()
        self._followed.clear()
        self._pending.clear()
        self._writers = {}
        self._parked.clear()
        self._standing = {}

    def _forget(self, found: Scan) -> None:
        """Drop what has no name any more. A ring that is followed stays: its process may live on."""
        self._parked.keep_only(found.statuses)
        self._pending = {key: since for key, since in self._pending.items() if key in found.statuses}

    def _admit(self, found: Scan, now: float) -> None:
        """Open what is new or has changed, the freshest first and a limited number in one look."""
        candidates = [
            (status.st_mtime_ns, key, status)
            for key, status in found.statuses.items()
            if status is not None and key not in self._followed and not self._parked.stays(key, status)
        ]
        candidates.sort(reverse=True)
        for _, key, status in candidates[:_OPENS_PER_LOOK]:
            self._open(key, status, now)

    def _open(self, key: RingKey, status: os.stat_result, now: float) -> None:
        self._parked.drop(key)
        try:
            self._policy.check_owner(status)
            descriptor = open_ring(self._root, key, status)
        except FileNotFoundError:
            return
        except SourceFailedError as error:
            self._parked.park(key, status, error)
            return
        try:
            ring = Ring(descriptor, self._limits, now=now, wall=self._clock.time())
            ring.directory = str(PurePosixPath(key.path).parent)
            self._check_room(ring)
        except (SourceFailedError, WireError, OSError) as error:
            os.close(descriptor)
            if isinstance(error, NotReadyError) and now - self._pending.setdefault(key, now) < _NOT_READY_SECONDS:
                return
            self._parked.park(key, status, error)
        else:
            if self._is_long_gone(ring):
                ring.close()
                self._parked.park(key, status, None)
            else:
                self._followed[key] = ring
        self._pending.pop(key, None)

    def _check_room(self, ring: Ring) -> None:
        if len(self._followed) >= self._max_ranks and not self._is_long_gone(ring):
            raise SourceFailedError("too_many_ranks", f"more than {self._max_ranks}")

    def _is_long_gone(self, ring: Ring) -> bool:
        """Whether a ring at first sight is of a rank whose counters need not be shown any more."""
        return ring.age_seconds > self._gone_seconds and (ring.said_goodbye or not ring.held)

    def _follow(self, now: float) -> int:
        """Read all open rings; give the number of torn records."""
        torn = 0
        for key, ring in list(self._followed.items()):
            error: Refusal | None = None
            try:
                batch = ring.look(now)
            except (SourceFailedError, WireError, OSError) as caught:
                error = caught
            else:
                self._read += len(batch.records)
                self._missed += batch.missed
                torn += batch.torn
            if error is not None or ring.gone_for(now) > self._gone_seconds:
                self._close(key, ring, error)
        self._torn += torn
        return torn

    def _close_superseded(self, rings: list[Ring]) -> None:
        """A job that restarts every few seconds must not use up the descriptors."""
        over = set(map(id, rings))
        for key, ring in list(self._followed.items()):
            if id(ring) in over:
                self._close(key, ring, None)

    def _close(self, key: RingKey, ring: Ring, error: Refusal | None) -> None:
        self._parked.park(key, ring.status(), error)
        ring.close()
        del self._followed[key]


def _blind(rings: list[Ring]) -> tuple[Problem, ...]:
    """Ranks that live, or lived until now, and are not seen since their hook has switched itself off."""
    off = [ring.key for ring in rings if ring.is_off]
    if not off:
        return ()
    detail = f"rank {off[0].rank} of {off[0].run!r}: its log says why the hook switched itself off"
    return (Problem(reason="hook_off", detail=detail, count=len(off)),)


def _duplicate(rings: list[Ring]) -> Problem:
    run, rank = rings[-1].key
    pids = ", ".join(str(ring.preamble.pid) for ring in rings)
    return Problem(
        reason="duplicate_rank",
        detail=f"rank {rank} of {run!r} lives in processes {pids}: give each job a run of its own (STRAGGLER_RUN)",
        count=len(rings),
    )
