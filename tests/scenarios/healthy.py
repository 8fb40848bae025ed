"""Runs that deserve no alert, however odd they look for a while."""

from __future__ import annotations

from scenarios.vocabulary import (
    End,
    Gap,
    Gpus,
    Kill,
    OneStall,
    Pause,
    Restart,
    Scenario,
    SidecarRestart,
    Skew,
    Slow,
    Stalls,
    Uneven,
    WarmUp,
)


def _jitter(percent: int) -> Scenario:
    return Scenario(name=f"healthy, jitter {percent} %", jitter=percent / 100, paged=False)


HEALTHY: tuple[Scenario, ...] = (
    *(_jitter(percent) for percent in (0, 1, 3, 5, 8)),
    Scenario(name="healthy, 32 ranks on 4 nodes", ranks=32, jitter=0.05, paged=False),
    Scenario(name="warm-up and compilation", troubles=(WarmUp(steps=4, seconds=60.0),), paged=False),
    Scenario(
        name="checkpoint of all ranks",
        troubles=(Pause(phase="checkpoint", every=5.0, seconds=40.0),),
        paged=False,
    ),
    Scenario(
        name="checkpoint of rank 0 alone",
        troubles=(Pause(phase="checkpoint", every=8.0, seconds=150.0, everyone=False),),
        paged=False,
    ),
    Scenario(name="evaluation", troubles=(Pause(phase="eval", every=6.0, seconds=90.0),), paged=False),
    Scenario(name="garbage collection", troubles=(Stalls(seconds=0.4, chance=0.005),), paged=False),
    Scenario(name="restart with a new attempt", troubles=(Restart(),), paged=False),
    Scenario(
        name="killed and restarted by the launcher",
        troubles=(Kill(rank=5, others_after=6.0, restart_after=40.0),),
        paged=False,
    ),
    Scenario(name="fewer ranks after a resize", ranks=16, troubles=(Restart(ranks=8, polite=False),), paged=False),
    Scenario(name="more ranks after a resize", ranks=8, troubles=(Restart(ranks=16),), paged=False),
    Scenario(name="two ranks", ranks=2, jitter=0.05, paged=False),
    Scenario(name="three ranks", ranks=3, jitter=0.05, paged=False),
    Scenario(name="one rank", ranks=1, troubles=(Slow(ranks=(0,), factor=1.15),), paged=False),
    Scenario(name="10 ms steps", ranks=4, own_seconds=0.008, jitter=0.05, minutes=14.0, paged=False),
    Scenario(name="90 s steps", own_seconds=70.0, jitter=0.03, minutes=75.0, paged=False),
    Scenario(name="scrape gaps", ranks=16, troubles=(Gap(node=1, seconds=45.0, every=4.0),), paged=False),
    Scenario(name="sidecar restarted", ranks=16, troubles=(SidecarRestart(node=0),), paged=False),
    Scenario(
        name="clocks of a node are off", ranks=16, troubles=(Skew(node=1, seconds=-420.0),), jitter=0.05, paged=False
    ),
    Scenario(name="one long stall", troubles=(OneStall(rank=2, seconds=45.0),), own_seconds=8.0, paged=False),
    Scenario(name="one stall of two minutes", troubles=(OneStall(rank=6, seconds=118.0),), paged=False),
    Scenario(name="mildly uneven batches", troubles=(Uneven(sigma=0.06),), paged=False),
    Scenario(name="7 % slow", troubles=(Slow(ranks=(3,), factor=1.07),), paged=False),
    Scenario(
        name="slow for eight steps", troubles=(Slow(ranks=(3,), factor=1.6, ends=6.0 + 8 * 1.4 / 60),), paged=False
    ),
    Scenario(name="normal end", troubles=(End(at=12.0),), paged=False),
    Scenario(name="normal end, the last ranks write results", troubles=(End(at=8.0, straggling=420.0),), paged=False),
    Scenario(name="all ranks killed together", troubles=(Kill(rank=4, others_after=3.0),), minutes=20.0, paged=False),
    Scenario(name="MIG instances", troubles=(Gpus(utilization=None, sm_active=0.31, instances=True),), paged=False),
    Scenario(name="GPUs swapped at a restart", troubles=(Gpus(), Restart(new_gpus=True)), paged=False),
    Scenario(name="no GPU metrics at all", troubles=(Gpus(utilization=None, sm_active=None),), paged=False),
    Scenario(name="busy and useful", troubles=(Gpus(utilization=0.99, sm_active=0.66),), paged=False),
)
