"""Turns steps into records and hands them to where they go: the ring, a push queue, the rank's own page.

As in ``stopwatch``, what runs at each step and each arrival stands in one function, whose inner functions share its
variables, for speed. Two more things are not what one would write first:

- The totals in a record are sixteen 64-bit counters in a row. They are kept as *one* integer of sixteen digits of 64
  bits, little end first, as the record spells them: one addition adds a step to all of them. No digit overflows into
  the next, since none gets near 2**64.
- The record is written to the ring first and counted afterwards. An interrupt between the two leaves the step
  uncounted, and the next record takes its serial again. So the ring never has a gap that a reader would wait for.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from straggler.errors import RingError
from straggler.hook.ring_writer import RingWriter
from straggler.wire import layout

_pack_step = struct.Struct("<4Q2IQ9QQ" + "6Q9QQ").pack_into
"""The first part of ``layout.RECORD_BODY``: what is said about the step itself, and then by how much the counters from
``total_steps`` to ``total_tokens`` grow."""
_pack_rest = struct.Struct("<Qd3Q").pack_into
"""``total_allreduce_bytes`` to ``total_host_data_ns``: rarely used, so packed only when they change."""
_COUNTERS_AT = 128
_REST_AT = 256
_COUNTERS_BYTES = _REST_AT - _COUNTERS_AT
_pack_live = struct.Struct("<QQQQBB").pack_into
_pack_sum = struct.Struct("<I").pack_into
_RECORD_SUM_AT = layout.RECORD_BYTES - 4
_LIVE_SUM_AT = layout.LIVE_BYTES - 4
_QUEUE_RECORDS = 4096
"""Records that wait for the push thread or for a scrape: 40 s at 100 steps a second. The oldest goes first."""
_LOOK_EVERY_NS = 100_000_000

MEASURED = 0
NO_WAIT = layout.OWN_REASONS.index("no_wait_phase")
BAD_CLOCK = layout.OWN_REASONS.index("bad_clock")

_WITH_REST = layout.FLAG_PROFILED | layout.FLAG_ALLREDUCE | layout.FLAG_FLOPS | layout.FLAG_SAMPLES
_MOST = 1 << 50
"""Of anything in one step: what is more is a mistake."""
_MOST_FLOPS = 1e30
Amounts = tuple[Any, Any, Any, Any, Any, Any]
"""What the loop says about one step, as it said it, or ``None``: see ``AMOUNTS``. Plain, since it is made each time."""
AMOUNTS = ("number", "tokens", "samples", "flops", "allreduce_bytes", "profiled")


def is_count(value: Any, most: float = _MOST) -> bool:
    """Whether a value is a plain number (of Python's or numpy's) of 0 to ``most``.

    Nothing is asked of anything else: a tensor on a GPU would wait for the GPU.
    """
    if not isinstance(value, int | float) and type(value).__module__ != "numpy":
        return False
    return bool(0 <= value <= most)


class Book:
    """What is rarely changed, or not by the hot path alone."""

    __slots__ = (
        "allreduce_bytes",
        "arrivals",
        "excluded",
        "flags",
        "flops",
        "host_data_ns",
        "number",
        "own_reason",
        "profiled_steps",
        "queues",
        "samples",
        "tokens",
    )

    def __init__(self, number: int, own_reason: int) -> None:
        self.number = number
        """Of the last step, as the loop counts."""
        self.own_reason = own_reason
        """Index into ``layout.OWN_REASONS``; ``NO_WAIT`` until the loop marks its first wait."""
        self.arrivals = 0
        self.excluded = 0
        """1 + index of the excluded phase that the rank is in, else 0: as the live block says it."""
        self.tokens = self.samples = self.allreduce_bytes = self.profiled_steps = self.host_data_ns = 0
        self.flops = 0.0
        self.flags = 0
        """Which of the four amounts are known: set for good by the first one that the loop gives."""
        self.queues: list[deque[bytes]] = []

    def new_queue(self) -> deque[bytes]:
        """A queue that gets each record from now on, for another thread to empty."""
        queue: deque[bytes] = deque(maxlen=_QUEUE_RECORDS)
        self.queues.append(queue)
        return queue

    def add(self, amounts: Amounts) -> str:
        """Add what the loop says to the totals; give the name of an amount that is none, or ``""``."""
        _number, tokens, samples, flops, allreduce_bytes, _profiled = amounts
        bad = ""
        if tokens is not None:
            if is_count(tokens):
                self.tokens += int(tokens)
                self.flags |= layout.FLAG_TOKENS
            else:
                bad = "tokens"
        if samples is not None:
            if is_count(samples):
                self.samples += int(samples)
                self.flags |= layout.FLAG_SAMPLES
            else:
                bad = "samples"
        if allreduce_bytes is not None:
            if is_count(allreduce_bytes):
                self.allreduce_bytes += int(allreduce_bytes)
                self.flags |= layout.FLAG_ALLREDUCE
            else:
                bad = "allreduce_bytes"
        if flops is not None:
            if is_count(flops, _MOST_FLOPS):
                self.flops += float(flops)
                self.flags |= layout.FLAG_FLOPS
            else:
                bad = "flops"
        return bad


class Recorder(NamedTuple):
    """What ``make_recorder`` gives. None of it is for two threads at a time."""

    publish: Callable[[int, Sequence[int], int, int, int, int, int], int]
    """Count one step and write its record; see ``make_recorder.publish``."""
    finish: Callable[[int, int, list[int], Amounts | None, bool], None]
    """The same for a step as the stopwatch gives it."""
    arrive: Callable[[int], None]
    """Count an arrival at this time, and write it at once."""
    write_live: Callable[[int], None]
    """Write the live block of a rank that goes on."""
    live: Callable[[int, int], bytearray]
    """The live block with this status at this time, in the one buffer there is for it."""
    take: Callable[[Amounts, int, int], tuple[int, int]]
    """Take amounts that are not just a number of tokens; given a step's number and flags, return those to use."""
    set_ring: Callable[[RingWriter | None], None]
    ring: Callable[[], RingWriter | None]


def make_recorder(  # noqa: C901, PLR0915 - see the top of this file
    book: Book,
    wall_clock: Callable[[], int],
    *,
    lost: Callable[[Exception], None],
    warn: Callable[[str, str], None],
    milestone: Callable[[], None],
) -> Recorder:
    """Make a recorder without a ring.

    Args:
        book: counted up from here on.
        wall_clock: nanoseconds since the epoch.
        lost: told when the ring cannot be written any more.
        warn: told of an amount that is none, and of a clock that went back.
        milestone: called at steps 1, 2, 4, 8, …: for what is worth a look now and then.
    """
    serial = totals = arrivals_written = tokens_written = 0
    ring: RingWriter | None = None
    fd, offset, capacity, look_at = -1, 0, 1, 0
    record = bytearray(layout.RECORD_BYTES)
    record_summed = memoryview(record)[:-4]
    counters = memoryview(record)[_COUNTERS_AT:_REST_AT]
    live_block = bytearray(layout.LIVE_BYTES)
    live_summed = memoryview(live_block)[:-4]
    pwrite, lseek, from_bytes = os.pwrite, os.lseek, int.from_bytes

    def publish(
        wall: int, phases: Sequence[int], number: int, own_reason: int, flags: int, end: int, host_data: int
    ) -> int:
        """Count one step and write its record.

        Args:
            wall: its length, in ns, as all times here.
            phases: length ``layout.PHASE_COUNT``; add up to ``wall``.
            number: as the loop counts.
            own_reason: index into ``layout.OWN_REASONS``.
            flags: ``FLAG_FAILED`` and ``FLAG_PROFILED``; the others are set here.
            end: its end on the monotonic clock.
            host_data: see ``StepRecord.host_data_ns``.

        Returns:
            The record's serial: 1, 2, 3, ...

        Raises:
            struct.error: a number is negative or too large. The step stays uncounted.
        """
        nonlocal serial, totals, arrivals_written, tokens_written, look_at
        data, h2d, forward, backward, wait, optimizer, checkpoint, evaluation, other = phases
        arrivals, tokens = book.arrivals, book.tokens
        flags |= book.flags
        own = waited = 0
        if not own_reason:
            flags |= layout.FLAG_OWN
            waited = wait
            own = wall - wait - checkpoint - evaluation
        _pack_step(
            record,
            0,
            serial + 1,
            number,
            end,
            wall_clock(),
            flags,
            own_reason,
            wall,
            data,
            h2d,
            forward,
            backward,
            wait,
            optimizer,
            checkpoint,
            evaluation,
            other,
            host_data,
            1,
            wall,
            own,
            waited,
            own_reason != MEASURED,
            arrivals - arrivals_written,
            data,
            h2d,
            forward,
            backward,
            wait,
            optimizer,
            checkpoint,
            evaluation,
            other,
            tokens - tokens_written,
        )
        grown = totals + from_bytes(counters, "little")
        counters[:] = grown.to_bytes(_COUNTERS_BYTES, "little")
        if host_data or flags & _WITH_REST:
            book.host_data_ns += host_data
            book.profiled_steps += bool(flags & layout.FLAG_PROFILED)
            rest = book.allreduce_bytes, book.flops, book.samples, book.profiled_steps, book.host_data_ns
            _pack_rest(record, _REST_AT, *rest)
        _pack_sum(record, _RECORD_SUM_AT, crc32(record_summed))
        if fd >= 0:
            try:
                if lseek(fd, 0, 1) != offset:
                    check_ring()
                if end >= look_at:
                    look_at = end + _LOOK_EVERY_NS
                    check_ring()
                at = layout.RECORDS_OFFSET + serial % capacity * layout.RECORD_BYTES
                if pwrite(fd, record, at) != layout.RECORD_BYTES:
                    raise RingError("a record was written only in part: there is no space")
            except (OSError, RingError) as error:
                lost(error)
        serial += 1
        totals = grown
        arrivals_written = arrivals
        tokens_written = tokens
        book.number = number
        if book.queues:
            for queue in book.queues:
                queue.append(bytes(record))
        return serial

    def finish(now: int, wall: int, spent: list[int], amounts: Amounts | None, failed: bool) -> None:  # noqa: FBT001
        flags = layout.FLAG_FAILED if failed else 0
        number = book.number + 1
        if amounts is not None:
            given, tokens, samples, flops, allreduce_bytes, profiled = amounts
            if type(tokens) is int and 0 <= tokens <= _MOST:
                book.tokens += tokens
                book.flags |= layout.FLAG_TOKENS
                tokens = None
            if not (given is tokens is samples is flops is allreduce_bytes is None and not profiled):
                number, flags = take((given, tokens, samples, flops, allreduce_bytes, profiled), number, flags)
        rest = wall - sum(spent)
        spent[layout.OTHER] += rest
        if rest >= 0:
            try:
                publish(wall, spent, number, book.own_reason, flags, now, 0)
            except struct.error:
                rest = -1
        if rest < 0:
            warn("clock", "the clock went back during a step: the step counts as failed, its own time is unknown")
            wall = max(wall, 0)
            spent = [0] * layout.OTHER + [wall]
            publish(wall, spent, number, BAD_CLOCK, flags | layout.FLAG_FAILED, max(now, 0), 0)
        if not serial & (serial - 1):
            milestone()

    def take(amounts: Amounts, number: int, flags: int) -> tuple[int, int]:
        bad = book.add(amounts)
        given, profiled = amounts[0], amounts[5]
        if given is not None:
            if is_count(given):
                number = int(given)
            else:
                bad = "number"
        if bad:
            kind = type(amounts[AMOUNTS.index(bad)]).__name__
            warn(bad, f"{bad}: this {kind} is ignored: give a plain number of 0 or more, no tensor")
        return number, flags | (layout.FLAG_PROFILED if profiled else 0)

    def arrive(now: int) -> None:
        book.arrivals += 1
        if book.own_reason == NO_WAIT and not book.excluded:
            book.own_reason = MEASURED
        if fd >= 0:
            _pack_live(
                live_block, 0, book.arrivals, serial, now, wall_clock(), layout.STATUS_RUNNING, book.excluded
            )
            _pack_sum(live_block, _LIVE_SUM_AT, crc32(live_summed))
            try:
                if lseek(fd, 0, 1) != offset:
                    check_ring()
                if pwrite(fd, live_block, layout.LIVE_OFFSET) != layout.LIVE_BYTES:
                    raise RingError("the live block was written only in part: there is no space")
            except (OSError, RingError) as error:
                lost(error)

    def live(status: int, now: int) -> bytearray:
        _pack_live(live_block, 0, book.arrivals, serial, now, wall_clock(), status, book.excluded)
        _pack_sum(live_block, _LIVE_SUM_AT, crc32(live_summed))
        return live_block

    def write_live(now: int) -> None:
        if ring is not None:
            try:
                ring.write_live(live(layout.STATUS_RUNNING, now))
            except (OSError, RingError) as error:
                lost(error)

    def check_ring() -> None:
        if ring is not None:
            ring.check()

    def set_ring(new: RingWriter | None) -> None:
        nonlocal ring, fd, offset, capacity
        ring = new
        fd, offset, capacity = (-1, 0, 1) if new is None else (new.fd, new.offset, new.capacity)

    return Recorder(publish, finish, arrive, write_live, live, take, set_ring, lambda: ring)
