"""Turns steps into records and hands them to where they go: the ring, a push queue, the rank's own page.

As in ``stopwatch``, what runs at each step and each arrival stands in one function, whose inner functions share its
variables, for speed. Two more things are not what one would write first:

- The totals in a record are sixteen 64-bit counters in a row. They are kept as *one* integer of sixteen digits of 64
  bits, little end first, as the record spells them: one addition adds a step to all of them. No digit overflows into
  the next, since none gets near 2**64.
- The record is written to the ring first and counted afterwards, by storing one tuple. An interrupt before that leaves
  the step uncounted: the next record takes its serial again and its time along. So the ring never has a gap that a
  reader would wait for, and no total is ever wrong. An interrupt after it, before the stopwatch knows that the step is
  over, shows by the next step beginning before this one's end.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from straggler.errors import RingError
from straggler.hook.book import BAD_CLOCK, MEASURED, MOST, MOST_FLOPS, NO_WAIT, Amounts, Book, is_count
from straggler.wire import layout

if TYPE_CHECKING:
    from straggler.hook.ring_writer import RingWriter

_COUNTERS_BYTES = 128
_pack_growth = struct.Struct("<6Q9QQ").pack
"""By how much the counters from ``total_steps`` to ``total_tokens`` grow."""
_pack_step = struct.Struct(f"<4Q2IQ9QQ{_COUNTERS_BYTES}s").pack_into
"""The first part of ``layout.RECORD_BODY``: what is said about the step itself, and then these counters."""
_pack_rest = struct.Struct("<Qd3Q").pack_into
"""``total_allreduce_bytes`` to ``total_host_data_ns``: rarely used, so packed only when they may have changed."""
_REST_AT = 256
_pack_live = struct.Struct("<QQQQBB").pack_into
_pack_sum = struct.Struct("<I").pack_into
_RECORD_SUM_AT = layout.RECORD_BYTES - 4
_LIVE_SUM_AT = layout.LIVE_BYTES - 4
_RECORDS_OFFSET = layout.RECORDS_OFFSET
_RECORD_BYTES = layout.RECORD_BYTES
_LIVE_BYTES = layout.LIVE_BYTES
_LIVE_OFFSET = layout.LIVE_OFFSET
_OTHER = layout.OTHER
_FLAG_OWN = layout.FLAG_OWN
_FLAG_TOKENS = layout.FLAG_TOKENS
_FLAG_PROFILED = layout.FLAG_PROFILED
_FLAG_ALLREDUCE = layout.FLAG_ALLREDUCE
_WITH_REST = _FLAG_PROFILED | _FLAG_ALLREDUCE | layout.FLAG_FLOPS | layout.FLAG_SAMPLES
_LOOK_EVERY_NS = 100_000_000


class Recorder(NamedTuple):
    """What ``make_recorder`` gives. None of it is for two threads at a time."""

    record: Callable[[int, int, list[int], Amounts | None, int, int, int], None]
    """Count one step and write its record; see ``make_recorder.record``."""
    arrive: Callable[[int], None]
    """Count an arrival at this time, and write it at once."""
    add: Callable[[Amounts], None]
    """Take amounts between two steps."""
    write_live: Callable[[int], None]
    """Write the live block of a rank that goes on."""
    live: Callable[[int, int], bytearray]
    """The live block with this status at this time, in the one buffer there is for it."""
    glance: Callable[[], tuple[int, int, int]]
    """Arrivals, serial, and ``Book.excluded``: from any thread."""
    set_ring: Callable[[RingWriter | None], None]
    ring: Callable[[], RingWriter | None]


def make_recorder(  # noqa: C901, PLR0915 - see the top of this file
    book: Book,
    number: int,
    wall_clock: Callable[[], int],
    *,
    lost: Callable[[Exception], None],
    warn: Callable[[str, str], None],
    milestone: Callable[[], None],
) -> Recorder:
    """Make a recorder without a ring.

    Args:
        book: counted up from here on.
        number: of the last step before, as the loop counts.
        wall_clock: nanoseconds since the epoch.
        lost: told when the ring cannot be written any more.
        warn: told of an amount that is none, and of a clock that went back.
        milestone: called at the first wait and the first step, and then ever more rarely.
    """
    arrivals = tokens = 0
    written = 0, 0, 0, 0, number, 0
    """Serial, totals (see the top of this file), arrivals, tokens, number and end of the last record."""
    ring: RingWriter | None = None
    fd, offset, capacity = -1, 0, 1
    look_at = looks = 0
    queues = book.queues
    block = bytearray(_RECORD_BYTES)
    block_summed = memoryview(block)[:-4]
    live_block = bytearray(_LIVE_BYTES)
    live_summed = memoryview(live_block)[:-4]
    pwrite, lseek, from_bytes = os.pwrite, os.lseek, int.from_bytes

    def record(  # noqa: C901, PLR0912, PLR0915, PLR0917 - see the top of this file
        end: int, wall: int, phases: list[int], amounts: Amounts | None, flags: int, reason: int, host_data: int
    ) -> None:
        """Count one step and write its record. Times in nanoseconds.

        Args:
            end: its end on the monotonic clock.
            wall: its length.
            phases: length ``layout.PHASE_COUNT``; what is missing from ``wall`` is added to ``other``.
            amounts: what the loop says about the step.
            flags: ``FLAG_FAILED`` or 0.
            reason: index into ``layout.OWN_REASONS``, or ``AS_BOOKED``.
            host_data: see ``StepRecord.host_data_ns``.
        """
        nonlocal tokens, written
        if end >= look_at:
            look(end)
        serial, totals, arrivals_recorded, tokens_recorded, this, last_end = written
        this += 1
        if amounts is not None:
            given, more_tokens, samples, flops, allreduce_bytes, profiled = amounts
            if type(more_tokens) is int and 0 <= more_tokens <= MOST:
                tokens += more_tokens
                book.flags |= _FLAG_TOKENS
            elif more_tokens is not None:
                take_tokens(more_tokens)
            if given is not None or samples is not None or flops is not None or allreduce_bytes is not None:
                this = take_rest(this, given, samples, flops, allreduce_bytes)
            if profiled:
                flags |= _FLAG_PROFILED
        flags |= book.flags
        if reason < 0:
            if end - wall < last_end and serial:
                wall = -1
            reason = book.own_reason
        phases[_OTHER] += wall - sum(phases)
        data, h2d, forward, backward, wait, optimizer, checkpoint, evaluation, other = phases
        own = waited = 0
        if reason == MEASURED:
            flags |= _FLAG_OWN
            waited = wait
            own = wall - wait - checkpoint - evaluation
        try:
            growth = _pack_growth(
                1,
                wall,
                own,
                waited,
                reason != MEASURED,
                arrivals - arrivals_recorded,
                data,
                h2d,
                forward,
                backward,
                wait,
                optimizer,
                checkpoint,
                evaluation,
                other,
                tokens - tokens_recorded,
            )
            totals += from_bytes(growth, "little")
            _pack_step(
                block,
                0,
                serial + 1,
                this,
                end,
                wall_clock(),
                flags,
                reason,
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
                totals.to_bytes(_COUNTERS_BYTES, "little"),
            )
        except struct.error:
            if reason == BAD_CLOCK:
                raise
            warn("clock", "a step's times do not fit (a clock that went back, or Ctrl-C): it counts as failed")
            wall = max(end - last_end, 0) if serial else 0
            flags = flags & ~_FLAG_OWN | layout.FLAG_FAILED
            amounts = this, None, None, None, None, False  # the others are taken already
            record(max(end, 0), wall, [0] * layout.PHASE_COUNT, amounts, flags, BAD_CLOCK, 0)
            return
        if host_data or flags & _WITH_REST:
            book.host_data_ns += host_data
            book.profiled_steps += bool(flags & _FLAG_PROFILED)
            rest = book.allreduce_bytes, book.flops, book.samples, book.profiled_steps, book.host_data_ns
            _pack_rest(block, _REST_AT, *rest)
        _pack_sum(block, _RECORD_SUM_AT, crc32(block_summed))
        if fd >= 0:
            try:
                if lseek(fd, 0, 1) != offset:
                    check_ring()
                if pwrite(fd, block, _RECORDS_OFFSET + serial % capacity * _RECORD_BYTES) != _RECORD_BYTES:
                    raise RingError("a record was written only in part: there is no space")  # noqa: TRY301
            except (OSError, RingError) as error:
                lost(error)
        written = serial + 1, totals, arrivals, tokens, this, end
        if queues:
            for queue in queues:
                queue.append(bytes(block))

    def look(now: int) -> None:
        """Look at what need not be looked at in each step."""
        nonlocal look_at, looks
        look_at = now + _LOOK_EVERY_NS
        looks += 1
        if ring is not None:
            try:
                ring.check()
            except (OSError, RingError) as error:
                lost(error)
        if not looks & (looks - 1):
            milestone()

    def take_tokens(more: Any) -> None:
        nonlocal tokens
        if is_right("tokens", more):
            tokens += int(more)
            book.flags |= _FLAG_TOKENS

    def take_rest(this: int, given: Any, samples: Any, flops: Any, allreduce_bytes: Any) -> int:
        """Add what the loop says besides tokens; give the step's number."""
        if samples is not None and is_right("samples", samples):
            book.samples += int(samples)
            book.flags |= layout.FLAG_SAMPLES
        if type(allreduce_bytes) is int and 0 <= allreduce_bytes <= MOST:
            book.allreduce_bytes += allreduce_bytes
            book.flags |= _FLAG_ALLREDUCE
        elif allreduce_bytes is not None and is_right("allreduce_bytes", allreduce_bytes):
            book.allreduce_bytes += int(allreduce_bytes)
            book.flags |= _FLAG_ALLREDUCE
        if flops is not None and is_right("flops", flops, MOST_FLOPS):
            book.flops += float(flops)
            book.flags |= layout.FLAG_FLOPS
        return int(given) if given is not None and is_right("number", given) else this

    def add(amounts: Amounts) -> None:
        _given, more_tokens, samples, flops, allreduce_bytes, _profiled = amounts
        if more_tokens is not None:
            take_tokens(more_tokens)
        take_rest(0, None, samples, flops, allreduce_bytes)

    def is_right(name: str, value: Any, most: float = MOST) -> bool:
        if is_count(value, most):
            return True
        kind = type(value).__name__
        warn(name, f"{name}: this {kind} is ignored: give a plain number of 0 or more, no tensor")
        return False

    def arrive(now: int) -> None:
        nonlocal arrivals
        arrivals += 1
        if book.own_reason == NO_WAIT and not book.excluded:
            book.own_reason = MEASURED
            milestone()
        if fd >= 0:
            _pack_live(live_block, 0, arrivals, written[0], now, wall_clock(), layout.STATUS_RUNNING, book.excluded)
            _pack_sum(live_block, _LIVE_SUM_AT, crc32(live_summed))
            try:
                if lseek(fd, 0, 1) != offset:
                    check_ring()
                if pwrite(fd, live_block, _LIVE_OFFSET) != _LIVE_BYTES:
                    raise RingError("the live block was written only in part: there is no space")  # noqa: TRY301
            except (OSError, RingError) as error:
                lost(error)

    def live(status: int, now: int) -> bytearray:
        _pack_live(live_block, 0, arrivals, written[0], now, wall_clock(), status, book.excluded)
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

    return Recorder(
        record=record,
        arrive=arrive,
        add=add,
        write_live=write_live,
        live=live,
        glance=lambda: (arrivals, written[0], book.excluded),
        set_ring=set_ring,
        ring=lambda: ring,
    )
