"""The window of ``wire.recent``, kept up to date step by step: for recordings of a million steps.

Says exactly what ``wire.recent.summarize_samples`` says of the same steps (a test compares them), in a few microseconds
a step however long the window is.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

from straggler.wire.recent import Recent, Sample, is_whole

_NS = 1e-9


class Window:
    """The last steps of one rank."""

    def __init__(self) -> None:
        self._steps: deque[Sample] = deque()
        self._own: list[int] = []
        self._waits: list[int] = []
        self._wall_sum = self._own_sum = self._wait_sum = 0

    def add(self, step: Sample) -> None:
        """Take in the next step, and let go of those that are now too old."""
        self._steps.append(step)
        self._wall_sum += step.wall_ns
        if step.own_ns is not None:
            insort(self._own, step.own_ns)
            insort(self._waits, step.wait_ns)
            self._own_sum += step.own_ns
            self._wait_sum += step.wait_ns
        newest = step.end_monotonic_ns
        while is_whole(len(self._steps) - 1, self._steps[0].end_monotonic_ns, newest):
            self._drop(self._steps.popleft())

    def recent(self) -> Recent | None:
        """What the window says now; ``None`` before the first step."""
        steps, measured = len(self._steps), len(self._own)
        if not steps:
            return None
        half = measured // 2
        middle = self._own[half] if measured % 2 else (self._own[half - 1] + self._own[half]) / 2 if measured else 0
        return Recent(
            steps=measured or steps,
            step_mean_seconds=self._wall_sum / steps * _NS,
            own_mean_seconds=self._own_sum / measured * _NS if measured else None,
            own_median_seconds=middle * _NS if measured else None,
            wait_mean_seconds=self._wait_sum / measured * _NS if measured else None,
            wait_min_seconds=self._waits[0] * _NS if measured else None,
        )

    def _drop(self, step: Sample) -> None:
        self._wall_sum -= step.wall_ns
        if step.own_ns is not None:
            del self._own[bisect_left(self._own, step.own_ns)]
            del self._waits[bisect_left(self._waits, step.wait_ns)]
            self._own_sum -= step.own_ns
            self._wait_sum -= step.wait_ns
