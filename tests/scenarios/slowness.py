"""Runs with slow hardware: ranks and nodes that must be named."""

from __future__ import annotations

from scenarios.vocabulary import (
    Expect,
    Faulty,
    Gap,
    Gpus,
    NarrowLink,
    Pause,
    Scenario,
    SidecarRestart,
    Skew,
    Slow,
    Throttled,
    Uneven,
)

RANK, NODE = "straggling_rank", "straggling_node"


def _rank(rank: int, *severities: str) -> tuple[Expect, ...]:
    return tuple(Expect(RANK, severity, str(rank)) for severity in severities)


def _both(rank: int) -> tuple[Expect, ...]:
    return _rank(rank, "warning", "critical")


SLOWNESS: tuple[Scenario, ...] = (
    Scenario(name="13 % slow", troubles=(Slow(ranks=(3,), factor=1.13),), expect=_rank(3, "warning"), paged=False),
    Scenario(name="30 % slow", troubles=(Slow(ranks=(3,), factor=1.30),), expect=_both(3)),
    Scenario(
        name="30 % slow from the first step", troubles=(Slow(ranks=(0,), factor=1.30, begins=0.0),), expect=_both(0)
    ),
    Scenario(name="three times as slow", troubles=(Slow(ranks=(7,), factor=3.0),), expect=_both(7)),
    Scenario(name="slow, 8 % jitter", jitter=0.08, troubles=(Slow(ranks=(1,), factor=1.35),), expect=_both(1)),
    Scenario(name="slow among 32 on 4 nodes", ranks=32, troubles=(Slow(ranks=(21,), factor=1.30),), expect=_both(21)),
    Scenario(
        name="slow one of two ranks",
        ranks=2,
        troubles=(Slow(ranks=(1,), factor=1.35),),
        expect=_rank(1, "warning"),
        paged=False,
    ),
    Scenario(name="slow one of three ranks", ranks=3, troubles=(Slow(ranks=(2,), factor=1.35),), expect=_both(2)),
    Scenario(
        name="slow, 10 ms steps",
        ranks=4,
        own_seconds=0.008,
        minutes=14.0,
        troubles=(Slow(ranks=(2,), factor=1.30),),
        expect=_both(2),
    ),
    Scenario(
        name="slow, 90 s steps",
        own_seconds=70.0,
        minutes=110.0,
        troubles=(Slow(ranks=(6,), factor=1.40, begins=55.0),),
        expect=_both(6),
    ),
    Scenario(
        name="slow in pulses",
        troubles=(Slow(ranks=(4,), factor=1.6, period=6.0, on=4.5),),
        expect=_both(4),
    ),
    Scenario(
        name="slow, then well",
        troubles=(Slow(ranks=(4,), factor=1.4, ends=12.0),),
        expect=_both(4),
    ),
    Scenario(
        name="two stragglers",
        ranks=32,
        troubles=(Slow(ranks=(5,), factor=1.30), Slow(ranks=(18,), factor=1.45, begins=8.0)),
        expect=(*_both(5), *_both(18)),
    ),
    Scenario(
        name="slow rank in a light stage",
        ranks=16,
        per_node=8,
        stages=(1.0, 1.0, 1.0, 1.0),
        troubles=(Slow(ranks=(5,), factor=1.35),),
        expect=_both(5),
    ),
    Scenario(
        name="slow rank with uneven batches",
        troubles=(Slow(ranks=(2,), factor=1.5), Uneven(sigma=0.06)),
        expect=_both(2),
    ),
    Scenario(
        name="slow through scrape gaps",
        ranks=16,
        troubles=(Slow(ranks=(11,), factor=1.35), Gap(node=0, seconds=20.0, at=7.0, every=5.0)),
        expect=_both(11),
    ),
    Scenario(
        name="slow, sidecar restarted meanwhile",
        ranks=16,
        troubles=(Slow(ranks=(11,), factor=1.35), SidecarRestart(node=1, at=6.7)),
        expect=_both(11),
    ),
    Scenario(
        name="slow on a node whose clock is off",
        ranks=16,
        troubles=(Slow(ranks=(9,), factor=1.35), Skew(node=1, seconds=300.0)),
        expect=_both(9),
    ),
    Scenario(
        name="slow between checkpoints",
        troubles=(Slow(ranks=(3,), factor=1.40), Pause(phase="checkpoint", every=6.0, seconds=30.0)),
        expect=_both(3),
    ),
    Scenario(
        name="slow node of two",
        ranks=16,
        troubles=(Slow(ranks=tuple(range(8, 16)), factor=1.17),),
        expect=(Expect(NODE, "warning", "node1"),),
        paged=False,
    ),
    Scenario(
        name="very slow node of four",
        ranks=32,
        troubles=(Slow(ranks=tuple(range(16, 24)), factor=1.35),),
        expect=(Expect(NODE, "warning", "node2"), Expect(NODE, "critical", "node2")),
    ),
    Scenario(
        name="hot GPU, slow",
        troubles=(Slow(ranks=(3,), factor=1.30), Gpus(), Throttled(rank=3, reason="hw_thermal")),
        expect=(*_both(3), Expect("throttled_gpu", "warning", "3")),
    ),
    Scenario(
        name="slow, with memory errors",
        troubles=(Slow(ranks=(5,), factor=1.40), Gpus(), Faulty(rank=5, xid=92)),
        expect=(*_both(5), Expect("degraded_gpu", "warning", "5")),
    ),
    Scenario(
        name="slow, with half of the PCIe lanes",
        ranks=16,
        troubles=(Slow(ranks=(9,), factor=1.30), Gpus(), NarrowLink(rank=9)),
        expect=(*_both(9), Expect("degraded_link")),
    ),
)


def _probe(percent: int) -> Scenario:
    return Scenario(
        name=f"curve, {percent} %",
        troubles=(Slow(ranks=(3,), factor=1 + percent / 100),),
        also=frozenset({RANK}),
        minutes=16.0,
        probe=True,
    )


CURVE: tuple[Scenario, ...] = tuple(_probe(percent) for percent in (5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 17, 20))
"""How the share of found stragglers grows with their slowness, at 3 % jitter."""
