"""The runs that are drawn and tested."""

from __future__ import annotations

from dashboards.history import Course
from straggler.simulate.scenario import Fault, Scenario, Work

WORK = Work(
    data_seconds=0.06,
    forward_seconds=0.55,
    backward_seconds=1.05,
    all_reduce_seconds=0.22,
    optimizer_seconds=0.09,
)
"""A step of about two seconds, as a model of some ten billion parameters has on H100s."""


def _scenario(run: str, ranks: int, fault: Fault | None = None) -> Scenario:
    return Scenario(run=run, ranks=ranks, work=WORK, jitter=0.008, fault=fault or Fault())


def _slow(rank: int, factor: float) -> Fault:
    return Fault(name="slow-rank", rank=rank, factor=factor)


def straggler(minutes: float) -> Course:
    """Sixteen ranks on two nodes; the GPU of rank 5 gets too hot and works 1.35 times as long."""
    return Course(
        scenario=_scenario("aurora-13b", 16, _slow(5, 1.38)),
        cluster="eu-west",
        minutes=minutes,
        trouble="thermal",
        trouble_minutes=34,
        restart_minutes=minutes * 0.75,
    )


def healthy(minutes: float, cluster: str = "eu-west") -> Course:
    """Sixteen ranks on two nodes, all well."""
    return Course(scenario=_scenario("borealis-7b", 16), cluster=cluster, minutes=minutes)


def large(minutes: float) -> Course:
    """512 ranks on 64 nodes; one of them works 1.25 times as long."""
    return Course(
        scenario=_scenario("colossus-70b", 512, _slow(137, 1.28)),
        cluster="us-east",
        minutes=minutes,
        scrape_seconds=60,
        trouble="thermal",
        trouble_minutes=25,
    )


GIANT = {"run": "giant-175b", "rank": "700"}


def giant(minutes: float) -> Course:
    """1,024 ranks, as many as a scenario may have."""
    return Course(
        scenario=_scenario(GIANT["run"], 1024, _slow(int(GIANT["rank"]), 1.3)),
        cluster="us-east",
        minutes=minutes,
        scrape_seconds=60,
        trouble="thermal",
        trouble_minutes=minutes / 2,
    )


def crowd() -> Course:
    """320 ranks for a few minutes: what a dashboard does with more ranks than lines fit on it."""
    return Course(
        scenario=_scenario("crowd-30b", 320, _slow(200, 1.3)),
        cluster="us-east",
        minutes=9,
        scrape_seconds=60,
        trouble="thermal",
        trouble_minutes=7,
    )


def blind() -> Course:
    """A small run whose exporters do not see everything."""
    return _small("blind")


def troubled() -> list[Course]:
    """Small runs with which everything that a dashboard can say happens: a crash, unseen ranks, blind exporters."""
    return [_small("crash"), _small("unseen"), blind()]


def _small(trouble: str) -> Course:
    return Course(
        scenario=_scenario(f"{trouble}-1b", 8),
        cluster="lab",
        per_node=4,
        minutes=20,
        trouble=trouble,
        trouble_minutes=8,
    )
