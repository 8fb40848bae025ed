"""The reference diagram's numbers, worked out by hand."""

from __future__ import annotations

import pytest

from straggler.detect.cost import lost_gpu_seconds, lost_share
from straggler.simulate.cost import cluster_cost, prefetch_saving, straggler_cost
from straggler.simulate.diagram import REFERENCE, StepDiagram, lanes


def test_healthy_step() -> None:
    """6 + 10 + 16 + 10 + 2 ms are 44 ms, and nothing is lost."""
    cost = straggler_cost(REFERENCE, 1.0, 8)

    assert cost.step == pytest.approx(0.044)
    assert cost.efficiency == 1.0
    assert cost.lost_share == 0.0
    assert cost.peer_own == cost.straggler_own == pytest.approx(0.034)


def test_one_rank_half_slower() -> None:
    """At 1.5 x the 26 ms of forward and backward become 39: step 57 ms, efficiency 44 / 57 = 77.2 %."""
    cost = straggler_cost(REFERENCE, 1.5, 8)

    assert cost.step == pytest.approx(0.057)
    assert cost.efficiency == pytest.approx(0.772, abs=5e-4)
    assert cost.straggler_own == pytest.approx(0.047)
    assert cost.peer_wait == pytest.approx(0.023)


@pytest.mark.parametrize(("factor", "percent"), [(1.0, 86.4), (1.5, 89.5), (2.0, 91.4)])
def test_reported_utilization_rises(factor: float, percent: float) -> None:
    """Reported utilization is 1 - loading / step: the slower the rank, the busier the GPUs look."""
    assert 100 * straggler_cost(REFERENCE, factor, 8).reported_utilization == pytest.approx(percent, abs=0.05)


def test_useful_utilization_falls_below_a_quarter() -> None:
    """At 2 x: (7 x 26 + 52) / (8 x 70) = 41.8 % of the step, times the stated efficiency below 25 %."""
    assert straggler_cost(REFERENCE, 2.0, 8, kernel_efficiency=1.0).useful_utilization == pytest.approx(234 / 560)
    assert straggler_cost(REFERENCE, 2.0, 8).useful_utilization == pytest.approx(0.2298, abs=1e-4)
    assert straggler_cost(REFERENCE, 1.0, 8).useful_utilization == pytest.approx(26 / 44 * 0.55)


@pytest.mark.parametrize(("efficiency", "below"), [(0.597, True), (0.599, False)])
def test_where_a_quarter_is_crossed(efficiency: float, *, below: bool) -> None:
    """Useful is below 25 % at 2 x for a kernel efficiency below 0.25 / 0.418 = 0.598, and not above."""
    assert (straggler_cost(REFERENCE, 2.0, 8, efficiency).useful_utilization < 0.25) is below


def test_prefetching_saves_little() -> None:
    """Prefetching saves 5 of the 6 ms of loading when 1 ms stays exposed; the straggler at 2 x costs 26."""
    assert prefetch_saving(REFERENCE, 0.001) == pytest.approx(0.005)
    assert prefetch_saving(REFERENCE, 0.010) == 0.0
    assert straggler_cost(REFERENCE, 2.0, 8).step - REFERENCE.step == pytest.approx(0.026)


@pytest.mark.parametrize("ranks", [1, 2, 8, 1024])
@pytest.mark.parametrize("factor", [1.0, 1.1, 1.5, 2.0])
def test_lost_share_is_what_efficiency_lacks(ranks: int, factor: float) -> None:
    """N x (max - median) of N x step is the same as 1 - healthy step / step, whatever the size of the job."""
    cost = straggler_cost(REFERENCE, factor, ranks)

    assert cost.lost_share == pytest.approx(1 - cost.efficiency)
    assert cost.lost_gpu_seconds_per_step == pytest.approx(ranks * (cost.straggler_own - cost.peer_own))


def test_cluster() -> None:
    """1,024 GPUs for 24 h with one rank at 1.5 x: 13 / 57 of 24,576 GPU-hours, 5,605; at 2.50 each 14,013."""
    cluster = cluster_cost(straggler_cost(REFERENCE, 1.5, 1024), 24, 2.5)

    assert cluster.gpu_hours == 24_576
    assert cluster.lost_gpu_hours == pytest.approx(5605, abs=1)
    assert cluster.lost_money == pytest.approx(14_013, abs=1)
    assert cluster_cost(straggler_cost(REFERENCE, 1.5, 8), 1).lost_money is None


def test_lost_gpu_seconds_by_hand() -> None:
    """Waits of 10 and three times 23 ms: three ranks lose 13 each, and the straggler its own 13."""
    assert lost_gpu_seconds([0.010, 0.023, 0.023, 0.023], 0.013) == pytest.approx(0.052)
    assert lost_gpu_seconds([0.012, 0.023], 0.0, least_wait=0.010) == pytest.approx(0.015)
    assert lost_gpu_seconds([], 0.0) == 0.0
    assert lost_share(0.052, 4, 0.057) == pytest.approx(13 / 57)
    assert lost_share(1.0, 0, 0.057) == 0.0


@pytest.mark.parametrize(
    ("factor", "ranks", "efficiency"), [(0.9, 8, 0.5), (1.5, 0, 0.5), (1.5, 8, 0.0), (1.5, 8, 1.1)]
)
def test_nonsense_is_refused(factor: float, ranks: int, efficiency: float) -> None:
    """What cannot be is an error and no number."""
    with pytest.raises(ValueError, match=r"factor|positive"):
        straggler_cost(REFERENCE, factor, ranks, efficiency)
    with pytest.raises(ValueError, match="positive"):
        straggler_cost(StepDiagram(data=0, forward=0, backward=0, all_reduce=0, optimizer=0), 1.5, 8)


def test_lanes() -> None:
    """Both ranks' lines end together; the usual one has as many dots as the slow one has extra compute."""
    drawn = lanes(REFERENCE, 1.5)

    assert drawn["usual"] == "d" * 6 + "f" * 10 + "b" * 16 + "." * 13 + "a" * 10 + "o" * 2
    assert drawn["slow"] == "d" * 6 + "f" * 15 + "b" * 24 + "a" * 10 + "o" * 2
