"""The rules and the embedded policy are one policy said twice: the same ranks, seen by both, give the same alerts.

The same views go through the real metric families into promtool's evaluation of the shipped rules, and through
``EmbeddedPolicy``. What fires must be the same, label for label.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from facts import gpu_facts, identity, totals, view
from fakes import FakeClock
from servers import promtool
from straggler.detect.policy import DEFAULT
from straggler.join.view import RankView
from straggler.metrics.book import MetricBook
from straggler.metrics.families import add_gpus, add_network, add_ranks
from straggler.metrics.self_metrics import ExporterStatus, add_exporter
from straggler.model.nccl import NcclFacts
from straggler.model.network import PortFacts, PortKey
from straggler.model.rank import RankState
from straggler.sidecar.alerts import Alert
from straggler.sidecar.embedded import EmbeddedPolicy
from straggler.wire.recent import Recent

RULES = Path(__file__).parents[2] / "rules"
INTERVAL = 15
END = 25 * 60
LOOKS = (5 * 60, 24 * 60)
"""When both are asked: after what pages has fired, and after what is only a ticket has too."""

Views = Callable[[float], list[RankView]]


def ranks(own: Sequence[float], **options: Any) -> Views:
    """Ranks that step on and on with these mean own times."""

    def views(t: float) -> list[RankView]:
        return [rank(t, number, own, **options) for number in range(len(own))]

    return views


def rank(
    t: float,
    number: int,
    own: Sequence[float],
    *,
    medians: Sequence[float] | None = None,
    groups: Sequence[str] | None = None,
    per_node: int = 8,
    rest: float = 0.2,
    least_wait: float | None = None,
    steps: int = 32,
    data: float = 0.01,
    **facts: Any,
) -> RankView:
    """One rank after ``t`` seconds of steps that last as long as the slowest rank's own time and ``rest``."""
    wall = max(own) + rest
    done = int(t / wall) + 100
    mine = own[number]
    recent = Recent(
        steps,
        wall,
        mine,
        medians[number] if medians else mine,
        wall - mine,
        wall - mine if least_wait is None else least_wait,
    )
    phases = {"data": done * data, "wait": done * (wall - mine)}
    usual: dict[str, Any] = {
        "identity": identity(
            number, world_size=len(own), node=f"n{number // per_node}", peer_group=groups[number] if groups else "0"
        ),
        "totals": totals(steps=done, step_seconds=done * wall, phase_seconds=phases, arrivals=done),
        "recent": recent,
        "step": done,
    }
    return view(number, **(usual | facts))


def hang(*, ahead: int) -> Views:
    """All ranks of eight stop after a minute; all but rank 5 arrive ``ahead`` more times."""

    def views(t: float) -> list[RankView]:
        moved = min(t, 60.0)
        found = []
        for number in range(8):
            here = rank(moved, number, [1.0] * 8)
            done = here.rank.totals.steps if here.rank.totals else 0
            silent = t - moved
            found.append(
                rank(
                    moved,
                    number,
                    [1.0] * 8,
                    state=RankState.HUNG if silent >= 120 else RankState.RUNNING,
                    since_progress_seconds=silent,
                    totals=totals(steps=done, arrivals=done + (0 if number == 5 else ahead)),
                )
            )
        return found

    return views


def crash(t: float) -> list[RankView]:
    """Rank 3 of eight dies after a minute, the others wait for it."""
    moved = min(t, 60.0)
    found = []
    for number in range(8):
        dead = number == 3 and t >= 60
        changes: dict[str, Any] = {"state": RankState.CRASHED, "recent": None}
        if not dead:
            changes = {"since_progress_seconds": t - moved}
            changes["state"] = RankState.HUNG if t - moved >= 120 else RankState.RUNNING
        done = int(moved / 1.2) + 100
        arrived = totals(steps=done, arrivals=done + (0 if number == 3 else 1))
        found.append(rank(moved, number, [1.0] * 8, totals=arrived, **changes))
    return found


def everybody_gone(t: float) -> list[RankView]:
    """All ranks die together after a minute."""
    gone: dict[str, Any] = {"state": RankState.CRASHED, "recent": None} if t >= 60 else {}
    return [rank(min(t, 60.0), number, [1.0] * 8, **gone) for number in range(8)]


def checkpoint(t: float) -> list[RankView]:
    """Rank 0 writes a checkpoint from the first minute on, the others wait in silence."""
    moved = min(t, 60.0)
    silent = t - moved
    found = [rank(moved, 0, [1.0] * 8, excluded_phase="checkpoint" if silent else None, since_progress_seconds=silent)]
    hung = RankState.HUNG if silent >= 120 else RankState.RUNNING
    return found + [rank(moved, number, [1.0] * 8, state=hung, since_progress_seconds=silent) for number in range(1, 8)]


def frozen_ring(t: float) -> list[RankView]:
    """Rank 6 falls silent after half a minute while its peers step on: its ring is frozen."""
    found = ranks([1.0] * 8)(t)
    if t >= 150:
        found[6] = rank(30.0, 6, [1.0] * 8, state=RankState.HUNG, since_progress_seconds=t - 30)
    return found


def slower_than_before(own: float, rest: float) -> Views:
    """A run that changes after three quarters of an hour."""

    def views(t: float) -> list[RankView]:
        changed = t >= 45 * 60
        return ranks([own if changed else 1.0] * 8, rest=rest if changed else 0.2)(t)

    return views


def busy(utilization: float, active: float) -> Views:
    """All GPUs report these two."""
    gpu = gpu_facts(values={"utilization_ratio": utilization, "sm_active_ratio": active})
    return ranks([1.0] * 8, gpu=gpu)


def logged(transports: Sequence[str], *, rest: float = 0.2, gdr: Sequence[float | None] = ()) -> Views:
    """Sixteen ranks on two nodes; NCCL's logs of each node say this."""

    def views(t: float) -> list[RankView]:
        found = ranks([1.0] * 16, rest=rest)(t)
        for number, view_ in enumerate(found):
            node = number // 8
            ratio = gdr[node] if gdr else None
            facts = NcclFacts(host=f"n{node}", pid=1, channels={transports[node]: 2}, gdr_ratio=ratio)
            found[number] = replace(view_, nccl=facts)
        return found

    return views


def with_ports(change: Callable[[float, PortFacts], PortFacts]) -> Views:
    """A node with four RDMA ports, of which the second changes in the course of time."""

    def views(t: float) -> list[RankView]:
        counters = {"symbol_errors_total": 7.0, "link_downs_total": 3.0, "link_recoveries_total": 3.0}
        ports = [
            PortFacts(
                key=PortKey(f"mlx5_{index}", 1),
                up=True,
                lost=False,
                rate_bytes_per_second=50e9,
                best_rate_bytes_per_second=50e9,
                counters=counters,
            )
            for index in range(4)
        ]
        ports[1] = change(t, ports[1])
        return [replace(rank, ports=tuple(ports)) for rank in ranks([1.0] * 8)(t)]

    return views


def cable_out(t: float, port: PortFacts) -> PortFacts:
    """Its link is lost after a minute."""
    return port if t < 60 else replace(port, up=False, lost=True, rate_bytes_per_second=None)


def unplugged(_: float, port: PortFacts) -> PortFacts:
    """It never had a link."""
    return replace(port, up=False, rate_bytes_per_second=None, best_rate_bytes_per_second=None)


def fallen_back(share: float) -> Callable[[float, PortFacts], PortFacts]:
    """It has this share of its speed."""
    return lambda _, port: replace(port, rate_bytes_per_second=share * 50e9)


def counting(name: str, per_second: float) -> Callable[[float, PortFacts], PortFacts]:
    """One of its counters grows."""
    return lambda t, port: replace(port, counters={**port.counters, name: 7.0 + int(per_second * t)})


def gpu_errors(t: float) -> list[RankView]:
    """The GPU of rank 3 reports an XID after a minute, that of rank 5 one that a program causes."""
    found = ranks([1.0] * 8)(t)
    for number, xid in ((3, 94), (5, 31)):
        gpu = gpu_facts(number, xid_events={xid: 2.0} if t >= 60 else {})
        found[number] = rank(t, number, [1.0] * 8, gpu=gpu)
    return found


def unmeasured(t: float) -> list[RankView]:
    """Own time of rank 1 is not measured."""
    found = ranks([1.0] * 8)(t)
    found[1] = rank(t, 1, [1.0] * 8, own_reason="cuda_graph", recent=Recent(32, 1.2, None, None, None, None))
    return found


class Case(NamedTuple):
    """What the ranks do, and what both must say at each look: alert, severity, and what it is about."""

    views: Views
    early: set[tuple[str, ...]]
    late: set[tuple[str, ...]]
    shift: float = 0.0
    """Seconds by which the looks are later."""


def both(*alerts: tuple[str, ...]) -> tuple[set[tuple[str, ...]], set[tuple[str, ...]]]:
    """The same at both looks."""
    return set(alerts), set(alerts)


def only_late(*alerts: tuple[str, ...]) -> tuple[set[tuple[str, ...]], set[tuple[str, ...]]]:
    """Nothing at the first look."""
    return set(), set(alerts)


def with_slow(count: int, *slow: int, factor: float = 1.15) -> list[float]:
    """Own times of ``count`` ranks, these slow."""
    return [factor if number in slow else 1.0 for number in range(count)]


STRAGGLER, NODE, LINK = "TrainingStraggler", "TrainingNodeStraggling", "TrainingLinkDegraded"
CASES: dict[str, Case] = {
    "healthy": Case(ranks([1.0, 1.01, 0.99, 1.03, 1.0, 0.98, 1.02, 1.0]), *both()),
    "9 % slow": Case(ranks(with_slow(8, 3, factor=1.09)), *both()),
    "11 % slow": Case(ranks(with_slow(8, 3, factor=1.11)), *both((STRAGGLER, "warning", "3"))),
    "25 % slow": Case(
        ranks(with_slow(8, 3, factor=1.25)), *both((STRAGGLER, "warning", "3"), (STRAGGLER, "critical", "3"))
    ),
    "mean alone": Case(ranks(with_slow(8, 3, factor=1.4), medians=[1.0] * 8), *both()),
    "31 steps": Case(ranks(with_slow(8, 3, factor=1.4), steps=31), *both()),
    "tiny own time": Case(
        ranks([0.2 * own for own in with_slow(8, 3, factor=1.2)], rest=4.0, least_wait=0.0),
        *only_late(("TrainingRotatingImbalance", "warning", "")),
    ),
    "slow, but the waiting has other causes": Case(
        ranks(with_slow(8, 3), rest=0.6, least_wait=0.0), *only_late(("TrainingRotatingImbalance", "warning", ""))
    ),
    "two ranks": Case(ranks([1.0, 1.5]), *both((STRAGGLER, "warning", "1"))),
    "alone": Case(ranks([1.0]), *both()),
    "two stragglers": Case(ranks(with_slow(16, 3, 9)), *both((STRAGGLER, "warning", "3"), (STRAGGLER, "warning", "9"))),
    "slow node": Case(ranks(with_slow(16, *range(8, 16), factor=1.19)), *both((NODE, "warning", "n1"))),
    "very slow node": Case(
        ranks(with_slow(32, *range(8, 16), factor=1.3)), *both((NODE, "warning", "n1"), (NODE, "critical", "n1"))
    ),
    "most of a node": Case(
        ranks(with_slow(16, 8, 9, 10, 11)), *both(*((STRAGGLER, "warning", str(n)) for n in (8, 9, 10, 11)))
    ),
    "crowd": Case(ranks(with_slow(32, 7, 15, 23, 31)), *only_late(("TrainingManyRanksSlow", "warning", "0"))),
    "heavy stage": Case(
        ranks([1.0] * 6 + [1.63] * 2, groups=list("00112233")), *only_late(("TrainingHeavyStage", "info", "3"))
    ),
    "slow rank in a light stage": Case(
        ranks([1.0, 1.0, 1.0, 1.2, 1.25, 1.25, 1.25, 1.25], groups=list("00001111")),
        {(STRAGGLER, "warning", "3")},
        {(STRAGGLER, "warning", "3"), ("TrainingHeavyStage", "info", "1")},
    ),
    "rotating imbalance": Case(
        ranks([1.0] * 8, rest=0.5, least_wait=0.1), *only_late(("TrainingRotatingImbalance", "warning", ""))
    ),
    "waiting that peers explain": Case(ranks([1.0] * 8, rest=0.5), *both()),
    "input stall": Case(ranks([1.0] * 8, data=0.3), *only_late(("TrainingInputStall", "warning", ""))),
    "slow from the first step": Case(ranks([1.0] * 8, rest=1.5), *only_late(("TrainingSlowNetwork", "info", ""))),
    "slow everywhere": Case(
        slower_than_before(1.3, 0.2), *only_late(("TrainingSlowEverywhere", "warning", "")), shift=41 * 60
    ),
    "slow network": Case(
        slower_than_before(1.0, 0.6), *only_late(("TrainingSlowNetwork", "warning", "")), shift=41 * 60
    ),
    "sockets beside InfiniBand": Case(
        logged(["ib", "socket"]), *only_late(("TrainingSlowTransport", "warning", "sockets"))
    ),
    "sockets everywhere": Case(logged(["socket", "socket"]), *both()),
    "sockets that nobody waits for": Case(logged(["ib", "socket"], rest=0.03), *both()),
    "one node without GPUDirect RDMA": Case(
        logged(["ib", "ib"], gdr=[1.0, 0.0]), *only_late(("TrainingSlowTransport", "warning", "no_gdr"))
    ),
    "hang, one behind": Case(hang(ahead=1), *both(("TrainingHung", "critical", ""))),
    "hang, all arrived": Case(hang(ahead=0), *both(("TrainingHung", "critical", ""))),
    "long checkpoint": Case(checkpoint, *both()),
    "frozen ring": Case(frozen_ring, *both(("TrainingRankMissing", "warning", ""))),
    "crash": Case(crash, *both(("TrainingRankCrashed", "critical", ""), ("TrainingHung", "critical", ""))),
    "all gone together": Case(everybody_gone, *both()),
    "divergence": Case(busy(0.98, 0.3), *only_late(("TrainingUtilizationDivergence", "warning", ""))),
    "busy and useful": Case(busy(0.98, 0.6), *both()),
    "cable out": Case(with_ports(cable_out), *only_late((LINK, "warning", "n0"))),
    "port that nobody uses": Case(with_ports(unplugged), *both()),
    "slower link": Case(with_ports(fallen_back(0.5)), *only_late((LINK, "warning", "n0"))),
    "link as fast as it should be": Case(with_ports(fallen_back(0.95)), *both()),
    "symbol errors": Case(with_ports(counting("symbol_errors_total", 0.25)), *only_late((LINK, "warning", "n0"))),
    "few symbol errors": Case(with_ports(counting("symbol_errors_total", 0.03)), *both()),
    "flapping link": Case(with_ports(counting("link_downs_total", 0.01)), *only_late((LINK, "warning", "n0"))),
    "GPU errors": Case(gpu_errors, *both(("TrainingGpuDegraded", "warning", "3"))),
    "own time unmeasured": Case(unmeasured, *both(("StragglerExporterBlind", "warning", "cuda_graph"))),
}


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_rules_and_embedded_policy_agree(name: str, tmp_path: Path) -> None:
    """What fires, with which labels, is the same in Prometheus and without it, and is what the case deserves."""
    case = CASES[name]
    looks = [look + case.shift for look in LOOKS]
    told = embedded(case.views, looks, END + case.shift)

    assert [summary(alerts) for alerts in told] == [case.early, case.late]
    promtool("test", "rules", str(write_test(tmp_path, case.views, looks, told, END + case.shift)))


class Nobody:
    """A receiver that does not care."""

    def notify(self, alerts: Sequence[Alert]) -> None:
        """Take the alerts."""


def embedded(views: Views, looks: Sequence[float], end: float) -> list[list[Alert]]:
    """What the embedded policy has firing at each look."""
    clock = FakeClock()
    policy = EmbeddedPolicy(DEFAULT, clock, Nobody())
    told: list[list[Alert]] = []
    t = 0.0
    while t <= end:
        alerts = policy.observe(views(t))
        if t in looks:
            told.append([alert for alert in alerts if alert.firing])
        clock.advance(INTERVAL)
        t += INTERVAL
    return told


def summary(alerts: Sequence[Alert]) -> set[tuple[str, ...]]:
    """Alert, severity and what it is about."""
    subjects = ("rank", "rank_node", "peer_group", "reason")
    return {
        (
            alert.labels["alertname"],
            alert.labels["severity"],
            next((alert.labels[name] for name in subjects if name in alert.labels), ""),
        )
        for alert in alerts
    }


def write_test(
    directory: Path, views: Views, looks: Sequence[float], told: Sequence[Sequence[Alert]], end: float
) -> Path:
    """Write promtool's unit test: the same ranks as series, and the embedded policy's alerts as what to expect."""
    series: dict[str, list[str]] = {}
    count = int(end / INTERVAL) + 1
    for index in range(count):
        book = MetricBook()
        now = views(index * INTERVAL)
        add_ranks(book, now)
        add_gpus(book, [view.gpu for view in now if view.gpu])
        add_network(book, next((view.ports for view in now if view.ports), ()), "n0")
        add_exporter(book, ExporterStatus(), now)
        for family in book.collect():
            for sample in family.samples:
                labels = ",".join(f"{key}={json.dumps(value)}" for key, value in sample.labels.items())
                values = series.setdefault(f"{sample.name}{{{labels}}}", ["_"] * count)
                values[index] = repr(sample.value)
    expected = [
        {
            "expr": 'ALERTS{alertstate="firing"}',
            "eval_time": f"{look:.0f}s",
            "exp_samples": [
                {
                    "labels": "ALERTS{"
                    + ",".join(
                        f"{key}={json.dumps(value)}" for key, value in {**alert.labels, "alertstate": "firing"}.items()
                    )
                    + "}",
                    "value": 1,
                }
                for alert in alerts
            ],
        }
        for look, alerts in zip(looks, told, strict=True)
    ]
    test = {
        "rule_files": [str(file) for part in ("recording", "alerts") for file in sorted((RULES / part).glob("*.yaml"))],
        "evaluation_interval": f"{INTERVAL}s",
        "tests": [
            {
                "interval": f"{INTERVAL}s",
                "input_series": [{"series": name, "values": " ".join(values)} for name, values in series.items()],
                "promql_expr_test": expected,
            }
        ],
    }
    path = directory / "test.json"  # JSON is YAML
    path.write_text(json.dumps(test), encoding="utf-8")
    return path
