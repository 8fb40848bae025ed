"""What slow means, in formulas.

In synchronous training every rank's step lasts as long as the slowest rank's, so the step finds nobody. What differs
is *own time*: the step without the time blocked on peers. One rank at 47 ms among seven at 34 ms makes all eight steps
last 57 ms instead of 44; it is the one that does not wait.

1. Own time is compared inside a *peer group*: the ranks that do the same work. Another pipeline stage has other work.
2. The *reference* of a group is the lower quartile of its ranks, not their median: with two nodes of which one is slow,
   half of all ranks are slow and drag the median halfway up; 19 % slower then looks like 9 %. The least would not do
   either: one rank that skips work would make all others slow. Of two ranks each is compared with the other, which for
   the slower one means the faster. A rank alone has no reference, hence no verdict.
3. ``slowdown_ratio`` = own / reference. A rank is slow when the mean *and* the median of its own time, each against the
   reference of the same kind, exceed the threshold: the mean alone is fooled by one long stall, the median alone by a
   rank whose many short steps are a little longer and whose long ones are not.
4. The ``excess`` = own - reference must also be a share of the step: 20 % of a tiny own time delays nobody.
5. All of it over at least 32 steps, since with uneven batches chance makes a rank 28 % slower than its peers over five
   steps, 8 % over 32. The window is made in ``wire.recent``, the same for every reader.

The rules in ``rules/`` say the same in PromQL, so the quantile here is PromQL's, to the last bit: sort, take position
``q * (n - 1)``, and between two samples their weighted mean. (``statistics.quantiles`` and numpy know nine other ways.)

Times in seconds. Nothing here knows thresholds: they come from ``policy.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

LOWER_QUARTILE = 0.25
MEDIAN = 0.5
UPPER_QUARTILE = 0.75


def quantile(q: float, values: Sequence[float]) -> float:
    """The q-quantile exactly as PromQL's ``quantile`` aggregation computes it.

    Args:
        q: 0 to 1.
        values: any order, at least one, no NaN.

    Raises:
        ValueError: there is no value, or ``q`` is out of range.

    Source:
        Prometheus, ``promql/quantile.go``.
    """
    if not values:
        raise ValueError("the quantile of nothing")
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"{q} is no quantile: 0 to 1")
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    above = min(len(ordered) - 1, below + 1)
    weight = position - below
    return ordered[below] * (1 - weight) + ordered[above] * weight


def reference(values: Sequence[float]) -> float | None:
    """What a rank of this group should take: the lower quartile, of two ranks the faster one.

    Args:
        values: mean (or median) own time of each rank of the peer group, in any order.

    Returns:
        ``None`` for a rank alone: there is nobody to compare with.
    """
    if len(values) < 2:
        return None
    if len(values) == 2:
        return min(values)
    return quantile(LOWER_QUARTILE, values)


def slowdown_ratio(own: float, reference_seconds: float) -> float | None:
    """1 as fast as the peers, 1.25 a quarter slower; ``None`` where the peers' own time is zero."""
    return own / reference_seconds if reference_seconds > 0 else None


def exceeds(own: float, reference_seconds: float, ratio: float) -> bool:
    """Whether own time is more than ``ratio`` times the reference; equal is not more."""
    return own > ratio * reference_seconds


def excess_share(own: float, reference_seconds: float, step: float) -> float:
    """The part of the step that the rank's slowness makes: 0.23 is 23 % of everybody's time; 0 for an empty step."""
    return (own - reference_seconds) / step if step > 0 else 0.0


def max_minus_median(values: Sequence[float]) -> float:
    """How far the slowest of a group is from its middle: the gap that the dashboards show.

    Raises:
        ValueError: there is no value.
    """
    return max(values) - quantile(MEDIAN, values)
