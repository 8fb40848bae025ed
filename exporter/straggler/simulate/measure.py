"""What a run was really like, from the step rings that it left: the hook's own records, step by step."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from straggler.errors import SourceFailedError, WireError
from straggler.simulate.scenario import Scenario
from straggler.sources.rings.snapshot import read_snapshot
from straggler.wire.records import StepRecord

_NS = 1e-9
_WARM_UP_STEPS = 5
_SETTLING_STEPS = 1
"""The step in which the fault begins is left out: it may be of both kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Medians over the healthy steps and over the slow ones, in seconds; ``None`` where there are none.

    Medians, since the hiccups of a small machine that runs all of this at once belong to neither.
    """

    healthy_step_seconds: float | None
    slow_step_seconds: float | None
    healthy_own_seconds: float | None
    """Own time of the rank that the fault is on."""
    slow_own_seconds: float | None

    @property
    def efficiency(self) -> float | None:
        """Healthy step over slow step."""
        if self.healthy_step_seconds is None or not self.slow_step_seconds:
            return None
        return self.healthy_step_seconds / self.slow_step_seconds


def read_records(rings: Path) -> dict[int, list[StepRecord]]:
    """All records that are still in the rings, by rank, in order. What is not whole is left out."""
    records: dict[int, list[StepRecord]] = {}
    for path in rings.rglob("*"):
        with contextlib.suppress(SourceFailedError, WireError):  # a directory, no ring, or one that nobody has begun
            ring = read_snapshot(path)
            if ring.identity is not None:
                records[ring.identity.rank] = list(ring.records)
    return records


def measure(scenario: Scenario, records: dict[int, list[StepRecord]]) -> Pace:
    """Compare the steps before the fault with those under it."""
    steps = records.get(scenario.fault.rank, [])
    begins = scenario.fault.begins_step if scenario.fault.slows else math.inf
    healthy = [record for record in steps if _WARM_UP_STEPS < record.serial < begins]
    slow = [record for record in steps if record.serial >= begins + _SETTLING_STEPS]
    return Pace(
        healthy_step_seconds=_median([record.wall_ns for record in healthy]),
        slow_step_seconds=_median([record.wall_ns for record in slow]),
        healthy_own_seconds=_median([own for record in healthy if (own := record.own_ns) is not None]),
        slow_own_seconds=_median([own for record in slow if (own := record.own_ns) is not None]),
    )


def _median(times_ns: list[int]) -> float | None:
    return median(times_ns) * _NS if times_ns else None
