"""Time as an argument: layers below the sidecar never ask the system."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Both clocks of the machine, in seconds. The real one is in ``sidecar``, a fake one in ``tests/fakes.py``."""

    def time(self) -> float:
        """Seconds since the epoch; may jump."""

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""
