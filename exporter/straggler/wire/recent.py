"""What the last steps say together: the window that verdicts compare.

One implementation for the sidecar and for the rank's own page. The window is the last ``WINDOW_STEPS`` steps or the
last ``WINDOW_SECONDS``, whichever holds more steps: 32 steps of 90 s, or 10 s of 10 ms steps. Steps under a profiler
and steps that failed do not count. Why at least 32: with uneven batches the worst mean over 5 steps is 1.28 times
the peers', over 32 it is 1.08, so a shorter window would blame chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from straggler.wire import layout
from straggler.wire.records import StepRecord

WINDOW_STEPS = 32
WINDOW_SECONDS = 10.0
WINDOW_NS = int(WINDOW_SECONDS * 1e9)
_NS = 1e-9
_LEFT_OUT = layout.FLAG_PROFILED | layout.FLAG_FAILED


class Sample(NamedTuple):
    """What the window needs to know of one step: a fifth of a record's memory."""

    end_monotonic_ns: int
    wall_ns: int
    own_ns: int | None
    """``None`` where it was not measured."""
    wait_ns: int


class Recent(NamedTuple):
    """Means over a window of steps, in seconds. ``None`` where own time was not measured in any of them."""

    steps: int
    """How many steps the own and wait figures are over; where own time is absent, those of the step mean."""
    step_mean_seconds: float
    own_mean_seconds: float | None
    own_median_seconds: float | None
    wait_mean_seconds: float | None
    wait_min_seconds: float | None


def sample(record: StepRecord) -> Sample | None:
    """What the window needs of a record; ``None`` if the step does not count, being profiled or failed."""
    if record.flags & _LEFT_OUT:
        return None
    return Sample(record.end_monotonic_ns, record.wall_ns, record.own_ns, record.wait_ns)


def is_whole(later_steps: int, end_monotonic_ns: int, newest_end_monotonic_ns: int) -> bool:
    """Whether the window is complete without a step.

    Args:
        later_steps: how many steps that count came after it.
        end_monotonic_ns: its end.
        newest_end_monotonic_ns: the end of the newest step that counts.
    """
    return later_steps >= WINDOW_STEPS and end_monotonic_ns <= newest_end_monotonic_ns - WINDOW_NS


def window(samples: Sequence[Sample]) -> list[Sample]:
    """The steps of the window, oldest first.

    Args:
        samples: of consecutive steps, oldest first; more than the window is fine.
    """
    if not samples or not is_whole(len(samples) - 1, samples[0].end_monotonic_ns, samples[-1].end_monotonic_ns):
        return list(samples)  # trimmed already, as ``model.window`` does it
    chosen: list[Sample] = []
    for candidate in reversed(samples):
        if chosen and is_whole(len(chosen), candidate.end_monotonic_ns, chosen[0].end_monotonic_ns):
            break
        chosen.append(candidate)
    chosen.reverse()
    return chosen


def summarize_samples(samples: Sequence[Sample]) -> Recent | None:
    """Mean, median and least over the window; ``None`` if there is no step in it. Arguments as for ``window``."""
    steps = window(samples)
    if not steps:
        return None
    # By columns: half the time of asking step by step, and each scrape has a thousand steps for each rank.
    _, walls, own, waits = zip(*steps, strict=True)
    if None in own:
        measured = [step for step in steps if step.own_ns is not None]
        own, waits = tuple(step.own_ns for step in measured), tuple(step.wait_ns for step in measured)
    return Recent(
        steps=len(own) or len(steps),
        step_mean_seconds=sum(walls) / len(steps) * _NS,
        own_mean_seconds=sum(own) / len(own) * _NS if own else None,
        own_median_seconds=median(own) * _NS if own else None,
        wait_mean_seconds=sum(waits) / len(waits) * _NS if waits else None,
        wait_min_seconds=min(waits) * _NS if waits else None,
    )


def summarize(records: Iterable[StepRecord]) -> Recent | None:
    """As ``summarize_samples``, from records: consecutive ones, oldest first."""
    return summarize_samples([step for record in records if (step := sample(record)) is not None])
