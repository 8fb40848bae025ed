"""Time that passes without anybody looking, and time that lies."""

from __future__ import annotations

import time
from pathlib import Path

from fakes import FakeClock
from faults.bench import Figure, memory_mb
from ring_files import STEP_NS, WAIT_NS, RingFile
from straggler.model.rank import RankState
from straggler.sources.rings.read import RingSource

_POLL_STEPS = 200
"""Two seconds at 100 steps a second, as the sidecar polls without a scrape."""


def prometheus_gone(place: Path, seconds: float) -> Figure:
    """Nobody scrapes; the sidecar keeps up by itself. The clock is turned by hand, the steps are all written."""
    clock = FakeClock(now=time.time())
    source = _source(place, clock)
    ring = RingFile(place / "a.ring", capacity=4096)
    steps = int(seconds * 100)
    before = memory_mb_of_self()
    for _ in range(steps // _POLL_STEPS):
        ring.step(_POLL_STEPS)
        clock.advance(2)
        source.collect()
    (rank,) = source.collect().facts
    grown = memory_mb_of_self() - before
    own = steps * (STEP_NS - WAIT_NS) / 1e9
    assert rank.totals is not None
    exact = rank.totals.steps == steps and abs((rank.totals.own_seconds or 0) - own) < 1e-6
    lost = source.counters.records_missed
    source.close()
    ring.close()
    text = f"{seconds / 60:.0f} minutes, {rank.totals.steps} of {steps} steps counted, {lost} missed, {grown:+.1f} MB"
    return Figure(exact and lost == 0 and grown < 20, text)


def clock_jump(place: Path, _: float) -> Figure:
    """The wall clock goes a day ahead, a year back and home again, while a rank steps."""
    clock = FakeClock(now=time.time())
    source = _source(place, clock)
    ring = RingFile(place / "a.ring", capacity=256)
    states = set()
    steps = []
    for jump in (0, 86_400, -365 * 86_400, 364 * 86_400):
        clock.jump(jump)
        for _ in range(20):
            ring.step(10)
            clock.advance(0.5)
            for rank in source.collect().facts:
                states.add(rank.state)
                assert rank.totals is not None
                steps.append(rank.totals.steps)
    held = states == {RankState.RUNNING} and steps == sorted(steps) and steps[-1] == 800
    held = held and (place / "a.ring").exists() and source.counters.removed == 0
    source.close()
    ring.close()
    return Figure(held, f"+1 day, -1 year: always running, {steps[-1]} of 800 steps, no file removed")


def memory_mb_of_self() -> float:
    """Of this process."""
    import os

    return memory_mb(os.getpid())


def _source(root: Path, clock: FakeClock) -> RingSource:
    return RingSource(
        root, clock=clock, hang_steps=10, hang_min_seconds=120, hang_excluded_seconds=3600, gone_seconds=300
    )
