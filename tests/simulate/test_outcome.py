"""What a scenario deserves."""

from __future__ import annotations

from straggler.simulate.outcome import decide
from straggler.simulate.scenario import Fault, Scenario
from straggler.simulate.webhook import Notice

S = 1_000_000_000
SLOW = Scenario(fault=Fault(name="slow-rank", rank=2, factor=1.5))


def notice(name: str, rank: str, at_seconds: float, status: str = "firing") -> Notice:
    """One alert at the webhook."""
    return Notice(
        status=status, labels={"alertname": name, "rank": rank}, annotations={}, received_ns=round(at_seconds * S)
    )


def outcome_problem(*notices: Notice, slow_since: float | None = 10, now: float = 20) -> str | None:
    """Why the run is not as it should be, ``None`` if it is; ``too early`` if it cannot be said."""
    onset_ns = None if slow_since is None else round(slow_since * S)
    outcome = decide(SLOW, notices, onset_ns=onset_ns, now_ns=round(now * S), patience_ns=60 * S)
    return "too early" if outcome is None else outcome.problem


def test_right_rank() -> None:
    """The alert that names the slow rank ends the run well, whatever else came after the rank became slow."""
    assert (
        outcome_problem(notice("TrainingUtilizationDivergence", "", 17), notice("TrainingStraggler", "2", 18)) is None
    )


def test_wrong_rank() -> None:
    """An alert that names somebody else does not."""
    assert outcome_problem(notice("TrainingStraggler", "3", 18)) == "TrainingStraggler names rank 3, but it is 2"


def test_false_alarm() -> None:
    """Nothing may fire while nobody is slow: not even the alert that would be right later."""
    assert "although nothing is wrong" in str(outcome_problem(notice("TrainingStraggler", "2", 9)))
    assert "although nothing is wrong" in str(outcome_problem(notice("TrainingHung", "", 9), slow_since=None))


def test_resolved_is_no_alarm() -> None:
    """The end of an alert says nothing about this run."""
    assert outcome_problem(notice("TrainingStraggler", "3", 18, status="resolved")) == "too early"


def test_patience_ends() -> None:
    """No alert is a problem only after the time that was given, counted from the onset."""
    assert outcome_problem(now=69) == "too early"
    assert outcome_problem(now=71) == "no TrainingStraggler within 60 s after the onset"
    assert outcome_problem(slow_since=None, now=1000) == "too early"
