"""What the last minutes say about one rank: the facts that causes are reckoned from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

HELD_BY: Mapping[str, tuple[str, ...]] = {
    "thermal": ("thermal", "sw_thermal", "hw_thermal"),
    "power_brake": ("hw_power_brake",),
    "power_cap": ("sw_power_cap",),
}
"""Clocks event reasons that mean the same to a person. NVML's two thermal reasons and DCGM's ``thermal`` are counts of
the same heat: the largest counts, never their sum."""

SET_LOW_FLAG = "applications_clocks_setting"

PCIE_BYTES_PER_LANE = 0.125e9
"""Times two to the power of the generation: within 2 % of what a lane carries in one direction, up to generation 6."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lately:
    """One rank over the last five minutes, or since it is known; what the GPU says of itself over the last two.

    ``None`` is unknown, never zero. Seconds are means over its steps, so that ranks whose steps ended at other moments
    compare.
    """

    step_seconds: float
    """Wall time of a step over the rank's window of last steps."""
    own_seconds: float | None = None
    now_seconds: float | None = None
    """Own time of a step over the rank's window, as the verdicts see it: the last 32 steps or ten seconds."""
    data_seconds: float = 0.0
    h2d_seconds: float = 0.0
    """0 also where the hook does not tell copies apart."""
    tokens: float | None = None
    """A step."""
    run_delay_seconds: float | None = None
    """The training thread was ready, and no CPU was free for it."""
    memory_stall_seconds: float | None = None
    """Tasks of its control group stood still for want of memory."""
    sm_clock_hertz: float | None = None
    tensor_hertz: float | None = None
    """Busy tensor cycles a second: arithmetic per time, whatever the clock."""
    held: Mapping[str, float] = field(default_factory=dict)
    """Share of the time in which the clock was held down, by ``HELD_BY``; what nobody reports is not in it."""
    set_low: bool = False
    """The driver says that application clocks are set."""
    pcie_bytes_per_second: float | None = None
    """What the link can carry in one direction, as it is now."""
    pcie_received_bytes_per_second: float | None = None
    errors: tuple[str, ...] = ()
    """What the GPU reported in the last hour: ``XID 63``, ``uncorrected ECC error``, ``row remap pending``."""
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None

    @property
    def compute_seconds(self) -> float | None:
        """Own time without loading and copying."""
        return None if self.own_seconds is None else self.own_seconds - self.data_seconds - self.h2d_seconds
