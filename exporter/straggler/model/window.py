"""The last steps of one rank: as many as the verdicts' window needs, and never more than a ring holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from straggler.wire.recent import Recent, Sample, is_whole, sample, summarize_samples
from straggler.wire.records import StepRecord

MAX_STEPS = 4096
"""10 s of steps at 400 steps a second, at 250 bytes each."""


class Window:
    """Steps of one rank, trimmed to what ``wire.recent`` looks at."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=MAX_STEPS)
        self._recent: Recent | None = None
        self._is_current = True
        self.newest: StepRecord | None = None
        """The last record that was added, with the totals."""

    @property
    def recent(self) -> Recent | None:
        """What the last steps say together; ``None`` if none counts. Worked out once after each change."""
        if not self._is_current:
            self._recent = summarize_samples(self._samples)
            self._is_current = True
        return self._recent

    @property
    def mean_step_seconds(self) -> float | None:
        """The rank's pace: over the window, or since its start if no step of the window counts; ``None`` before."""
        if self.newest is None:
            return None
        if self.recent is not None:
            return self.recent.step_mean_seconds
        return self.newest.total_wall_ns * 1e-9 / max(self.newest.total_steps, 1)

    def extend(self, records: Iterable[StepRecord]) -> None:
        """Add records in the order of their serials, and drop what has left the window."""
        for record in records:
            self.newest = record
            step = sample(record)
            if step is not None:
                self._samples.append(step)
                self._is_current = False
        samples = self._samples
        while samples and is_whole(len(samples) - 1, samples[0].end_monotonic_ns, samples[-1].end_monotonic_ns):
            samples.popleft()

    def __len__(self) -> int:
        return len(self._samples)
