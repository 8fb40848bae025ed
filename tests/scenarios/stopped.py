"""Runs that stop, lose a rank, or cannot be seen."""

from __future__ import annotations

from scenarios.vocabulary import (
    Expect,
    Faulty,
    Gpus,
    Hang,
    Kill,
    NarrowLink,
    Pause,
    Restart,
    Scenario,
    Slow,
    Throttled,
    Unmeasured,
    Unseen,
)

HANG, CRASH = Expect("hang", "critical"), Expect("crash", "critical")

STOPPED: tuple[Scenario, ...] = (
    Scenario(name="hang in one rank", troubles=(Hang(rank=5),), expect=(HANG,)),
    Scenario(name="hang in the network", ranks=16, troubles=(Hang(rank=None),), expect=(HANG,)),
    Scenario(name="hang, ended by the watchdog", troubles=(Hang(rank=2, killed_after=600.0),), expect=(HANG,)),
    Scenario(
        name="hang with 90 s steps", own_seconds=70.0, minutes=75.0, troubles=(Hang(rank=1, at=40.0),), expect=(HANG,)
    ),
    Scenario(
        name="hang of a slow rank",
        troubles=(Slow(ranks=(4,), factor=1.35, begins=2.0), Hang(rank=4, at=12.0)),
        expect=(HANG, Expect("straggling_rank", "warning", "4"), Expect("straggling_rank", "critical", "4")),
    ),
    Scenario(name="out of memory, others wait", troubles=(Kill(rank=6),), expect=(CRASH,), also=frozenset({"hang"})),
    Scenario(
        name="out of memory on one of two nodes",
        ranks=16,
        troubles=(Kill(rank=12),),
        expect=(CRASH,),
        also=frozenset({"hang"}),
    ),
    Scenario(
        name="crash after a restart",
        troubles=(Restart(at=4.0), Kill(rank=3, at=10.0)),
        expect=(CRASH,),
        also=frozenset({"hang"}),
    ),
    Scenario(
        name="a rank without a hook", troubles=(Unseen(ranks=(7,)),), expect=(Expect("missing_rank"),), paged=False
    ),
    Scenario(
        name="half of the run without a sidecar",
        ranks=16,
        troubles=(Unseen(ranks=tuple(range(8, 16))),),
        expect=(Expect("missing_rank"), Expect("blind", "warning", "unseen_ranks")),
        paged=False,
    ),
    Scenario(
        name="a frozen ring",
        troubles=(Unseen(ranks=(6,), begins=6.0, frozen=True),),
        expect=(Expect("missing_rank"),),
        paged=False,
    ),
    Scenario(
        name="own time unmeasured",
        troubles=(Unmeasured(ranks=tuple(range(8))),),
        expect=(Expect("blind", "warning", "hidden_collectives"),),
        paged=False,
    ),
    Scenario(
        name="own time of one rank unmeasured",
        troubles=(Unmeasured(ranks=(1,), reason="cuda_graph"),),
        expect=(Expect("blind", "warning", "cuda_graph"),),
        paged=False,
    ),
    Scenario(
        name="DCGM frozen",
        troubles=(Gpus(state="stale", begins=4.0),),
        expect=(Expect("blind", "warning", "stale"),),
        paged=False,
    ),
    Scenario(
        name="PROF stuck at 0",
        troubles=(Gpus(sm_active=None, blind="prof_stuck_zero"),),
        expect=(Expect("blind", "warning", "prof_stuck_zero"),),
        paged=False,
    ),
    Scenario(
        name="hot GPU that keeps up",
        troubles=(Gpus(), Throttled(rank=5, reason="sw_thermal")),
        expect=(Expect("throttled_gpu", "warning", "5"),),
        paged=False,
    ),
    Scenario(name="power cap under load", troubles=(Gpus(), Throttled(rank=5, reason="sw_power_cap")), paged=False),
    Scenario(
        name="half of the PCIe lanes",
        troubles=(Gpus(), NarrowLink(rank=2)),
        expect=(Expect("degraded_link"),),
        paged=False,
    ),
    Scenario(
        name="contained memory errors",
        troubles=(Gpus(), Faulty(rank=6)),
        expect=(Expect("degraded_gpu", "warning", "6"),),
        paged=False,
    ),
    Scenario(
        name="a program's XID",
        troubles=(Gpus(), Faulty(rank=6, xid=31)),
        paged=False,
    ),
    Scenario(
        name="slow while checkpoints hang over it",
        paged=None,
        troubles=(Slow(ranks=(1,), factor=1.5), Pause(phase="checkpoint", every=10.0, seconds=100.0, everyone=False)),
        expect=(Expect("straggling_rank", "warning", "1"), Expect("straggling_rank", "critical", "1")),
    ),
)
