"""What one straggler costs a synchronous job, from the reference diagram up to a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from straggler.detect.cost import lost_gpu_seconds
from straggler.simulate.diagram import StepDiagram

KERNEL_EFFICIENCY = 0.55
"""The part of its peak that a GPU reaches while in forward and backward: a stated assumption, not a measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerCost:
    """One rank slow by a factor, among others that are not. Seconds, and shares of 0 to 1."""

    slow_factor: float
    ranks: int
    step: float
    """Of every rank."""
    efficiency: float
    """Healthy step over this one."""
    straggler_own: float
    peer_own: float
    peer_wait: float
    """What each other rank is blocked in a step: the all-reduce and the waiting for the slow rank."""
    lost_gpu_seconds_per_step: float
    lost_share: float
    """Of all GPU time."""
    reported_utilization: float
    """As ``GPU_UTIL`` sees it: busy whenever a kernel runs, and waiting in a collective is one. Only loading is not."""
    useful_utilization: float
    """Share of the step in forward and backward, averaged over the GPUs, times the kernel efficiency.

    A slow GPU's longer compute counts in full: it is busy for longer, not idle. So this flatters."""


def straggler_cost(
    diagram: StepDiagram, slow_factor: float, ranks: int, kernel_efficiency: float = KERNEL_EFFICIENCY
) -> StragglerCost:
    """Work out one case.

    Args:
        diagram: a healthy step.
        slow_factor: how many times longer the slow rank's forward and backward take; 1 is a healthy run.
        ranks: of the whole job.
        kernel_efficiency: 0 to 1, see ``KERNEL_EFFICIENCY``.

    Raises:
        ValueError: a factor below 1, no rank, an efficiency out of range, or a step that takes no time.
    """
    if slow_factor < 1:
        raise ValueError("a slow factor below 1 is no straggler")
    if ranks < 1 or not 0 < kernel_efficiency <= 1 or diagram.step <= 0:
        raise ValueError("ranks, kernel efficiency and the step must be positive, the efficiency at most 1")
    step = diagram.step_with(slow_factor)
    extra = step - diagram.step
    peer_own = diagram.step - diagram.all_reduce
    waits = [diagram.all_reduce, *[diagram.all_reduce + extra] * (ranks - 1)]
    lost = lost_gpu_seconds(waits, own_excess=extra)
    compute = (diagram.compute * slow_factor + diagram.compute * (ranks - 1)) / ranks
    return StragglerCost(
        slow_factor=slow_factor,
        ranks=ranks,
        step=step,
        efficiency=diagram.step / step,
        straggler_own=peer_own + extra,
        peer_own=peer_own,
        peer_wait=diagram.all_reduce + extra,
        lost_gpu_seconds_per_step=lost,
        lost_share=lost / (ranks * step),
        reported_utilization=1 - diagram.data / step,
        useful_utilization=compute / step * kernel_efficiency,
    )


def prefetch_saving(diagram: StepDiagram, exposed: float) -> float:
    """Seconds a step that prefetching saves when ``exposed`` seconds of loading still show."""
    return max(0.0, diagram.data - exposed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCost:
    """One straggler over hours."""

    gpu_hours: float
    lost_gpu_hours: float
    lost_money: float | None
    """In the currency of the price; ``None`` without one."""


def cluster_cost(cost: StragglerCost, hours: float, gpu_hour_price: float | None = None) -> ClusterCost:
    """Scale a case up: all of the job's GPUs for some hours.

    Args:
        cost: with the job's number of ranks.
        hours: for which the straggler stays.
        gpu_hour_price: of one GPU for one hour.
    """
    gpu_hours = cost.ranks * hours
    lost = gpu_hours * cost.lost_share
    return ClusterCost(
        gpu_hours=gpu_hours,
        lost_gpu_hours=lost,
        lost_money=None if gpu_hour_price is None else lost * gpu_hour_price,
    )
