"""Who is slow: single ranks, whole nodes, or so many that it is the job's shape and no hardware."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from straggler.detect import wording
from straggler.detect.cause import UNKNOWN, Cause, explain
from straggler.detect.cause_text import sentence
from straggler.detect.policy import Policy
from straggler.detect.sample import RankSample
from straggler.detect.slowdown import exceeds, excess_share, reference, slowdown_ratio
from straggler.detect.verdict import CRITICAL, WARNING, Verdict


@dataclass(frozen=True, slots=True)
class Group:
    """The comparable ranks of one peer group, and what a rank of it should take."""

    name: str
    members: tuple[RankSample, ...]
    mean_reference: float
    median_reference: float

    @property
    def waiting(self) -> float:
        """Seconds a step that its ranks wait for each other: the mean wait above the least of any rank in any step."""
        recent = [member.recent for member in self.members if member.recent is not None]
        means = [window.wait_mean_seconds for window in recent if window.wait_mean_seconds is not None]
        least = [window.wait_min_seconds for window in recent if window.wait_min_seconds is not None]
        return fmean(means) - min(least) if means and least else 0.0


@dataclass(frozen=True, slots=True)
class Slow:
    """One slow rank beside its peers."""

    sample: RankSample
    group: Group
    critical: bool

    @property
    def ratio(self) -> float | None:
        """Mean own time over the peers'."""
        return slowdown_ratio(self.sample.own_mean, self.group.mean_reference)

    def cause(self, policy: Policy) -> Cause:
        """Why, as far as can be seen."""
        group = [member.lately for member in self.group.members if member.lately is not None]
        return explain(self.sample.lately, group, policy)

    @property
    def lost_share(self) -> float:
        """The share of the step that its slowness makes."""
        return excess_share(self.sample.own_mean, self.group.mean_reference, self.sample.step_mean)


@dataclass(frozen=True, slots=True)
class Slowness:
    """All that is slow in one run."""

    groups: tuple[Group, ...]
    """Peer groups with a reference: two comparable ranks at least."""
    slow: tuple[Slow, ...]
    crowded: frozenset[str]
    """Peer groups with more slow ranks than bad hardware explains."""
    whole_nodes: frozenset[str]
    """Nodes whose comparable ranks are all slow, two at least; none of a crowded group."""


def assess(ranks: Sequence[RankSample], policy: Policy) -> Slowness:
    """Compare the ranks of one run with their peers."""
    groups = tuple(_groups(ranks, policy))
    slow = tuple(found for group in groups for found in _slow_in(group, policy))
    crowded = frozenset(group.name for group in groups if _is_crowded(group, slow, policy))
    single = [found for found in slow if found.group.name not in crowded]
    compared = [member for group in groups if group.name not in crowded for member in group.members]
    whole_nodes = frozenset(
        node
        for node in {found.sample.node for found in single if found.sample.node}
        if sum(found.sample.node == node for found in single) == sum(member.node == node for member in compared) >= 2
    )
    return Slowness(groups, slow, crowded, whole_nodes)


def straggling_ranks(run: str, slowness: Slowness, world: int, policy: Policy) -> list[Verdict]:
    """One verdict per slow rank and severity, unless its node or its group explains it.

    Args:
        run: the run's name.
        slowness: from ``assess``.
        world: how many ranks the run has, as far as known.
        policy: the thresholds.
    """
    verdicts: list[Verdict] = []
    for found in slowness.slow:
        if found.group.name in slowness.crowded or found.sample.node in slowness.whole_nodes:
            continue
        cause = found.cause(policy)
        verdicts += [
            Verdict(
                verdict="straggling_rank",
                severity=severity,
                run=run,
                peer_group=found.group.name,
                rank=found.sample.rank,
                node=found.sample.node,
                slowdown_ratio=found.ratio,
                lost_share=found.lost_share,
                waiting=world - 1,
                gpu_uuid=found.sample.gpu_uuid,
                cause=cause.name,
                cause_text=sentence(cause),
                evidence=_evidence(found),
                impact=f"{wording.count(world - 1, 'GPU')} wait for it, {wording.percent(found.lost_share)} of each "
                "step is lost",
            )
            for severity in ((WARNING, CRITICAL) if found.critical else (WARNING,))
        ]
    return verdicts


def straggling_nodes(run: str, slowness: Slowness, world: int, policy: Policy) -> list[Verdict]:
    """One verdict per node that is slow as a whole, instead of one per rank. Its cause is what its ranks agree on."""
    verdicts: list[Verdict] = []
    for node in sorted(slowness.whole_nodes):
        on_node = [found for found in slowness.slow if found.sample.node == node]
        worst = max(on_node, key=lambda found: found.lost_share)
        ratios = [found.ratio for found in on_node if found.ratio is not None]
        mean_ratio = sum(ratios) / len(ratios) if ratios else None
        others = max(0, world - len(on_node))
        causes = {found.cause(policy).name for found in on_node}
        cause = causes.pop() if len(causes) == 1 else UNKNOWN
        severities = (WARNING, CRITICAL) if all(found.critical for found in on_node) else (WARNING,)
        verdicts += [
            Verdict(
                verdict="straggling_node",
                severity=severity,
                run=run,
                node=node,
                slowdown_ratio=mean_ratio,
                lost_share=worst.lost_share,
                waiting=others,
                cause=cause,
                cause_text=f"Of its slowest rank, {worst.sample.rank}: {sentence(worst.cause(policy))}",
                evidence=f"all {len(on_node)} compared ranks of the node are slow"
                + (f", on average {wording.times(mean_ratio)} their peers" if mean_ratio else "")
                + f"; the slowest is rank {worst.sample.rank}: {_evidence(worst)}",
                impact=f"{wording.count(others, 'GPU')} on other nodes wait for it, "
                f"{wording.percent(worst.lost_share)} of each step is lost",
            )
            for severity in severities
        ]
    return verdicts


def _groups(ranks: Sequence[RankSample], policy: Policy) -> Iterable[Group]:
    members: dict[str, list[RankSample]] = {}
    for rank in ranks:
        if rank.comparable(policy.min_steps):
            members.setdefault(rank.peer_group, []).append(rank)
    for name in sorted(members):
        mean = reference([rank.own_mean for rank in members[name]])
        median = reference([rank.own_median for rank in members[name]])
        if mean is not None and median is not None:
            yield Group(name, tuple(members[name]), mean, median)


def _slow_in(group: Group, policy: Policy) -> Iterable[Slow]:
    least_excess = policy.explained_share * group.waiting
    for rank in group.members:
        explains = rank.own_mean - group.mean_reference >= least_excess
        if explains and _is_slow(rank, group, policy.warning_ratio, policy):
            critical = len(group.members) >= policy.min_peers_for_critical
            yield Slow(rank, group, critical and _is_slow(rank, group, policy.critical_ratio, policy))


def _is_slow(rank: RankSample, group: Group, ratio: float, policy: Policy) -> bool:
    return (
        exceeds(rank.own_mean, group.mean_reference, ratio)
        and exceeds(rank.own_median, group.median_reference, ratio)
        and excess_share(rank.own_mean, group.mean_reference, rank.step_mean) >= policy.min_excess_share
    )


def _is_crowded(group: Group, slow: Sequence[Slow], policy: Policy) -> bool:
    mine = [found.sample for found in slow if found.group is group]
    # A rank whose node is unknown counts as a node of its own: blaming single ranks needs to know better.
    nodes = len({rank.node for rank in mine if rank.node}) + sum(not rank.node for rank in mine)
    return (
        len(mine) >= policy.many_slow_min_ranks
        and len(mine) > policy.many_slow_share * len(group.members)
        and nodes >= policy.many_slow_min_nodes
    )


def _evidence(found: Slow) -> str:
    rank, group = found.sample, found.group
    steps = rank.recent.steps if rank.recent else 0
    peers = len(group.members) - 1
    ratio = f" ({wording.times(found.ratio)})" if found.ratio is not None else ""
    text = (
        f"own time {wording.seconds(rank.own_mean)} a step{ratio}, median {wording.seconds(rank.own_median)}, "
        f"against {wording.seconds(group.mean_reference)} of its {wording.count(peers, 'peer')}, over {steps} steps"
    )
    own_wait = rank.recent.wait_mean_seconds if rank.recent else None
    waits = [
        member.recent.wait_mean_seconds
        for member in group.members
        if member is not rank and member.recent and member.recent.wait_mean_seconds is not None
    ]
    if own_wait is not None and waits:
        mean = sum(waits) / len(waits)
        text += f"; it waits {wording.seconds(own_wait)} a step, they {wording.seconds(mean)}"
    return text
