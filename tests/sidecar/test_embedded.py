"""The policy without a Prometheus: whose runs it judges, and what it tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from facts import gpu_facts, identity, recent, totals, view
from fakes import FakeClock
from straggler.detect.policy import DEFAULT
from straggler.join.view import RankView
from straggler.model.rank import RankState
from straggler.sidecar.alerts import Alert
from straggler.sidecar.embedded import EmbeddedPolicy


class Receiver:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Sequence[Alert]] = []

    def notify(self, alerts: Sequence[Alert]) -> None:
        """Take the alerts."""
        self.told.append(alerts)


class Node:
    """An embedded policy that looks at its ranks every five seconds."""

    def __init__(self, **options: Any) -> None:
        self.clock = FakeClock()
        self.receiver = Receiver()
        self.policy = EmbeddedPolicy(DEFAULT, self.clock, self.receiver, **options)

    def watch(self, seconds: float, views: Sequence[RankView]) -> tuple[Alert, ...]:
        """Look at the same ranks for so long; gives what the last look said."""
        alerts: tuple[Alert, ...] = ()
        for _ in range(int(seconds / 5)):
            self.clock.advance(5)
            alerts = self.policy.observe(views)
        return alerts


def job(slow: int | None = None, count: int = 8, world: int | None = 8, **changes: Any) -> list[RankView]:
    """Ranks of one run, one of them at 47 ms of own time where the others take 34; the step is 57 ms."""
    return [
        view(
            number,
            gpu=gpu_facts(number),
            identity=identity(number, world_size=world, **changes),
            recent=recent(own=0.047 if number == slow else 0.034, step=0.057 if slow is not None else 0.044),
        )
        for number in range(count)
    ]


def names(alerts: Sequence[Alert]) -> list[tuple[str, str, bool]]:
    """Alert, severity, and whether it fires."""
    return [(alert.labels["alertname"], alert.labels["severity"], alert.firing) for alert in alerts]


def test_straggler_of_a_whole_run() -> None:
    """After a minute the warning fires, after two the critical one: with where, how much, and what to do."""
    node = Node(labels={"cluster": "c1"}, links={"runbook": "https://runbooks", "dashboard": "https://grafana/"})

    assert node.watch(60, job(slow=2)) == ()
    assert names(node.watch(5, job(slow=2))) == [("TrainingStraggler", "warning", True)]
    warning, critical = node.watch(60, job(slow=2))
    assert critical.labels["severity"] == "critical"
    assert warning.labels == {
        "alertname": "TrainingStraggler",
        "severity": "warning",
        "team": "infrastructure",
        "verdict": "straggling_rank",
        "cluster": "c1",
        "run": "r",
        "peer_group": "0",
        "rank": "2",
        "rank_node": "n1",
    }
    assert warning.annotations["summary"] == "r waits for rank 2: 1.38x its peers' own time"
    assert warning.annotations["description"].startswith(
        "Rank 2, node n1, GPU 2, GPU-00000000-0000-0000-0000-000000000002: own time 47.0 ms a step (1.38 x)"
    )
    assert warning.annotations["impact"] == "7 GPUs wait for it, 23 % of each step is lost."
    assert warning.annotations["next_step"].startswith("Run `straggler top` on n1")
    assert warning.annotations["runbook_url"] == "https://runbooks/TrainingStraggler"
    assert warning.annotations["dashboard_url"] == (
        "https://grafana/d/straggler-rank?var-run=r&var-peer_group=0&var-rank=2"
    )
    assert warning.starts_at == node.clock.time() - 60


def test_healthy_run_is_silent() -> None:
    """Twenty minutes without a straggler tell nothing."""
    node = Node()

    assert node.watch(1200, job()) == ()
    assert all(not alerts for alerts in node.receiver.told)


def test_resolved_after_five_minutes() -> None:
    """A cured rank is resolved once, five minutes after it was last slow."""
    node = Node()
    node.watch(200, job(slow=2))

    assert names(node.watch(295, job())) == [
        ("TrainingStraggler", "warning", True),
        ("TrainingStraggler", "critical", True),
    ]
    assert names(node.watch(5, job())) == [
        ("TrainingStraggler", "warning", False),
        ("TrainingStraggler", "critical", False),
    ]
    assert node.watch(5, job()) == ()


@pytest.mark.parametrize(
    ("views", "reason"),
    [
        (lambda: job(slow=2, world=16), "8 of its 16 ranks are on this node"),
        (lambda: job(slow=2, world=None), "its world size is unknown"),
        (lambda: job(slow=2, world=16, local_world_size=8), "8 of its 16 ranks are on this node"),
    ],
    ids=["larger", "unknown", "larger by the launcher"],
)
def test_run_beyond_the_node_is_left_to_prometheus(views: Callable[[], list[RankView]], reason: str) -> None:
    """A run with ranks elsewhere is not judged, and the reason can be asked for."""
    node = Node()

    assert node.watch(600, views()) == ()
    assert node.policy.elsewhere == {"r": reason}


def test_launcher_says_that_all_are_local() -> None:
    """Where the launcher started all ranks here, one that never reported is missed."""
    node = Node()
    found = node.watch(300, job(count=7, local_world_size=8))

    assert names(found) == [("TrainingRankMissing", "warning", True)]
    assert node.policy.elsewhere == {}


def test_rank_that_dies_is_missed() -> None:
    """A run that was whole stays so: a crashed rank is an alert, not a rank elsewhere; forgotten, it is missing."""
    node = Node()
    ranks = job()
    node.watch(30, ranks)
    ranks[5] = view(5, state=RankState.CRASHED, recent=None, identity=identity(5))
    (alert,) = node.watch(40, ranks)

    assert alert.labels["alertname"] == "TrainingRankCrashed"
    assert "rank" not in alert.labels
    assert alert.annotations["summary"] == "Training r lost rank 5: the others wait in vain"
    assert node.policy.elsewhere == {}
    assert ("TrainingRankMissing", "warning", True) in names(node.watch(300, ranks[:5] + ranks[6:]))


def test_run_that_grows_beyond_the_node() -> None:
    """When its world becomes larger than what is here, the run is no longer judged."""
    node = Node()
    node.watch(30, job())
    node.watch(5, job(world=16))

    assert node.policy.elsewhere == {"r": "8 of its 16 ranks are on this node"}


def test_hang_silences_nothing_for_alertmanager() -> None:
    """Alertmanager is told everything; inhibiting is its own work."""
    node = Node()
    node.watch(200, job(slow=2))
    stuck = [
        view(
            number,
            identity=identity(number, world_size=8),
            recent=recent(own=0.047 if number == 2 else 0.034, step=0.057),
            state=RankState.HUNG,
            since_progress_seconds=130.0,
            totals=totals(arrivals=199 if number == 6 else 200),
        )
        for number in range(8)
    ]
    found = node.watch(5, stuck)

    assert {name for name, _, _ in names(found)} == {"TrainingHung", "TrainingStraggler"}
    hang = next(alert for alert in found if alert.labels["alertname"] == "TrainingHung")
    assert "rank" not in hang.labels
    assert hang.annotations["description"].startswith("Rank 6, node n1: no step for 2.2 min on 8 living ranks")


def test_two_runs_on_one_node() -> None:
    """Each run is judged by itself."""
    node = Node()
    other = [view(number, identity=identity(number, run="s", world_size=2)) for number in range(2)]

    assert {alert.labels["run"] for alert in node.watch(70, [*job(slow=2), *other])} == {"r"}


def test_notifier_is_told_at_each_look() -> None:
    """Whoever delivers knows the whole state at any time."""
    node = Node()
    node.watch(100, job(slow=2))

    assert len(node.receiver.told) == 20
    assert names(node.receiver.told[-1]) == [("TrainingStraggler", "warning", True)]
