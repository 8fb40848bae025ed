"""The machine's own clock."""

from __future__ import annotations

import time

from straggler.model.clock import Clock


class SystemClock:
    """Both clocks of this machine."""

    def time(self) -> float:
        """Seconds since the epoch; may jump."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""
        return time.monotonic()


_: Clock = SystemClock()
