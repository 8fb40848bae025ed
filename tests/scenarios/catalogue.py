"""All scenarios, and the seeds: those that thresholds may be tuned on, and those that are kept for the figures."""

from __future__ import annotations

from scenarios.healthy import HEALTHY
from scenarios.links import LINKS
from scenarios.shape import SHAPE
from scenarios.slowness import CURVE, SLOWNESS
from scenarios.stopped import STOPPED

SCENARIOS = (*HEALTHY, *SLOWNESS, *SHAPE, *STOPPED, *LINKS)
"""What the verdicts are judged by."""

TUNING_SEEDS = (1, 2, 3, 4)
HELD_OUT_SEEDS = (101, 102, 103, 104, 105)
"""Nothing is tuned on these: they make the printed figures."""
CURVE_SEEDS = tuple(range(201, 213))

__all__ = ["CURVE", "CURVE_SEEDS", "HELD_OUT_SEEDS", "SCENARIOS", "TUNING_SEEDS"]
