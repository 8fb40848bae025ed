"""When slowness began and ended, from single steps: a verdict looks back over 32 of them and comes late.

The steps are split where the fit is best. If a rank takes 1 before and ``level`` from some step on, with noise around
both, the likeliest first slow step is the one from which the steps' surplus over the middle between 1 and ``level``
adds up to most. One slow step before it does not move it, nor one fast step after.
"""

from __future__ import annotations

from collections.abc import Sequence


def first_slow(ratios: Sequence[float], level: float) -> int:
    """Index of the likeliest first slow step.

    Args:
        ratios: own time over the peers', step by step; the last ones are slow.
        level: the ratio while slow, above 1.

    Returns:
        ``len(ratios) - 1`` at most: some step is slow.
    """
    middle = (1 + level) / 2
    best, best_sum, total = len(ratios) - 1, float("-inf"), 0.0
    for index in range(len(ratios) - 1, -1, -1):
        total += ratios[index] - middle
        if total >= best_sum:
            best, best_sum = index, total
    return best


def last_slow(ratios: Sequence[float], level: float) -> int:
    """Index of the likeliest last slow step, where the first ones are slow."""
    return len(ratios) - 1 - first_slow(list(reversed(ratios)), level)
