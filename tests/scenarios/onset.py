"""When a scenario's trouble begins, and how soon the policy could tell it at best."""

from __future__ import annotations

from scenarios.vocabulary import (
    BadPort,
    Everywhere,
    Faulty,
    Gpus,
    Hang,
    Kill,
    Loading,
    NarrowLink,
    Scenario,
    Slow,
    Throttled,
    Trouble,
    Unmeasured,
    Unseen,
)
from straggler.detect.persistence import patience
from straggler.detect.policy import DEFAULT
from straggler.detect.verdict import WARNING, Verdict
from straggler.wire.recent import WINDOW_SECONDS, WINDOW_STEPS

_KINDS: dict[str, tuple[type[Trouble], ...]] = {
    "straggling_rank": (Slow,),
    "straggling_node": (Slow,),
    "heavy_stage": (Slow,),
    "input_stall": (Loading,),
    "slow_everywhere": (Everywhere,),
    "slow_transport": (Everywhere,),
    "hang": (Hang,),
    "crash": (Kill,),
    "missing_rank": (Unseen,),
    "blind": (Unseen, Unmeasured, Gpus),
    "throttled_gpu": (Throttled,),
    "degraded_gpu": (Faulty,),
    "degraded_link": (NarrowLink, BadPort),
    "utilization_divergence": (Gpus,),
}


def moment_of(scenario: Scenario, what: tuple[str, str]) -> tuple[float, float]:
    """When the trouble behind a finding begins, and the least time until it can be told.

    Args:
        scenario: the run.
        what: verdict, and what it is about.

    Returns:
        Both in seconds; the first since the run's first step. Of the least time: the window that has to show it, where
        that is more than nothing, and the policy's patience on top.
    """
    verdict, about = what
    causes = [trouble for trouble in scenario.troubles if isinstance(trouble, _KINDS.get(verdict, ()))]
    named = [cause for cause in causes if isinstance(cause, Slow) and about.isdigit() and int(about) in cause.ranks]
    cause = (named or causes or [None])[0]
    begins = 60 * float(getattr(cause, "begins", getattr(cause, "at", 0.0)))
    hold = patience(Verdict(verdict=verdict, severity=WARNING, run="r"), DEFAULT).hold
    step = scenario.own_seconds / (1 - scenario.exchange_share)
    if isinstance(cause, Slow) and verdict.startswith("straggling"):
        slow_step = step + scenario.own_seconds * (cause.factor - 1)
        window = max(WINDOW_STEPS * slow_step, WINDOW_SECONDS)
        share = max(0.5, (DEFAULT.warning_ratio - 1) / (cause.factor - 1)) if begins else 1.0
        return begins, share * window + hold
    if verdict == "hang":
        return begins, max(DEFAULT.hang_min_seconds, DEFAULT.hang_steps * step)
    return begins, hold
