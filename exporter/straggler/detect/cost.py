"""What slowness costs, in the time of GPUs that wait.

In each step every rank waits until the slowest has arrived. Even the slowest waits a little: that is the network, which
nobody's slowness makes, and it is taken off. What the slow ranks themselves take longer than their peers is lost as
well, so per step::

    lost = sum over ranks of (wait - least wait) + sum over the slow ranks of (own time - their peers')

For one steady straggler of N ranks this is N x the difference: N - 1 wait for it, and the straggler itself spends it.
Where no rank is slow, the slowest one stands for them with what it has above the median. Live, wait is the recent mean
and the least wait that of the window; in a recording, both are those of each step.

What pipelines make of it: a rank of another stage also waits in bubbles, and its bubbles are not the straggler's doing;
a straggler in turn fills its own bubbles with work, which come back when it is cured. Both make the figure too high:
in a recorded job of four stages at half speed because of one worker, 0.56 where a simulation of the repaired job says
0.49; in one with a heavy last stage 0.29 where it says 0.15. With more than one peer group it is an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from straggler.detect.slowdown import max_minus_median


def own_excess(slow: Sequence[float], groups: Iterable[Sequence[float]]) -> float:
    """What the slow ranks themselves take longer than their peers, in seconds a step.

    Args:
        slow: of each slow rank, its own time less its group's ``slowdown.reference``; empty if none is slow.
        groups: own times of each peer group, none of them empty; asked where no rank is slow.
    """
    return sum(slow) if slow else max(map(max_minus_median, groups), default=0.0)


def lost_gpu_seconds(waits: Sequence[float], own_excess: float = 0.0, least_wait: float | None = None) -> float:
    """GPU-seconds that one step loses to slowness.

    Args:
        waits: seconds that each rank was blocked on peers in the step, any order.
        own_excess: what the slow ranks themselves take longer, as the function of that name gives it.
        least_wait: the run's least wait; without it, the least of ``waits``.
    """
    if not waits:
        return max(0.0, own_excess)
    least = min(waits) if least_wait is None else least_wait
    return sum(max(0.0, wait - least) for wait in waits) + max(0.0, own_excess)


def lost_share(lost: float, ranks: int, step_seconds: float) -> float:
    """The lost part of all GPU time of a step, 0 to 1; 0 where there was none."""
    total = ranks * step_seconds
    return min(1.0, lost / total) if total > 0 else 0.0
