"""What slowness costs, in the time of GPUs that wait.

In each step every rank waits until the slowest has arrived. Even the slowest waits a little: that is the network, which
nobody's slowness makes, and it is taken off. So of N ranks, per step::

    lost = sum over ranks of (wait - least wait) + the slowest rank's own excess (max - median own time of its group)

For one steady straggler this is N x (max - median own time): N - 1 ranks wait for the difference, and the straggler
itself spends it. Live, wait is the recent mean and the least wait that of the window; in a recording, both are exact.

What pipelines make of it: a rank of another stage also waits in bubbles, and its bubbles are not the straggler's doing;
a straggler in turn fills its own bubbles with work, which come back when it is cured. Both make the figure too high:
in a recorded job of four stages at half speed because of one worker, 0.56 where a simulation of the repaired job says
0.49; in one with a heavy last stage 0.29 where it says 0.15. With more than one peer group it is an upper bound.
"""

from __future__ import annotations

from collections.abc import Sequence


def lost_gpu_seconds(waits: Sequence[float], own_excess: float = 0.0, least_wait: float | None = None) -> float:
    """GPU-seconds that one step loses to slowness.

    Args:
        waits: seconds that each rank was blocked on peers in the step, any order.
        own_excess: the largest max - median of own time in any peer group, seconds.
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
