"""Follows the records of one ring while its writer goes on.

The tail knows the serial that it wants next, and therefore the slot. What it finds there is one of four things:

- the record: taken, and the next one is wanted;
- an older serial, zeros, or a wrong checksum: *not yet*; looked at again on the next poll;
- the same, but a later record is there already: the writer writes in order, so the wanted one was complete by the
  time the later one was seen. It is read once more (the first look may have fallen into its writing); if it is still
  wrong, it is *torn*: counted and passed over;
- a valid later serial: the writer has *lapped* us. All that is left of the ring is taken, the rest counts as missed.

So each serial from the first poll on is delivered once, or is counted as torn or missed, and none is delivered twice.
The totals in each record make the counters exact even then.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from straggler.errors import SourceFailedError, WireError
from straggler.wire import layout
from straggler.wire.decode import decode_record
from straggler.wire.recent import is_whole, sample
from straggler.wire.records import Preamble, StepRecord

ReadAt = Callable[[int, int], bytes]
"""Length and offset in, bytes out: ``functools.partial(os.pread, descriptor)``."""

_FIRST_SLOTS = 16
_MOST_SLOTS = 1024
_SERIAL = Struct("<Q")
_SCAN_BYTES = 1 << 20


class Batch(NamedTuple):
    """What one poll brought."""

    records: list[StepRecord]
    """In the order of their serials."""
    missed: int
    """Records overwritten before they were read."""
    torn: int
    """Records that were never completed, though later ones were."""


class Tail:
    """The place in one ring up to which everything is known.

    Args:
        read_at: reads the file.
        preamble: its geometry.
    """

    def __init__(self, read_at: ReadAt, preamble: Preamble) -> None:
        self._read_at = read_at
        self._size = preamble.record_bytes
        self._capacity = preamble.capacity
        self._wanted = 0  # not started
        self._doubted = 0

    def poll(self, written: int = 0) -> Batch:
        """Take what is new.

        Args:
            written: serial that the live block said was written, before this call. Where the slots disagree, the
                whole ring is searched once.

        Raises:
            SourceFailedError: ``truncated``.
        """
        if not self._wanted:
            return self._start()
        records: list[StepRecord] = []
        missed = torn = 0
        slots = _FIRST_SLOTS
        while len(records) <= self._capacity:
            found, outcome = self._take(slots)
            records += found
            if outcome == "more":
                slots = min(2 * slots, _MOST_SLOTS)
                continue
            if outcome == "torn":
                torn += 1
                self._wanted += 1
                continue
            if outcome == "lapped" or self._is_in_doubt(written):
                left, lost = self._resync(self._wanted)
                records += left
                missed += lost
            break
        return Batch(records, missed, torn)

    def _take(self, slots: int) -> tuple[list[StepRecord], str]:
        """Read some slots from the wanted one on. The outcome is ``more``, ``not_yet``, ``torn`` or ``lapped``."""
        records: list[StepRecord] = []
        raw = self._slots(self._wanted, slots)
        for index, slot in enumerate(raw):
            record = self._decode(slot, self._wanted)
            if record is None:
                if not _has_later(raw[index + 1 :], self._wanted + 1):
                    return records, "not_yet"
                record = self._decode(self._slots(self._wanted, 1)[0], self._wanted)
                if record is None:
                    return records, "torn"
            if record.serial != self._wanted:
                return records, "lapped"
            records.append(record)
            self._wanted += 1
        return records, "more"

    def _decode(self, slot: bytes, wanted: int) -> StepRecord | None:
        """Give the record in the slot of ``wanted`` if it is that one or one of a later lap."""
        claimed: int = _SERIAL.unpack_from(slot)[0]
        if claimed < wanted or (claimed - wanted) % self._capacity:
            return None
        try:
            return decode_record(slot)
        except WireError:
            return None

    def _slots(self, serial: int, count: int) -> list[bytes]:
        """Read consecutive slots from the one of ``serial`` on, at most one lap; one or two reads."""
        count = min(count, self._capacity)
        first = (serial - 1) % self._capacity
        before_the_end = min(count, self._capacity - first)
        data = self._read(before_the_end * self._size, layout.RECORDS_OFFSET + first * self._size)
        if count > before_the_end:
            data += self._read((count - before_the_end) * self._size, layout.RECORDS_OFFSET)
        return [data[start : start + self._size] for start in range(0, len(data), self._size)]

    def _read(self, length: int, offset: int) -> bytes:
        data = self._read_at(length, offset)
        if len(data) < length:
            raise SourceFailedError("truncated", f"{len(data)} of {length} bytes at {offset}")
        return data

    def _is_in_doubt(self, written: int) -> bool:
        """Whether the live block knows of records that the slots do not show; true once for each such serial."""
        if written < self._wanted or written == self._doubted:
            return False
        self._doubted = written
        return True

    def _start(self) -> Batch:
        """Find the newest record, and before it as many as the window needs."""
        ring = self._snapshot()
        records: list[StepRecord] = []
        steps = newest_end = 0
        for serial in sorted(ring, reverse=True):
            record = self._decode(ring[serial], serial)
            if record is None:
                continue  # being written, or torn before our time
            if is_whole(steps, record.end_monotonic_ns, newest_end):
                break
            records.append(record)
            if sample(record) is not None:
                steps += 1
                newest_end = newest_end or record.end_monotonic_ns
        records.reverse()
        self._wanted = records[-1].serial + 1 if records else 1
        return Batch(records, 0, 0)

    def _resync(self, wanted: int) -> tuple[list[StepRecord], int]:
        """Take all that is left from ``wanted`` on; also tell how many are not."""
        ring = self._snapshot()
        found = (self._decode(ring[serial], serial) for serial in sorted(ring) if serial >= wanted)
        records = [record for record in found if record is not None]
        if not records:
            return [], 0
        self._wanted = records[-1].serial + 1
        return records, self._wanted - wanted - len(records)

    def _snapshot(self) -> dict[int, bytes]:
        """Read the whole ring: the slots by the serial that they claim, if it belongs there."""
        slots_per_read = max(_SCAN_BYTES // self._size, 1)
        ring: dict[int, bytes] = {}
        for first in range(0, self._capacity, slots_per_read):
            for index, slot in enumerate(self._slots(first + 1, min(slots_per_read, self._capacity - first)), first):
                claimed: int = _SERIAL.unpack_from(slot)[0]
                if claimed and (claimed - 1) % self._capacity == index:
                    ring[claimed] = slot
        return ring


def _has_later(slots: list[bytes], serial: int) -> bool:
    """Whether one of the slots holds, complete, the record that belongs there."""
    for wanted, slot in enumerate(slots, serial):
        if _SERIAL.unpack_from(slot)[0] == wanted:
            try:
                decode_record(slot)
            except WireError:
                continue
            return True
    return False
