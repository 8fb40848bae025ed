"""The embedded alerts are called, and go to whom, the rules say."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from straggler.detect.verdict import INFO, SUBJECTS, WARNING, Verdict
from straggler.sidecar.alert_texts import alert_text

RULES = Path(__file__).parents[2] / "rules" / "alerts"
ONLY_PROMETHEUS = {"StragglerExporterDown"}
"""A sidecar that is down cannot say so."""
REASONS = {"TrainingSlowTransport": "sockets"}
"""What tells the alert from another one of the same verdict and severity."""


def shipped() -> list[tuple[str, str, str, str]]:
    """Verdict, severity, alert and team of each shipped rule."""
    rules = [
        rule
        for file in sorted(RULES.glob("*.yaml"))
        for group in yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
    ]
    return [
        (rule["labels"]["verdict"], rule["labels"]["severity"], rule["alert"], rule["labels"]["team"])
        for rule in rules
        if rule["alert"] not in ONLY_PROMETHEUS
    ]


@pytest.mark.parametrize(("verdict", "severity", "name", "team"), shipped())
def test_same_name_and_team_as_the_rule(verdict: str, severity: str, name: str, team: str) -> None:
    """For every shipped rule the embedded alert of its verdict has the rule's name and team."""
    text = alert_text(Verdict(verdict=verdict, severity=severity, run="r", reason=REASONS.get(name, "")))

    assert (text.name, text.team) == (name, team)


@pytest.mark.parametrize(
    ("alert", "verdict", "part"), [("TrainingRankCrashed", "crash", "cause"), ("TrainingHung", "hang", "next_step")]
)
def test_same_advice_as_the_rule(alert: str, verdict: str, part: str) -> None:
    """What needs no query is said in the same words: the embedded crash denied that exceptions cause one."""
    groups = yaml.safe_load((RULES / "stopped.yaml").read_text(encoding="utf-8"))["groups"]
    rule = next(rule for group in groups for rule in group["rules"] if rule["alert"] == alert)
    text = alert_text(Verdict(verdict=verdict, severity="critical", run="r"))

    assert getattr(text, part) == rule["annotations"][part]


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("severity", [WARNING, INFO])
def test_texts_are_complete(name: str, severity: str) -> None:
    """Every verdict has all texts, and each can be filled."""
    text = alert_text(Verdict(verdict=name, severity=severity, run="r"))
    facts = dict.fromkeys(("run", "rank", "node", "peer_group", "ratio", "lost", "source", "reason"), "x")

    for part in (text.summary, text.cause, text.next_step):
        assert part.format(**facts)
