"""What the last steps say together: the window that verdicts compare.

One implementation for the sidecar and for the rank's own page. The window is the last ``WINDOW_STEPS`` steps or the
last ``WINDOW_SECONDS``, whichever holds more steps: 32 steps of 90 s, or 10 s of 10 ms steps. Steps under a profiler
and steps that failed do not count. Why at least 32: with uneven batches the worst mean over 5 steps is 1.28 times
the peers', over 32 it is 1.08, so a shorter window would blame chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from straggler.wire import layout
from straggler.wire.records import StepRecord

WINDOW_STEPS = 32
WINDOW_SECONDS = 10.0
_NS = 1e-9


class Recent(NamedTuple):
    """Means over a window of steps, in seconds. ``None`` where own time was not measured in any of them."""

    steps: int
    """How many steps the own and wait figures are over; where own time is absent, those of the step mean."""
    step_mean_seconds: float
    own_mean_seconds: float | None
    own_median_seconds: float | None
    wait_mean_seconds: float | None
    wait_min_seconds: float | None


def window(records: Sequence[StepRecord]) -> list[StepRecord]:
    """The steps of the window, oldest first.

    Args:
        records: consecutive records, oldest first.
    """
    chosen: list[StepRecord] = []
    if not records:
        return chosen
    horizon = records[-1].end_monotonic_ns - int(WINDOW_SECONDS * 1e9)
    for record in reversed(records):
        if len(chosen) >= WINDOW_STEPS and record.end_monotonic_ns <= horizon:
            break
        if not record.flags & (layout.FLAG_PROFILED | layout.FLAG_FAILED):
            chosen.append(record)
    chosen.reverse()
    return chosen


def summarize(records: Sequence[StepRecord]) -> Recent | None:
    """Mean, median and least over the window; ``None`` if there is no step in it.

    Args:
        records: consecutive records, oldest first; more than the window is fine.
    """
    steps = window(records)
    if not steps:
        return None
    own = [value for record in steps if (value := record.own_ns) is not None]
    waits = [record.wait_ns for record in steps if record.own_ns is not None]
    return Recent(
        steps=len(own) or len(steps),
        step_mean_seconds=sum(record.wall_ns for record in steps) / len(steps) * _NS,
        own_mean_seconds=sum(own) / len(own) * _NS if own else None,
        own_median_seconds=median(own) * _NS if own else None,
        wait_mean_seconds=sum(waits) / len(waits) * _NS if waits else None,
        wait_min_seconds=min(waits) * _NS if waits else None,
    )
