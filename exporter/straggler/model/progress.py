"""When a rank last got ahead, by the observer's own clock, and how long silence may last.

The writer's clocks are not used for this: a wall clock jumps, and a monotonic clock of another virtual machine or time
namespace counts from another moment. What the observer saw move, moved.
"""

from __future__ import annotations

from dataclasses import dataclass

from straggler.wire.records import Live


@dataclass(frozen=True, slots=True, kw_only=True)
class HangLimits:
    """How long a living rank may be silent. The numbers are those of ``detect.policy.Policy.hang_*``."""

    steps: float
    """This many mean steps …"""
    min_seconds: float
    """… and at least this long …"""
    excluded_seconds: float
    """… or this long in ``checkpoint`` and ``eval``, and before the first step: compilation takes its time."""

    def seconds(self, mean_step_seconds: float | None, *, excluded: bool) -> float:
        """The longest silence that is no hang.

        Args:
            mean_step_seconds: of the last steps; ``None`` before the first one.
            excluded: whether the rank is in ``checkpoint`` or ``eval``.
        """
        if mean_step_seconds is None:
            return self.excluded_seconds
        limit = max(self.steps * mean_step_seconds, self.min_seconds)
        return max(limit, self.excluded_seconds) if excluded else limit


class Progress:
    """Notices whether anything about a rank moved: a step, an arrival, entering or leaving an excluded phase."""

    def __init__(self, now: float, age_seconds: float = 0.0) -> None:
        self._mark: tuple[int, int, int | None] | None = None
        self.since = now - age_seconds
        """Moment of the last progress on the observer's monotonic clock."""

    def observe(self, now: float, serial: int, live: Live | None) -> bool:
        """Take note of a look; tell whether the rank got ahead since the last one. The first look is no progress."""
        arrivals, phase = (live.arrivals, live.excluded_phase) if live is not None else (0, None)
        mark = (serial, arrivals, phase)
        moved = self._mark is not None and mark != self._mark
        self._mark = mark
        if moved:
            self.since = now
        return moved

    def age(self, now: float) -> float:
        """Seconds since the last progress."""
        return max(now - self.since, 0.0)
