"""Time as an argument: layers below the sidecar never ask the system."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Both clocks of the machine, in seconds. ``sidecar.clock.SystemClock`` is the real one, ``tests/fakes.py`` has a fake."""

    def time(self) -> float:
        """Seconds since the epoch; may jump."""

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""
