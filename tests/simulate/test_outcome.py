"""What a scenario deserves."""

from __future__ import annotations

from straggler.detect.cause_text import NAMES
from straggler.simulate.faults import KINDS
from straggler.simulate.outcome import decide, named_cause
from straggler.simulate.scenario import Fault, Scenario
from straggler.simulate.webhook import Notice

S = 1_000_000_000
SLOW = Scenario(fault=Fault(name="slow-rank", rank=2, factor=1.5))
BAD_CABLE = Scenario(nodes=2, fault=Fault(name="bad-cable", rank=6, factor=4))
FROZEN = Scenario(fault=Fault(name="dcgm-frozen"))


def notice(
    name: str,
    rank: str,
    at_seconds: float,
    status: str = "firing",
    *,
    cause: str = "Heat: SM clock 1,155 MHz",
    **more: str,
) -> Notice:
    """One alert at the webhook."""
    return Notice(
        status=status,
        labels={"alertname": name, "rank": rank, **more},
        annotations={"cause": cause},
        received_ns=round(at_seconds * S),
    )


def outcome_problem(
    *notices: Notice, onset: float | None = 10, now: float = 20, scenario: Scenario = SLOW
) -> str | None:
    """Why the run is not as it should be, ``None`` if it is; ``too early`` if it cannot be said."""
    onset_ns = None if onset is None else round(onset * S)
    outcome = decide(scenario, notices, onset_ns=onset_ns, now_ns=round(now * S), patience_ns=60 * S)
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
    assert "although nothing is wrong" in str(outcome_problem(notice("TrainingHung", "", 9), onset=None))


def test_resolved_is_no_alarm() -> None:
    """The end of an alert says nothing about this run."""
    assert outcome_problem(notice("TrainingStraggler", "3", 18, status="resolved")) == "too early"


def test_patience_ends() -> None:
    """No alert is a problem only after the time that was given, counted from the onset."""
    assert outcome_problem(now=69) == "too early"
    assert outcome_problem(now=71) == "no TrainingStraggler within 60 s after the onset"
    assert outcome_problem(onset=None, now=1000) == "too early"


def test_wrong_cause() -> None:
    """The right rank for a wrong reason sends people to the wrong place: it is as wrong as another rank."""
    data = notice("TrainingStraggler", "2", 18, cause="Data loading: waits for its next batch")
    unknown = notice("TrainingStraggler", "2", 18, cause="Unknown: no phase stands out")
    silent = notice("TrainingStraggler", "2", 18, cause="")

    assert outcome_problem(data) == "TrainingStraggler names data_loading cause, but it is thermal"
    assert outcome_problem(unknown) == "TrainingStraggler names unknown cause, but it is thermal"
    assert outcome_problem(silent) == "TrainingStraggler names no cause, but it is thermal"


def test_causes_are_those_that_alerts_can_name() -> None:
    """Each fault asks for a cause that some alert can give."""
    for name, words in NAMES.items():
        assert named_cause(notice("TrainingStraggler", "2", 18, cause=f"{words}: evidence")) == name
    assert {kind.cause for kind in KINDS.values()} - {"", "link", "transport"} <= NAMES.keys()


def test_bad_cable_names_the_node_and_no_rank() -> None:
    """A fault of the network is told of the node that has it; a rank that is blamed for it is a false alarm."""
    right = notice("TrainingLinkDegraded", "", 18, rank_node="demo-node-b", verdict="degraded_link")
    other = notice("TrainingLinkDegraded", "", 18, rank_node="demo-node-a", verdict="degraded_link")
    blamed = notice("TrainingStraggler", "6", 17)

    assert outcome_problem(right, scenario=BAD_CABLE) is None
    assert outcome_problem(other, scenario=BAD_CABLE) == (
        "TrainingLinkDegraded names rank_node demo-node-a, but it is demo-node-b"
    )
    assert outcome_problem(blamed, right, scenario=BAD_CABLE) == (
        "TrainingStraggler names rank 6, but no rank is slower than its peers"
    )


def test_frozen_page_is_the_sources_fault() -> None:
    """A page that stands still is told of the source, and of nobody who trains."""
    right = notice("StragglerExporterBlind", "", 18, source="dcgm", reason="stale", cause="As the exporter gives it")

    assert outcome_problem(right, scenario=FROZEN) is None
    assert "no rank is slower" in str(outcome_problem(notice("TrainingStraggler", "2", 18), scenario=FROZEN))
    assert outcome_problem(notice("StragglerExporterBlind", "", 18, source="ranks"), scenario=FROZEN) == (
        "StragglerExporterBlind names source ranks, but it is dcgm"
    )
