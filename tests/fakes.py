"""The fakes, type-checked against the same protocols as the real things."""

from __future__ import annotations

from dataclasses import dataclass

from straggler.model.clock import Clock


@dataclass
class FakeClock:
    """Both clocks, moved by hand."""

    now: float = 1_700_000_000.0
    ticks: float = 1_000.0

    def time(self) -> float:
        """Seconds since the epoch."""
        return self.now

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return self.ticks

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        self.now += seconds
        self.ticks += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock alone, as NTP or an administrator does."""
        self.now += seconds


_: Clock = FakeClock()
