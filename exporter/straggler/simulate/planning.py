"""Sums that a planner does before a run: how long, how fast, how far from the peak. Base units throughout."""

from __future__ import annotations

FLOPS_PER_PARAMETER_AND_TOKEN = 6.0
"""Two for the forward pass, four for the backward pass of a dense transformer; recomputation does not count."""

WIRE_FACTOR_KINDS = ("all_reduce", "all_gather", "reduce_scatter")


def training_seconds(tokens: float, tokens_per_second: float, gpus: int = 1, scaling_efficiency: float = 1.0) -> float:
    """How long a number of tokens takes.

    Args:
        tokens: of the whole run.
        tokens_per_second: of one GPU alone.
        gpus: that share the work, data-parallel.
        scaling_efficiency: throughput of all of them over ``gpus`` times that of one, 0 to 1.

    Raises:
        ValueError: a rate, count or efficiency that is not positive.
    """
    if tokens_per_second <= 0 or gpus < 1 or not 0 < scaling_efficiency <= 1:
        raise ValueError("throughput, GPUs and scaling efficiency must be positive, the last at most 1")
    return tokens / (tokens_per_second * gpus * scaling_efficiency)


def scaling_efficiency(
    tokens_per_second: float, gpus: int, baseline_tokens_per_second: float, baseline_gpus: int
) -> float:
    """Throughput per GPU over that of a recorded baseline: 1 is perfect."""
    return (tokens_per_second / gpus) / (baseline_tokens_per_second / baseline_gpus)


def model_flops_utilization(
    parameters: float,
    tokens_per_second: float,
    peak_flops_per_second: float,
    flops_per_parameter_and_token: float = FLOPS_PER_PARAMETER_AND_TOKEN,
) -> float:
    """MFU, 0 to 1: the model's own operations over the peak of the GPUs that do them.

    Args:
        parameters: of the model, embeddings included.
        tokens_per_second: of the same GPUs as the peak.
        peak_flops_per_second: dense peak of the number format in use, all GPUs together.
        flops_per_parameter_and_token: 6 for training without counting recomputation.
    """
    return flops_per_parameter_and_token * parameters * tokens_per_second / peak_flops_per_second


def ring_exchanges(ranks: int) -> int:
    """How many times each rank sends and receives in a ring all-reduce: N - 1 to sum up, N - 1 to spread.

    Each exchange carries one N-th of the bytes: 14 of one eighth for 8 ranks.
    """
    return 2 * (ranks - 1)


def wire_factor(ranks: int, collective: str = "all_reduce") -> float:
    """Bytes that each rank sends per byte of payload: what turns algorithm into bus bandwidth.

    Raises:
        ValueError: another collective than ``WIRE_FACTOR_KINDS``.

    Source:
        nccl-tests, ``doc/PERFORMANCE.md``.
    """
    if collective not in WIRE_FACTOR_KINDS:
        raise ValueError(f"{collective} is none of {', '.join(WIRE_FACTOR_KINDS)}")
    return (ring_exchanges(ranks) if collective == "all_reduce" else ranks - 1) / ranks


def all_reduce_seconds(payload_bytes: float, ranks: int, bus_bandwidth: float) -> float:
    """How long an all-reduce takes: bytes x 2 (N - 1) / N over the bus bandwidth in bytes per second."""
    return payload_bytes * wire_factor(ranks) / bus_bandwidth
