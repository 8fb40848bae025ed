"""A ring as it lies there, read whole: a flight recorder after a crash, or a look at a living one.

Unlike the tail, which refuses a file that it cannot believe, this gives whatever is good and says what is not.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from straggler.errors import SourceFailedError, WireError
from straggler.model.identity import clean_identity
from straggler.model.reading import Problem
from straggler.sources.rings.discover import MAX_FILE_BYTES
from straggler.sources.rings.lock import lock_held
from straggler.wire import layout
from straggler.wire.decode import decode_identity, decode_live, decode_preamble, decode_record, slot_offset
from straggler.wire.records import Identity, Live, Preamble, StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that is good in one file."""

    preamble: Preamble
    locked: bool | None
    """Whether the writer lives, by its lock; ``None`` if that cannot be told. A copy is never locked."""
    live: Live | None
    identity: Identity | None
    records: tuple[StepRecord, ...]
    """By serial; there may be gaps."""
    spoilt_slots: int
    """Slots with something in them that is no record. In a living ring one of them may be in writing."""
    problems: tuple[Problem, ...]
    """What is not good, by reason."""


def read_snapshot(path: Path) -> Snapshot:
    """Read one file.

    Args:
        path: a ring or a copy of one; links are followed, since a person named it.

    Raises:
        SourceFailedError: ``unreadable``, ``not_regular`` or ``too_large``.
        WireError: the preamble is not good, so that nothing else can be found.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            size = _checked_size(os.fstat(descriptor))
            locked = lock_held(descriptor)
            data = os.pread(descriptor, size, 0)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise SourceFailedError("unreadable", str(error.strerror)) from error
    return snapshot_of(data, locked=locked)


def _checked_size(status: os.stat_result) -> int:
    if not stat.S_ISREG(status.st_mode):
        raise SourceFailedError("not_regular", stat.filemode(status.st_mode))
    if status.st_size > MAX_FILE_BYTES:
        raise SourceFailedError("too_large", f"{status.st_size} bytes")
    return status.st_size


def snapshot_of(data: bytes, *, locked: bool | None) -> Snapshot:
    """Take a file's bytes apart.

    Raises:
        WireError: the preamble is not good.
    """
    preamble = decode_preamble(data)
    problems = []
    live: Live | None = None
    identity: Identity | None = None
    try:
        live = decode_live(data[layout.LIVE_OFFSET : layout.IDENTITY_OFFSET])
    except WireError as error:
        problems.append(Problem(reason=error.reason, detail=f"live block: {error.detail}"))
    try:
        identity = clean_identity(decode_identity(data[layout.IDENTITY_OFFSET : layout.RECORDS_OFFSET]))
    except WireError as error:
        problems.append(Problem(reason=error.reason, detail=f"identity: {error.detail}"))
    records = []
    spoilt = missing = 0
    for slot in range(1, preamble.capacity + 1):
        offset = slot_offset(slot, preamble)
        block = data[offset : offset + preamble.record_bytes]
        if len(block) < preamble.record_bytes:
            missing += 1
        elif block.strip(b"\0"):
            record = _record_of(block, slot, preamble)
            spoilt += record is None
            records += [record] if record is not None else []
    if spoilt:
        problems.append(Problem(reason="torn", detail=f"{spoilt} slots hold no record", count=spoilt))
    if missing:
        problems.append(Problem(reason="truncated", detail=f"{missing} slots are cut off", count=missing))
    records.sort(key=lambda record: record.serial)
    return Snapshot(
        preamble=preamble,
        locked=locked,
        live=live,
        identity=identity,
        records=tuple(records),
        spoilt_slots=spoilt,
        problems=tuple(problems),
    )


def _record_of(block: bytes, slot: int, preamble: Preamble) -> StepRecord | None:
    try:
        record = decode_record(block)
    except WireError:
        return None
    return record if (record.serial - slot) % preamble.capacity == 0 else None
