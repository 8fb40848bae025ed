"""The run against its own past: when all ranks are slow alike, no peer shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from straggler.detect import wording
from straggler.detect.policy import Policy
from straggler.detect.sample import RankSample
from straggler.detect.slowdown import LOWER_QUARTILE, MEDIAN, quantile
from straggler.detect.verdict import INFO, WARNING, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """How a run is doing, in seconds a step: now, or as it used to."""

    step: float
    """Mean over ranks of the recent step."""
    own: Mapping[str, float]
    """By peer group: the median over its ranks of the recent mean own time."""
    least_wait: float
    """The least wait of any rank in any recent step: what even the slowest rank waits, hence the network."""


def level(ranks: Sequence[RankSample], policy: Policy) -> Level | None:
    """The run's level now; ``None`` without comparable ranks."""
    groups: dict[str, list[float]] = {}
    steps: list[float] = []
    least: list[float] = []
    for rank in ranks:
        if rank.recent is None or not rank.comparable(policy.min_steps):
            continue
        steps.append(rank.step_mean)
        groups.setdefault(rank.peer_group, []).append(rank.own_mean)
        if rank.recent.wait_min_seconds is not None:
            least.append(rank.recent.wait_min_seconds)
    if not groups or not least:
        return None
    return Level(
        step=fmean(steps),
        own={name: quantile(MEDIAN, own) for name, own in groups.items()},
        least_wait=min(least),
    )


def usual(levels: Sequence[Level]) -> Level:
    """What a run used to do: the lower quartile of its past levels, of which there is at least one."""
    return Level(
        step=quantile(LOWER_QUARTILE, [past.step for past in levels]),
        own={
            name: quantile(LOWER_QUARTILE, [past.own[name] for past in levels if name in past.own])
            for name in {name for past in levels for name in past.own}
        },
        least_wait=quantile(LOWER_QUARTILE, [past.least_wait for past in levels]),
    )


def slow_everywhere(run: str, now: Level | None, before: Level | None, policy: Policy) -> list[Verdict]:
    """The median rank of every peer group is a fifth slower than it used to be.

    Power caps, a cooling failure, a changed container, a larger batch: whatever reaches all of them.
    """
    if now is None or before is None:
        return []
    grown = {name: own / before.own[name] for name, own in now.own.items() if before.own.get(name, 0.0) > 0}
    if not grown or min(grown.values()) <= policy.regression_ratio:
        return []
    least = min(grown, key=lambda name: grown[name])
    ratio = grown[least]
    lost = (now.own[least] - before.own[least]) / now.step if now.step > 0 else None
    return [
        Verdict(
            verdict="slow_everywhere",
            severity=WARNING,
            run=run,
            slowdown_ratio=ratio,
            lost_share=lost,
            evidence=f"the median rank of every peer group needs at least {wording.times(ratio)} the own time a step "
            f"of the past hours (now {wording.seconds(now.own[least])}, then {wording.seconds(before.own[least])}), "
            "so no comparison of peers shows it",
            impact=f"a step takes {wording.seconds(now.step)} instead of {wording.seconds(before.step)}",
        )
    ]


def slow_transport(run: str, now: Level | None, before: Level | None, policy: Policy) -> list[Verdict]:
    """Even the rank that waits least waits long: nobody else can be to blame, it is the network.

    A warning where it has grown by a fifth of the usual step. A run that was slow from its first step has no better
    past: there, half of the step is worth an information.
    """
    if now is None or now.step <= 0:
        return []
    verdicts: list[Verdict] = []
    if before is not None and now.least_wait - before.least_wait > (policy.regression_ratio - 1) * before.step:
        grown = (now.least_wait - before.least_wait) / now.step
        then = f"; in the past hours it was {wording.seconds(before.least_wait)}"
        verdicts.append(_slow_transport(run, now, WARNING, grown, then))
    share = now.least_wait / now.step
    if share > policy.network_share:
        verdicts.append(_slow_transport(run, now, INFO, share, f", {wording.percent(share)} of it"))
    return verdicts


def _slow_transport(run: str, now: Level, severity: str, lost: float, more: str) -> Verdict:
    return Verdict(
        verdict="slow_transport",
        severity=severity,
        run=run,
        lost_share=lost,
        evidence=f"even the rank that waits least waits {wording.seconds(now.least_wait)} in each step of "
        f"{wording.seconds(now.step)}{more}",
        impact=f"{wording.percent(lost)} of each step is lost to the network, or to a rank that is not seen",
    )
