"""One step of one rank, as a recording has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class RecordedStep(NamedTuple):
    """One row. Times of a step in nanoseconds, as on the wire, so that sums are exact."""

    step: int
    rank: int
    wall_ns: int
    own_ns: int | None
    """``None`` where the recording does not say."""
    wait_ns: int
    """Time blocked on peers. Means something only where own time is known."""
    peer_group: str
    """``"0"`` where the recording has none."""
    node: str
    """``""`` where the recording has none."""
    end: float | None
    """When the step ended, epoch seconds."""
    phase_ns: Mapping[str, int]
    """By phase, those that the recording has."""
