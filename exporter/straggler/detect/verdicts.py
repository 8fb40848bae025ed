"""All verdicts about all runs at one moment: the function that living ranks, recordings and scenarios share.

A verdict says that a condition holds now, over its window of steps. Whether it has held long enough to tell anybody is
``persistence``'s question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from straggler.detect.blindness import blind, missing_rank
from straggler.detect.hardware import (
    blame_ports,
    degraded_gpu,
    degraded_link,
    degraded_ports,
    throttled_gpu,
    utilization_divergence,
)
from straggler.detect.policy import DEFAULT, Policy
from straggler.detect.regression import Level, level, slow_everywhere, slow_transport
from straggler.detect.sample import RankSample
from straggler.detect.shape import Imbalance, heavy_stages, input_stall, rotating_imbalance
from straggler.detect.stopped import crash, hang
from straggler.detect.straggling import assess, straggling_nodes, straggling_ranks
from straggler.detect.transport import blame_sockets, poor_transport
from straggler.detect.verdict import Verdict

_NO_PAST: Mapping[str, Level] = {}


def judge(
    samples: Sequence[RankSample], policy: Policy = DEFAULT, past: Mapping[str, Level] = _NO_PAST
) -> tuple[Verdict, ...]:
    """What holds now, run by run.

    Args:
        samples: at most one per rank, any order, of any number of runs.
        policy: the thresholds.
        past: how each run used to do, by run, where it has been seen for long enough.

    Returns:
        Runs in the order of their names. A rank or node that is critical gives its warning too, as the rules do.
    """
    runs: dict[str, list[RankSample]] = {}
    for rank in sorted(samples, key=lambda rank: rank.key):
        runs.setdefault(rank.run, []).append(rank)
    return tuple(verdict for run, ranks in runs.items() for verdict in _judge_run(run, ranks, policy, past.get(run)))


def world(ranks: Sequence[RankSample]) -> int:
    """How many ranks the run has: as it says itself, and at least those seen."""
    return max([len(ranks), *(rank.world_size for rank in ranks if rank.world_size is not None)])


def _recently(ranks: Sequence[RankSample]) -> Imbalance | None:
    return next((Imbalance(*rank.run_imbalance) for rank in ranks if rank.run_imbalance is not None), None)


def _judge_run(run: str, ranks: Sequence[RankSample], policy: Policy, before: Level | None) -> list[Verdict]:
    slowness = assess(ranks, policy)
    now = level(ranks, policy)
    size = world(ranks)
    poor = poor_transport(run, ranks, now, policy)
    return [
        *hang(run, ranks, policy),
        *crash(run, ranks),
        *missing_rank(run, ranks, policy),
        *straggling_nodes(run, slowness, size, policy),
        *straggling_ranks(run, slowness, size, policy),
        *heavy_stages(run, slowness, ranks, policy),
        *rotating_imbalance(run, slowness, policy, _recently(ranks)),
        *input_stall(run, ranks, policy),
        *slow_everywhere(run, now, before, policy),
        *blame_sockets(blame_ports(slow_transport(run, now, before, policy), ranks), poor),
        *poor,
        *utilization_divergence(run, ranks, policy),
        *throttled_gpu(run, ranks, policy),
        *degraded_gpu(run, ranks),
        *degraded_link(run, ranks),
        *degraded_ports(run, ranks),
        *blind(run, ranks, policy),
    ]
