"""Several rings of one rank."""

from __future__ import annotations

import signal
from pathlib import Path

from fakes import FakeClock
from ring_files import RingFile, trainer
from straggler.sources.rings.read import RingSource
from straggler.wire import layout

NS = 1_000_000_000


def steps_of(source: RingSource) -> list[int | None]:
    """The last step of each rank that is published."""
    return [facts.step for facts in source.collect().facts]


def step_all(rings: list[RingFile], clock: FakeClock, source: RingSource) -> None:
    """Have all rings step three times, with a look after each."""
    for _ in range(3):
        for ring in rings:
            ring.step()
        clock.advance(0.5)
        source.collect()


def test_restarted_run_supersedes_the_dead_attempt(root: Path, clock: FakeClock, source: RingSource) -> None:
    """After a crash and a restart the new ring speaks for the rank; the dead one is no crash any more."""
    with trainer(root / "a.ring", created=1 * NS, attempt=0) as first:
        first.do("step", 50)
        source.collect()
        first.kill(signal.SIGKILL)
        clock.advance(5)
        source.collect()
        clock.advance(5)
        assert [facts.state.value for facts in source.collect().facts] == ["crashed"]
        with trainer(root / "b.ring", created=2 * NS, attempt=1) as second:
            second.do("step", 3)
            reading = source.collect()

    assert [(facts.state.value, facts.step, facts.identity.attempt) for facts in reading.facts] == [("running", 3, 1)]
    assert source.counters.refused == {}


def test_living_attempt_counts_before_a_newer_dead_one(root: Path, source: RingSource) -> None:
    """A newer attempt that is over does not hide the one that lives."""
    older = RingFile(root / "a.ring", created=1 * NS)
    older.step(7)
    newer = RingFile(root / "b.ring", created=2 * NS)
    newer.step(2)
    newer.goodbye()

    assert steps_of(source) == [7]


def test_newest_of_two_dead_counts(root: Path, source: RingSource) -> None:
    """Of two attempts that are over, the last one's end is the rank's."""
    for name, created, steps in (("b.ring", 1, 5), ("a.ring", 2, 3)):
        ring = RingFile(root / name, created=created * NS)
        ring.step(steps)
        ring.goodbye()

    assert steps_of(source) == [3]


def test_two_that_step_are_duplicates(root: Path, clock: FakeClock, source: RingSource) -> None:
    """Two processes that both step as the same rank are both refused, and counted once."""
    rings = [RingFile(root / f"{name}.ring", created=name * NS) for name in (1, 2)]
    step_all(rings, clock, source)

    assert source.collect().facts == ()
    assert source.counters.refused == {"duplicate_rank": 2}
    assert source.counters.refused_now == {"duplicate_rank": 2}


def test_duplicates_do_not_touch_other_ranks(root: Path, clock: FakeClock, source: RingSource) -> None:
    """Only the contended rank is refused."""
    rings = [RingFile(root / f"{name}.ring", created=name * NS) for name in (1, 2)]
    RingFile(root / "other.ring", rank=1).step(9)
    step_all(rings, clock, source)

    assert steps_of(source) == [9]


def test_duplicate_ends_when_one_ends(root: Path, clock: FakeClock, source: RingSource) -> None:
    """When only one of two is left, it is published again."""
    rings = [RingFile(root / f"{name}.ring", created=name * NS) for name in (1, 2)]
    step_all(rings, clock, source)
    rings[0].goodbye()

    assert steps_of(source) == [3]
    assert source.counters.refused_now == {}


def test_timer_left_open_in_the_same_process_is_superseded(root: Path, clock: FakeClock, source: RingSource) -> None:
    """An older ring that is locked and stands still, as after running a notebook's cell twice, does not contend."""
    with trainer(root / "a.ring", created=1 * NS) as process:
        process.do("step", 50)
        source.collect()
        clock.advance(5)
        with trainer(root / "b.ring", created=2 * NS) as newer:
            newer.do("step", 1)

            assert steps_of(source) == [1]
            assert steps_of(source) == [1]


def test_same_rank_of_two_runs_is_two_ranks(root: Path, source: RingSource) -> None:
    """The run is part of the name."""
    RingFile(root / "a.ring", run="a").step(1)
    RingFile(root / "b.ring", run="b").step(2)

    assert steps_of(source) == [1, 2]


def test_crash_loop_keeps_no_file_open(root: Path, clock: FakeClock, source: RingSource) -> None:
    """Of a hundred attempts in a row only the last is open; the rank is there, once."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    for attempt in range(1, 101):
        ring = RingFile(root / f"{attempt}.ring", created=attempt * NS)
        ring.step(attempt)
        ring.goodbye(layout.STATUS_EXCEPTION)
        ring.close()
        clock.advance(1)
        assert steps_of(source) == [attempt]

    assert len(list(Path("/proc/self/fd").iterdir())) == before + 1
