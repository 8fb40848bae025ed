"""The runs that are drawn and tested."""

from __future__ import annotations

from dataclasses import replace

from dashboards.history import Course
from straggler.simulate.scenario import Fault, Scenario, Work

WORK = Work(
    data_seconds=0.06,
    forward_seconds=0.54,
    backward_seconds=1.02,
    all_reduce_seconds=0.22,
    optimizer_seconds=0.09,
    host_seconds=0.03,
    h2d_seconds=0.02,
)
"""A step of about two seconds, as a model of some ten billion parameters has on H100s."""

TOKENS = 10_240
"""Per rank and step: some 40 % of an H100's peak with that model."""


def _scenario(run: str, ranks: int, fault: Fault | None = None) -> Scenario:
    return Scenario(run=run, ranks=ranks, work=WORK, jitter=0.008, tokens=TOKENS, fault=fault or Fault())


def _slow(rank: int, factor: float, name: str = "thermal") -> Fault:
    return Fault(name=name, rank=rank, factor=factor)


def straggler(minutes: float) -> Course:
    """Sixteen ranks on four nodes; the GPU of rank 5 gets too hot and works 1.35 times as long."""
    return Course(
        scenario=_scenario("aurora-13b", 16, _slow(5, 1.38)),
        cluster="eu-west",
        per_node=4,
        minutes=minutes,
        trouble_minutes=34,
        restart_minutes=minutes * 0.75,
    )


def healthy(minutes: float, cluster: str = "eu-west") -> Course:
    """Sixteen ranks on four nodes, all well."""
    return Course(scenario=_scenario("borealis-7b", 16), cluster=cluster, per_node=4, minutes=minutes)


def pipeline(minutes: float) -> Course:
    """32 ranks in four pipeline stages; other processes take the CPU from rank 21, in the third."""
    return Course(
        scenario=_scenario("dorado-34b", 32, _slow(21, 17, "host-cpu")),
        cluster="eu-west",
        stages=4,
        minutes=minutes,
        trouble_minutes=20,
    )


def large(minutes: float) -> Course:
    """512 ranks on 64 nodes; the power brake holds one of them down, to 1.25 times as long."""
    return Course(
        scenario=_scenario("colossus-70b", 512, _slow(137, 1.28, "power-brake")),
        cluster="us-east",
        minutes=minutes,
        scrape_seconds=60,
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
        trouble_minutes=minutes / 2,
    )


def crowd() -> Course:
    """320 ranks for a few minutes: what a dashboard does with more ranks than lines fit on it."""
    return Course(
        scenario=_scenario("crowd-30b", 320, _slow(200, 1.3)),
        cluster="us-east",
        minutes=9,
        scrape_seconds=60,
        trouble_minutes=7,
    )


def blind() -> Course:
    """A small run whose exporters do not see everything."""
    return _small("blind")


def cable() -> Course:
    """A small run over a bad cable, for long enough to alert."""
    return replace(_small("cable", _slow(2, 4, "bad-cable")), minutes=30, trouble_minutes=18)


def troubled() -> list[Course]:
    """Small runs with all other trouble: a crash, unseen ranks, blind exporters, a bad cable."""
    return [_small("crash"), _small("unseen"), blind(), cable()]


def _small(trouble: str, fault: Fault | None = None) -> Course:
    return Course(
        scenario=_scenario(f"{trouble}-1b", 8, fault),
        cluster="lab",
        per_node=4,
        minutes=20,
        trouble=trouble,
        trouble_minutes=8,
    )
