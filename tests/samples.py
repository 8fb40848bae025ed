"""Ranks of a synchronous run as the verdicts see them, worked out from their own times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from straggler.detect.sample import RankSample
from straggler.wire.recent import Recent

COLLECTIVE = 0.010
"""Seconds that even the slowest rank is blocked."""


def run_of(
    own: Sequence[float],
    *,
    medians: Sequence[float] | None = None,
    groups: Sequence[str] | None = None,
    ranks_per_node: int = 8,
    steps: int = 32,
    run: str = "r",
) -> list[RankSample]:
    """One sample per rank: all steps last as long as the slowest rank's own time and the collective.

    Args:
        own: mean own time in seconds, indexed by rank.
        medians: median own time; the means by default.
        groups: peer group of each rank; one group by default.
        ranks_per_node: nodes are ``n0``, ``n1``, … in the order of ranks.
        steps: length of the window.
        run: the run's name.
    """
    wall = max(own) + COLLECTIVE
    middle = own if medians is None else medians
    return [
        RankSample(
            run=run,
            rank=rank,
            peer_group=groups[rank] if groups else "0",
            node=f"n{rank // ranks_per_node}",
            world_size=len(own),
            recent=Recent(steps, wall, seconds, middle[rank], wall - seconds, wall - seconds),
            step=1000,
            arrivals=1000,
        )
        for rank, seconds in enumerate(own)
    ]


def with_recent(rank: RankSample, **changes: float | None) -> RankSample:
    """The same rank with other figures in its window."""
    assert rank.recent is not None
    return replace(rank, recent=rank.recent._replace(**changes))  # type: ignore[arg-type]  # names are Recent's fields
