"""Ctrl-C in the middle of the hook: at every line of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import straggler.hook
from straggler.wire import layout

HOOK = str(Path(straggler.hook.__file__).parent)
Make = Callable[..., Any]


class Interrupt:
    """Raises ``KeyboardInterrupt`` at one line event inside the hook, where Python itself may raise it."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: FrameType, event: str, _argument: object) -> Interrupt | None:
        """Count the lines."""
        if not frame.f_code.co_filename.startswith(HOOK):
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


def train(one: Any) -> None:
    """A bit of everything that has states to spoil."""
    for _ in one.timer.data([1]):
        with one.timer.step(tokens=1):
            with one.timer.phase("forward"):
                one.clock.ms(10)
                with one.timer.phase("h2d"):
                    one.clock.ms(1)
            with one.timer.phase("wait"):
                one.clock.ms(5)
        with one.timer.phase("checkpoint"):
            one.clock.ms(100)
    one.timer.tick()


def interrupted(one: Any, at: int) -> bool:
    """Train with an interrupt at the n-th line; tell whether it came."""
    trace = Interrupt(at)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        train(one)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.slow
def test_interrupt_at_every_line(rank: Make) -> None:
    """Wherever Ctrl-C hits, it reaches the loop, no time is booked twice, and the next steps are measured right."""
    at = 0
    while True:
        at += 1
        one = rank()
        one.step()
        begun = one.clock.now - 15_000_000
        came = interrupted(one, at)
        for _ in range(6):
            one.step(own=10, wait=5)
        records = one.records
        assert [record.serial for record in records] == list(range(1, len(records) + 1))
        assert all(sum(record.phase_ns) == record.wall_ns for record in records)
        assert records[-1].total_wall_ns <= one.clock.now - begun, f"line {at}: time was booked twice"
        assert records[-1].total_wall_ns == sum(record.wall_ns for record in records), f"line {at}"
        assert records[-1].total_steps == len(records), f"line {at}"
        for record in records[-4:]:
            assert (record.wall_ns, record.own_ns, record.flags & layout.FLAG_FAILED) == (15_000_000, 10_000_000, 0)
        assert one.ring.live.excluded_phase is None, f"line {at}"
        one.timer.close()
        if not came:
            break
    assert at > 100, "the lines of the hook were seen"
