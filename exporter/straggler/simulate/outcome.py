"""Whether the alerts that came are those that a scenario deserves. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from straggler.simulate.scenario import Scenario
from straggler.simulate.webhook import Notice

EXPECTED_ALERT = {"slow-rank": "TrainingStraggler"}
"""By fault: the alert that names the afflicted rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended."""

    problem: str | None
    """Why it is not as it should be, in one sentence; ``None`` if it is."""
    notice: Notice | None = None
    """The alert that decided it."""


def decide(
    scenario: Scenario,
    notices: Sequence[Notice],
    *,
    slow_since_ns: int | None,
    now_ns: int,
    patience_ns: int,
) -> Outcome | None:
    """Tell whether it is clear yet how the run ends.

    Args:
        scenario: what was acted out.
        notices: all that came so far, oldest first.
        slow_since_ns: when the first slow step began; ``None`` before it.
        now_ns: on the same clock.
        patience_ns: how long after the first slow step the alert may come.

    Returns:
        ``None`` if it is too early to say. A healthy run is never clear by itself: its outcome is that time is up.
    """
    for notice in notices:
        if notice.status != "firing":
            continue
        if slow_since_ns is None or notice.received_ns < slow_since_ns:
            return Outcome(problem=f"{notice.name} fired although no rank is slow", notice=notice)
        if notice.name == EXPECTED_ALERT[scenario.fault.name]:
            named = notice.labels.get("rank")
            if named == str(scenario.fault.rank):
                return Outcome(problem=None, notice=notice)
            return Outcome(
                problem=f"{notice.name} names rank {named}, but rank {scenario.fault.rank} is slow", notice=notice
            )
    if slow_since_ns is not None and now_ns - slow_since_ns > patience_ns:
        return Outcome(problem=f"no alert within {patience_ns / 1e9:.0f} s after the first slow step")
    return None
