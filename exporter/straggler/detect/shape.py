"""What the job's own shape costs: stages of unequal work, batches of unequal length, a loader that cannot keep up.

None of it is a bad node, so no rank is named and nobody is paged.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from straggler.detect import wording
from straggler.detect.policy import Policy
from straggler.detect.sample import RankSample
from straggler.detect.slowdown import (
    LOWER_QUARTILE,
    MEDIAN,
    excess_share,
    max_minus_median,
    quantile,
    slowdown_ratio,
)
from straggler.detect.straggling import Group, Slowness
from straggler.detect.verdict import INFO, WARNING, Verdict


def heavy_stages(run: str, slowness: Slowness, ranks: Sequence[RankSample], policy: Policy) -> list[Verdict]:
    """Ranks that persistently have more work than the others, by peer group or, where groups are unknown, inside one.

    Many slow ranks inside one group, on several nodes, are reported here and not as stragglers: hardware does not fail
    ten at a time. Most often the group is really several pipeline stages; else a rack, or ranks given more data.
    """
    verdicts = [_crowd(run, group, slowness, policy) for group in slowness.groups if group.name in slowness.crowded]
    return verdicts + _heavy_stages(run, slowness, ranks, policy)


class Imbalance(NamedTuple):
    """Shares of the step, of the worst peer group each."""

    waiting: float
    """What ranks of one group wait for each other."""
    explained: float
    """What the slowest mean exceeds the median by."""


def imbalance(slowness: Slowness) -> Imbalance:
    """How much the ranks of a run wait for each other now, and how much of it one rank explains."""
    return Imbalance(
        waiting=max((_step_share(group, group.waiting) for group in slowness.groups), default=0.0),
        explained=max((_step_share(group, _largest_excess(group)) for group in slowness.groups), default=0.0),
    )


def rotating_imbalance(
    run: str, slowness: Slowness, policy: Policy, recently: Imbalance | None = None
) -> list[Verdict]:
    """All ranks wait much, and no rank explains it: another one is the slowest in each step.

    Waiting is compared inside a peer group, with the least wait of any of its ranks in any step of the window: what
    even the slowest rank waits is the network and the pipeline, the rest is waiting for each other. One steady
    straggler explains all of it; in a run of uneven batches the slowest mean explains a quarter. Stalls come by chance,
    few in one window and many in the next: the mean of the last minutes counts, where it is known.
    """
    worst, explained = recently or imbalance(slowness)
    if worst <= policy.imbalance_share or explained >= policy.imbalance_explained_share * worst:
        return []
    return [
        Verdict(
            verdict="rotating_imbalance",
            severity=WARNING,
            run=run,
            lost_share=worst,
            evidence=f"ranks wait {wording.percent(worst)} of each step for peers of their own group, and no rank's "
            f"mean own time explains {wording.percent(policy.imbalance_explained_share)} of it: the slow rank changes "
            "from step to step",
            impact=f"{wording.percent(worst)} of each step is lost to uneven work per step (sequence lengths, stalls)",
        )
    ]


def input_stall(run: str, ranks: Sequence[RankSample], policy: Policy) -> list[Verdict]:
    """The median rank waits long for its next batch: the loader feeds nobody fast enough."""
    shares = [rank.data_share for rank in ranks if rank.alive and rank.data_share is not None]
    if not shares:
        return []
    share = quantile(MEDIAN, shares)
    if share <= policy.input_stall_share:
        return []
    return [
        Verdict(
            verdict="input_stall",
            severity=WARNING,
            run=run,
            lost_share=share,
            evidence=f"the median of {wording.count(len(shares), 'rank')} waits {wording.percent(share)} of each step "
            "for the next batch",
            impact=f"up to {wording.percent(share)} of each step is lost to loading",
        )
    ]


def _crowd(run: str, group: Group, slowness: Slowness, policy: Policy) -> Verdict:
    slow = [found for found in slowness.slow if found.group is group]
    worst = max(slow, key=lambda found: found.lost_share)
    nodes = len({found.sample.node for found in slow if found.sample.node})
    where = f" on {nodes} nodes" if nodes else ""
    return Verdict(
        verdict="heavy_stage",
        severity=WARNING,
        run=run,
        peer_group=group.name,
        slowdown_ratio=worst.ratio,
        lost_share=worst.lost_share,
        evidence=f"{len(slow)} of {len(group.members)} ranks of peer group {group.name}{where} are above "
        f"{wording.times(policy.warning_ratio)} their peers ({wording.ranks([found.sample.rank for found in slow])}): "
        "more than bad hardware explains. If they are a pipeline stage, tell the hook its peer_group; else look for a "
        "rack, a network or data that they share",
        impact=f"{wording.percent(worst.lost_share)} of each step is lost",
    )


def _heavy_stages(run: str, slowness: Slowness, ranks: Sequence[RankSample], policy: Policy) -> list[Verdict]:
    """Stages above the light ones, each taken at its fastest rank, so that a slow rank makes no heavy stage."""
    stages: dict[str, list[RankSample]] = {}
    for rank in ranks:
        if rank.comparable(policy.min_steps):
            stages.setdefault(rank.peer_group, []).append(rank)
    floors = {name: min(rank.own_mean for rank in members) for name, members in stages.items()}
    light = quantile(LOWER_QUARTILE, list(floors.values())) if floors else 0.0
    verdicts: list[Verdict] = []
    for name in sorted(floors.keys() - slowness.crowded):
        lost = excess_share(floors[name], light, fmean(rank.step_mean for rank in stages[name]))
        ratio = slowdown_ratio(floors[name], light)
        if ratio is None or ratio <= policy.warning_ratio or lost < policy.min_excess_share:
            continue
        alone = "; with one rank in the stage, a slow GPU would look the same" if len(stages[name]) == 1 else ""
        verdicts.append(
            Verdict(
                verdict="heavy_stage",
                severity=INFO,
                run=run,
                peer_group=name,
                slowdown_ratio=ratio,
                lost_share=lost,
                evidence=f"even the fastest of the {wording.count(len(stages[name]), 'rank')} of peer group {name} "
                f"needs {wording.seconds(floors[name])} of own time a step, the light stages {wording.seconds(light)} "
                f"({wording.times(ratio)}){alone}",
                impact=f"up to {wording.percent(lost)} of each step; pipeline bubbles hide part of it",
            )
        )
    return verdicts


def _largest_excess(group: Group) -> float:
    return max_minus_median([member.own_mean for member in group.members])


def _step_share(group: Group, seconds: float) -> float:
    step = fmean(member.step_mean for member in group.members)
    return seconds / step if step > 0 else 0.0
