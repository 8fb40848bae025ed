"""The run against its own past: when all ranks are slow alike, no peer shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from straggler.detect import wording
from straggler.detect.policy import Policy
from straggler.detect.sample import RankSample
from straggler.detect.slowdown import MEDIAN, quantile
from straggler.detect.verdict import WARNING, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """How a run is doing, in seconds a step: now, or as it used to."""

    step: float
    """Median over ranks of the recent mean step."""
    own: float
    """Median over ranks of the recent mean own time."""
    least_wait: float
    """The least wait of any rank in any recent step: what even the slowest rank waits, hence the network."""


def level(ranks: Sequence[RankSample], policy: Policy) -> Level | None:
    """The run's level now; ``None`` without comparable ranks."""
    recent = [rank.recent for rank in ranks if rank.recent is not None and rank.comparable(policy.min_steps)]
    least = [window.wait_min_seconds for window in recent if window.wait_min_seconds is not None]
    own = [window.own_mean_seconds for window in recent if window.own_mean_seconds is not None]
    if not own or not least:
        return None
    return Level(
        step=quantile(MEDIAN, [window.step_mean_seconds for window in recent]),
        own=quantile(MEDIAN, own),
        least_wait=min(least),
    )


def slow_everywhere(run: str, now: Level | None, before: Level | None, policy: Policy) -> list[Verdict]:
    """The median rank's own time has grown by a fifth: power caps, a cooling failure, a changed container or batch."""
    if now is None or before is None or before.own <= 0 or now.own <= policy.regression_ratio * before.own:
        return []
    ratio = now.own / before.own
    lost = (now.own - before.own) / now.step if now.step > 0 else None
    return [
        Verdict(
            verdict="slow_everywhere",
            severity=WARNING,
            run=run,
            slowdown_ratio=ratio,
            lost_share=lost,
            evidence=f"the median rank's own time is {wording.seconds(now.own)} a step, in the past hours it was "
            f"{wording.seconds(before.own)} ({wording.times(ratio)}); the whole run is slow, no single rank",
            impact=f"a step takes {wording.seconds(now.step)} instead of {wording.seconds(before.step)}",
        )
    ]


def slow_transport(run: str, now: Level | None, before: Level | None, policy: Policy) -> list[Verdict]:
    """Even the rank that waits least waits longer than it used to, by a fifth of the step: the network is slow."""
    if now is None or before is None or before.step <= 0:
        return []
    grown = now.least_wait - before.least_wait
    if grown <= (policy.regression_ratio - 1) * before.step:
        return []
    return [
        Verdict(
            verdict="slow_transport",
            severity=WARNING,
            run=run,
            lost_share=grown / now.step if now.step > 0 else None,
            evidence=f"even the slowest rank waits {wording.seconds(now.least_wait)} a step in collectives, in the "
            f"past hours it was {wording.seconds(before.least_wait)}",
            impact=f"a step takes {wording.seconds(now.step)} instead of {wording.seconds(before.step)}",
        )
    ]
