"""Whether the alerts that came are those that a scenario deserves. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from straggler.detect.cause_text import NAMES
from straggler.simulate.faults import Hits
from straggler.simulate.scenario import Scenario
from straggler.simulate.stage import node_name
from straggler.simulate.webhook import Notice

BLAMING = frozenset({"TrainingStraggler", "TrainingNodeStraggling"})
"""Alerts that say that others wait for somebody."""


_BY_VERDICT = {"degraded_link": "link", "slow_transport": "transport"}
"""Alerts that are a cause themselves."""


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
    onset_ns: int | None,
    now_ns: int,
    patience_ns: int,
) -> Outcome | None:
    """Tell whether it is clear yet how the run ends.

    Args:
        scenario: what was acted out.
        notices: all that came so far, oldest first.
        onset_ns: when the first step under the fault began; ``None`` before it.
        now_ns: on the same clock.
        patience_ns: how long after the onset the alert may come.

    Returns:
        ``None`` if it is too early to say. A healthy run is never clear by itself: its outcome is that time is up.
    """
    for notice in notices:
        if notice.status != "firing":
            continue
        if onset_ns is None or notice.received_ns < onset_ns:
            return Outcome(problem=f"{notice.name} fired although nothing is wrong", notice=notice)
        if problem := _mistake(scenario, notice):
            return Outcome(problem=problem, notice=notice)
        if notice.name == scenario.fault.kind.alert:
            return Outcome(problem=None, notice=notice)
    if onset_ns is not None and now_ns - onset_ns > patience_ns:
        return Outcome(problem=f"no {scenario.fault.kind.alert} within {patience_ns / 1e9:.0f} s after the onset")
    return None


def _mistake(scenario: Scenario, notice: Notice) -> str | None:
    """What is wrong with an alert under this fault."""
    fault = scenario.fault
    if notice.name in BLAMING and fault.kind.hits is not Hits.RANK:
        return f"{notice.name} names rank {notice.labels.get('rank')}, but no rank is slower than its peers"
    if notice.name != fault.kind.alert:
        return None
    for label, wanted in expected_labels(scenario).items():
        if (named := notice.labels.get(label, "")) != wanted:
            return f"{notice.name} names {label} {named or 'of nobody'}, but it is {wanted}"
    if fault.kind.cause and (cause := named_cause(notice)) != fault.kind.cause:
        return f"{notice.name} names {cause or 'no'} cause, but it is {fault.kind.cause}"
    return None


def named_cause(notice: Notice) -> str:
    """The cause that an alert gives, by its name; ``""`` if it gives none, as alerts about the monitoring do."""
    if cause := _BY_VERDICT.get(notice.labels.get("verdict", "")):
        return cause
    text = notice.annotations.get("cause", "")
    return next((name for name, words in NAMES.items() if text.startswith(words)), "")


def expected_labels(scenario: Scenario) -> dict[str, str]:
    """What the alert must name."""
    fault = scenario.fault
    if fault.kind.hits is Hits.RANK:
        return {"rank": str(fault.rank)}
    if fault.kind.symptoms.over_sockets:
        return {"reason": "sockets"}  # of the whole run: its ranks must agree on a network
    if fault.kind.hits is Hits.EXCHANGE:
        return {"rank_node": node_name(scenario, scenario.node_of(fault.rank))}
    return {"source": "dcgm"}
