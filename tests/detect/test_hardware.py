"""What the GPUs say besides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples import run_of
from straggler.detect.hardware import degraded_gpu
from straggler.detect.lately import Lately
from straggler.detect.sample import RankSample
from straggler.detect.verdicts import judge
from straggler.model.gpu import CLOCKS_EVENT_REASONS
from straggler.model.rank import RankState


def found(ranks: list[RankSample]) -> list[tuple[str, int | None]]:
    """Verdict and rank."""
    return [(verdict.verdict, verdict.rank) for verdict in judge(ranks)]


@pytest.mark.parametrize(
    ("utilization", "active", "told"),
    [(0.98, 0.40, True), (0.98, 0.50, False), (0.75, 0.10, False), (0.98, None, False), (None, 0.1, False)],
)
def test_divergence(utilization: float | None, active: float | None, *, told: bool) -> None:
    """Busy above 0.8 and half of it without SM activity: one verdict for the run; unknown is not zero."""
    ranks = [replace(rank, utilization_ratio=utilization, sm_active_ratio=active) for rank in run_of([1.0] * 8)]

    assert found(ranks) == ([("utilization_divergence", None)] if told else [])


def test_divergence_is_of_the_ranks_with_both() -> None:
    """A rank that lacks one of the two is left out of both means."""
    ranks = [replace(rank, utilization_ratio=0.98, sm_active_ratio=0.2) for rank in run_of([1.0] * 4)]
    ranks[0] = replace(ranks[0], utilization_ratio=0.0, sm_active_ratio=None)

    assert found(ranks) == [("utilization_divergence", None)]


@pytest.mark.parametrize(
    ("reason", "share", "told"),
    [
        ("hw_thermal", 0.11, True),
        ("hw_power_brake", 0.5, True),
        ("thermal", 0.2, True),
        ("hw_thermal", 0.09, False),
        ("sw_power_cap", 1.0, False),
        ("gpu_idle", 1.0, False),
    ],
)
def test_throttled(reason: str, share: float, *, told: bool) -> None:
    """Heat and power brakes count from a tenth of the time on; a power cap is normal under load."""
    assert reason in CLOCKS_EVENT_REASONS
    ranks = run_of([1.0] * 4)
    ranks[2] = replace(ranks[2], throttled_share={reason: share, "sw_power_cap": 1.0})

    assert found(ranks) == ([("throttled_gpu", 2)] if told else [])


@pytest.mark.parametrize(
    ("width", "most", "told"), [(8, 16, True), (16, 16, False), (None, 16, False), (8, None, False), (0, 16, False)]
)
def test_narrow_link(width: float | None, most: float | None, *, told: bool) -> None:
    """Fewer lanes than possible; unknown and zero (a GPU that is gone) are something else."""
    ranks = run_of([1.0] * 4)
    ranks[1] = replace(ranks[1], pcie_link_width=width, pcie_link_width_max=most)

    assert found(ranks) == ([("degraded_link", 1)] if told else [])


def test_gpu_with_errors_is_told() -> None:
    """Of a living rank, with what its GPU has reported; a rank that has ended is history."""
    lately = Lately(step_seconds=1.0, errors=("XID 94", "row remap pending"))
    ranks = [RankSample(run="r", rank=0), RankSample(run="r", rank=1, node="n1", lately=lately)]
    (verdict,) = degraded_gpu("r", ranks)

    assert (verdict.verdict, verdict.rank, verdict.node) == ("degraded_gpu", 1, "n1")
    assert verdict.evidence == "its GPU reported in the last hour: XID 94, row remap pending"
    assert degraded_gpu("r", [replace(ranks[1], state=RankState.FINISHED)]) == []
