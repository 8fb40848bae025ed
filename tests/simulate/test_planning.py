"""Planning sums, worked out by hand."""

from __future__ import annotations

import pytest

from straggler.simulate.planning import (
    all_reduce_seconds,
    model_flops_utilization,
    ring_exchanges,
    scaling_efficiency,
    training_seconds,
    wire_factor,
)

TOKENS_PER_SECOND = 262_144 / 5.9513
"""Of one H100 with a 1.5 B GPT: 44,048."""


def test_worked_example_of_throughput() -> None:
    """262,144 tokens in 5.9513 s are 44,048 tokens a second."""
    assert pytest.approx(44_048, abs=0.5) == TOKENS_PER_SECOND


def test_thirty_billion_tokens() -> None:
    """7.88 days on one GPU; on 32 5.91 h if nothing is lost and 6.2 h at 95 %."""
    assert training_seconds(30e9, TOKENS_PER_SECOND) / 86_400 == pytest.approx(7.88, abs=0.005)
    assert training_seconds(30e9, TOKENS_PER_SECOND, 32) / 3600 == pytest.approx(5.91, abs=0.005)
    assert training_seconds(30e9, TOKENS_PER_SECOND, 32, 0.95) / 3600 == pytest.approx(6.22, abs=0.005)


@pytest.mark.parametrize(("rate", "gpus", "efficiency"), [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, 1.5)])
def test_nonsense_is_refused(rate: float, gpus: int, efficiency: float) -> None:
    """A rate, count or efficiency that cannot be is an error."""
    with pytest.raises(ValueError, match="positive"):
        training_seconds(1e9, rate, gpus, efficiency)


@pytest.mark.parametrize(
    ("parameters", "per_token", "percent"),
    [
        (1_557_611_200, 6.0, 41.6),  # as counted
        (1_500_000_000, 6.0, 40.1),  # as named
    ],
)
def test_worked_example_of_mfu(parameters: int, per_token: float, percent: float) -> None:
    """6 N operations a token on one H100 of 989.4 TFLOP/s."""
    utilization = model_flops_utilization(parameters, TOKENS_PER_SECOND, 989.4e12, per_token)

    assert 100 * utilization == pytest.approx(percent, abs=0.05)


def test_ring() -> None:
    """8 ranks: 14 exchanges of one eighth; each rank sends 14/8 of the bytes."""
    assert ring_exchanges(8) == 14
    assert ring_exchanges(1) == 0
    assert wire_factor(8) == 14 / 8
    assert wire_factor(8, "all_gather") == wire_factor(8, "reduce_scatter") == 7 / 8
    with pytest.raises(ValueError, match="broadcast"):
        wire_factor(8, "broadcast")


def test_all_reduce_time() -> None:
    """3 GB of gradients over 8 GPUs at 350 GB/s bus bandwidth: 3 x 1.75 / 350 = 15 ms."""
    assert all_reduce_seconds(3e9, 8, 350e9) == pytest.approx(0.015)


def test_scaling_efficiency() -> None:
    """32 GPUs that do 30.4 times the work of one are 95 % efficient."""
    assert scaling_efficiency(30.4 * 44_048, 32, 44_048, 1) == pytest.approx(0.95)
