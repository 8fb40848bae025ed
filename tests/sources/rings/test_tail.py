"""Following a ring while it is written, one byte at a time if need be."""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ring_files import RingFile, record
from straggler.errors import SourceFailedError
from straggler.sources.rings.tail import Tail
from straggler.wire import layout
from straggler.wire.encode import encode_record
from straggler.wire.records import StepRecord


def tail_of(ring: RingFile) -> Tail:
    """A tail that reads the real file."""
    return Tail(partial(os.pread, ring.descriptor), ring.preamble)


def serials(records: list[StepRecord]) -> list[int]:
    """What was delivered."""
    return [each.serial for each in records]


@pytest.fixture
def ring(tmp_path: Path) -> RingFile:
    """An empty ring of 64 slots."""
    return RingFile(tmp_path / "a.ring", capacity=64)


def test_first_poll_takes_the_window(tmp_path: Path) -> None:
    """A reader that comes late takes the last 10 s or 32 steps, and misses nothing by that."""
    ring = RingFile(tmp_path / "a.ring", capacity=1024)
    ring.step(1000, step_ns=100_000_000, wait_ns=0)

    batch = tail_of(ring).poll()

    assert serials(batch.records) == list(range(901, 1001))
    assert batch[1:] == (0, 0)


def test_first_poll_takes_32_long_steps(ring: RingFile) -> None:
    """Where 10 s hold fewer than 32 steps, 32 are taken."""
    ring.step(50, step_ns=90_000_000_000)

    assert serials(tail_of(ring).poll().records) == list(range(19, 51))


def test_delivers_each_record_once(ring: RingFile) -> None:
    """Whatever the polling moments, records come in order and once, around the end of the ring too."""
    tail = tail_of(ring)
    seen: list[int] = []
    for count in (0, 1, 3, 20, 0, 35, 16, 17, 60, 63):
        ring.step(count)
        seen += serials(tail.poll().records)

    assert seen == list(range(1, 216))


def test_waits_for_a_record_in_writing(ring: RingFile) -> None:
    """Half a record is not yet a record; it is delivered when it is whole."""
    tail = tail_of(ring)
    ring.step(5)
    tail.poll()
    data = encode_record(record(6))
    ring.write(ring.offset(6), data[:200])
    assert tail.poll() == ([], 0, 0)

    ring.write(ring.offset(6) + 200, data[200:])

    assert serials(tail.poll().records) == [6]


def test_counts_a_record_that_stays_torn(ring: RingFile) -> None:
    """A record that was never completed counts as torn as soon as a later one is there, and is not waited for."""
    tail = tail_of(ring)
    ring.step(5)
    tail.poll()
    ring.write(ring.offset(6), encode_record(record(6))[:200])
    ring.put(record(7))

    batch = tail.poll()

    assert (serials(batch.records), batch.missed, batch.torn) == ([7], 0, 1)


def test_lapped_reader_takes_what_is_left(ring: RingFile) -> None:
    """A lapped reader counts exactly what was overwritten; the totals of the newest record are exact all the same."""
    tail = tail_of(ring)
    ring.step(10)
    tail.poll()
    ring.step(100)

    batch = tail.poll()

    assert serials(batch.records) == list(range(47, 111))
    assert batch.missed == 36
    assert batch.records[-1].total_steps == 110


def test_looks_further_when_the_live_block_says_so(tmp_path: Path) -> None:
    """Twenty spoilt slots in a row do not hide the records behind them, if the live block knows of those."""
    ring = RingFile(tmp_path / "a.ring", capacity=256)
    tail = tail_of(ring)
    ring.step(5)
    tail.poll()
    ring.step(30)
    ring.write(ring.offset(6), b"\xff" * 20 * layout.RECORD_BYTES)
    assert tail.poll(written=5) == ([], 0, 0)

    batch = tail.poll(written=35)

    assert serials(batch.records) == list(range(26, 36))
    assert batch.missed == 20


def test_ignores_a_record_in_the_wrong_slot(ring: RingFile) -> None:
    """A valid record that does not belong into its slot is no record there."""
    tail = tail_of(ring)
    ring.step(5)
    tail.poll()
    ring.write(ring.offset(6), encode_record(record(4711)))

    assert tail.poll() == ([], 0, 0)


def test_truncated_file_is_an_error(ring: RingFile) -> None:
    """A file that ends before its slots do has a listed reason."""
    tail = tail_of(ring)
    ring.step(5)
    tail.poll()
    os.ftruncate(ring.descriptor, layout.RECORDS_OFFSET + 100)

    with pytest.raises(SourceFailedError) as caught:
        tail.poll()

    assert caught.value.reason == "truncated"


def test_idle_poll_is_one_read(ring: RingFile) -> None:
    """Finding nothing new costs one read of a few slots, also where the live block says that there should be more."""
    reads = []

    def read_at(length: int, offset: int) -> bytes:
        reads.append(length)
        return os.pread(ring.descriptor, length, offset)

    tail = Tail(read_at, ring.preamble)
    ring.step(5)
    tail.poll()
    reads.clear()
    tail.poll()

    assert reads == [16 * layout.RECORD_BYTES]

    tail.poll(written=9)  # a lie is looked into once
    assert sum(reads) >= 64 * layout.RECORD_BYTES
    reads.clear()
    tail.poll(written=9)

    assert reads == [16 * layout.RECORD_BYTES]


class Interleaved(RuleBasedStateMachine):
    """A writer that stops at any byte, and a reader that is interrupted by it at any byte of its reads."""

    @initialize(capacity=st.integers(1, 24))
    def start(self, capacity: int) -> None:
        """An empty ring."""
        self.directory = tempfile.TemporaryDirectory()
        self.ring = RingFile(Path(self.directory.name) / "a.ring", capacity=capacity)
        self.capacity = capacity
        self.started = 0
        self.rest = b""
        self.at = 0
        self.abandoned: set[int] = set()
        self.interruptions: list[int] = []
        self.restart()

    @rule()
    def restart(self) -> None:
        """A new reader: it may begin anywhere, but from its first record on it accounts for all."""
        self.tail = Tail(self.read_at, self.ring.preamble)
        self.delivered: list[StepRecord] = []
        self.missed = self.torn = 0
        self.polled = False

    @rule(count=st.integers(1, 3000))
    def write(self, count: int) -> None:
        """Go on writing, so many bytes."""
        while count:
            if not self.rest:
                self.started += 1
                self.rest = encode_record(record(self.started))
                self.at = self.ring.offset(self.started)
            part, self.rest = self.rest[:count], self.rest[count:]
            self.ring.write(self.at, part)
            self.at += len(part)
            count -= len(part)

    @rule()
    def abandon(self) -> None:
        """Leave the record in writing as it is, as a failed write does."""
        if self.rest:
            self.abandoned.add(self.started)
            self.rest = b""

    @rule(interruptions=st.lists(st.integers(1, 1500), max_size=12), hint=st.booleans())
    def poll(self, interruptions: list[int], hint: bool) -> None:  # noqa: FBT001  # drawn by Hypothesis
        """Read, while the writer goes on in the middle of the reads."""
        first_wanted = self.tail._wanted
        self.interruptions = interruptions
        batch = self.tail.poll(self.complete() if hint else 0)
        self.interruptions = []
        self.delivered += batch.records
        self.missed += batch.missed
        self.torn += batch.torn
        if not self.polled:
            self.first = self.tail._wanted - len(self.delivered)
            self.polled = True
        elif self.started < first_wanted + self.capacity:
            assert batch.missed + batch.torn <= len(self.abandoned), "nothing was overwritten"

    def complete(self) -> int:
        """Serial of the last record that the writer has done with."""
        return self.started - 1 if self.rest else self.started

    def read_at(self, length: int, offset: int) -> bytes:
        """A read in pieces, between which the writer writes."""
        pieces = []
        end = offset + length
        while self.interruptions and offset < end:
            size = min(self.interruptions.pop(), end - offset)
            pieces.append(os.pread(self.ring.descriptor, size, offset))
            offset += size
            self.write(size)
        pieces.append(os.pread(self.ring.descriptor, end - offset, offset))
        return b"".join(pieces)

    @invariant()
    def rising(self) -> None:
        """No record twice, none out of order, and each as it was written."""
        found = serials(getattr(self, "delivered", []))
        assert found == sorted(set(found))
        assert all(each == record(each.serial) for each in self.delivered[-3:])

    def teardown(self) -> None:
        """In the end, each serial since the first was delivered or counted, and the newest is known."""
        if not hasattr(self, "ring"):
            return
        self.abandon()
        for _ in range(3):
            self.poll([], hint=True)
        assert len(self.delivered) + self.missed + self.torn == self.tail._wanted - self.first
        whole = [serial for serial in range(self.started - self.capacity + 1, self.started + 1) if serial > 0]
        whole = [serial for serial in whole if serial not in self.abandoned]
        if whole and self.delivered:
            assert self.delivered[-1].serial == whole[-1], "the newest record is always found"
        self.ring.close()
        self.directory.cleanup()


TestInterleaved = Interleaved.TestCase
TestInterleaved.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
