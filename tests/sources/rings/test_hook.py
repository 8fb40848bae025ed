"""The real hook in a real process, seen by the source: both ends of the ring together."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fakes import FakeClock
from ring_files import Trainer, started
from straggler.model.rank import RankFacts, RankState
from straggler.sources.rings.read import RingSource

MakeSource = Callable[..., RingSource]

PROGRAM = """
import os, sys, time
from straggler import StepTimer

timer = StepTimer(run="r", rank=0, world_size=1, directory=sys.argv[1], allow_any_filesystem=True)

def step(count):
    for _ in range(count):
        with timer.step(tokens=10):
            with timer.phase("forward"):
                pass
            with timer.phase("wait"):
                pass

def fork(_):
    pid = os.fork()
    if not pid:
        step(3)  # a worker that runs the training code writes into nobody's ring
        time.sleep(60)
        os._exit(0)
    return pid

def raise_error(_):
    raise RuntimeError("not caught by anybody")

def open_and_close(_):
    for name in os.listdir(sys.argv[1]):
        open(os.path.join(sys.argv[1], name)).close()

def exec_another(_):
    os.execv(sys.executable, [sys.executable, "-c", "print('ok', flush=True); import time; time.sleep(60)"])

commands = {"step": step, "fork": fork, "raise": raise_error, "open_and_close": open_and_close, "exec": exec_another,
            "exit": os._exit, "pause": lambda _: time.sleep(0.15), "finish": lambda _: sys.exit(0),
            "close": lambda _: timer.close()}
print("ready", flush=True)
for line in sys.stdin:
    name, argument = line.split()
    answer = commands[name](int(argument))
    print("ok" if answer is None else answer, flush=True)
"""


@pytest.fixture
def process(root: Path) -> Iterator[Trainer]:
    """A training process with the hook."""
    with started([sys.executable, "-W", "ignore", "-c", PROGRAM, str(root)], {"STRAGGLER_DISABLED": ""}) as made:
        yield made


def only(source: RingSource) -> RankFacts:
    """The one rank that is there."""
    (facts,) = source.collect().facts
    return facts


def test_steps_of_the_hook(process: Trainer, source: RingSource) -> None:
    """What the loop did is what the source says: steps, tokens, phases, own time."""
    process.do("step", 40)
    facts = only(source)

    assert (facts.state, facts.key, facts.step, facts.own_reason) == (RankState.RUNNING, ("r", 0), 40, "measured")
    assert facts.totals is not None
    assert facts.recent is not None
    assert (facts.totals.steps, facts.totals.tokens, facts.recent.steps) == (40, 400, 40)
    assert sum(facts.totals.phase_seconds.values()) == pytest.approx(facts.totals.step_seconds)
    assert facts.totals.own_seconds is not None
    assert facts.totals.wait_seconds is not None
    assert facts.totals.own_seconds + facts.totals.wait_seconds == pytest.approx(facts.totals.step_seconds)


def test_totals_survive_restarts_of_the_sidecar(process: Trainer, make_source: MakeSource) -> None:
    """10,000 steps, more than twice the ring, with a sidecar that is restarted twice: not one is lost."""
    for sidecar in range(1, 4):
        process.do("step", 3333)
        totals = only(make_source()).totals
        assert totals is not None
        assert (totals.steps, totals.tokens) == (3333 * sidecar, 33330 * sidecar)


def test_nothing_is_missed_between_looks(process: Trainer, source: RingSource) -> None:
    """With a look every 1,000 steps each record is read once."""
    process.do("step", 1)
    source.collect()
    for _ in range(10):
        process.do("step", 1000)
        source.collect()

    assert (source.counters.records_read, source.counters.records_missed) == (10_001, 0)
    assert source.counters.refused == {}


def ended(command: str, argument: int = 0) -> Callable[[Trainer], object]:
    """Have the process do something that ends it."""

    def end(process: Trainer) -> None:
        process.do(command, argument)
        process.wait()

    return end


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (lambda process: process.kill(signal.SIGKILL), "crashed"),
        (lambda process: process.kill(signal.SIGTERM), "crashed"),
        (ended("exit", 3), "crashed"),
        (lambda process: process.do("exec"), "crashed"),
        (ended("raise"), "crashed"),
        (ended("finish"), "finished"),
        (lambda process: process.do("close"), "finished"),
    ],
    ids=["SIGKILL", "SIGTERM", "os._exit", "exec", "exception", "exit", "close"],
)
def test_end(
    process: Trainer, clock: FakeClock, source: RingSource, end: Callable[[Trainer], object], state: str
) -> None:
    """However the process of a hook ends, the source names it right, and the last step counts."""
    process.do("step", 40)
    source.collect()
    process.do("step", 2)
    end(process)
    source.collect()
    clock.advance(5)
    facts = only(source)

    assert (facts.state.value, facts.recent) == (state, None)
    assert facts.totals is not None
    assert facts.totals.steps == 42


def test_killed_trainer_with_living_workers(process: Trainer, clock: FakeClock, source: RingSource) -> None:
    """Forked workers neither write into the ring nor keep the rank alive."""
    process.do("step", 40)
    worker = int(process.do("fork"))
    try:
        source.collect()
        process.kill()
        source.collect()
        clock.advance(5)
        facts = only(source)
        os.kill(worker, 0)
    finally:
        os.kill(worker, signal.SIGKILL)

    assert (facts.state, facts.step) == (RankState.CRASHED, 40)


def test_lock_lost_to_an_open_and_close(process: Trainer, clock: FakeClock, source: RingSource) -> None:
    """Something in the process opens and closes the ring; the rank goes on and is never called crashed."""
    process.do("step", 40)
    source.collect()
    process.do("open_and_close")
    states = set()
    for _ in range(5):
        states.add(only(source).state)
        process.do("step", 1)
        clock.advance(5)

    assert states == {RankState.RUNNING}


def test_deleted_ring_is_blind(root: Path, process: Trainer, source: RingSource) -> None:
    """Somebody deletes the ring: the hook falls silent and says so; the rank is unseen, not crashed."""
    process.do("step", 40)
    source.collect()
    for path in root.iterdir():
        path.unlink()
    process.do("pause")  # the hook looks at its file ten times a second
    process.do("step", 2)
    reading = source.collect()

    assert reading.facts == ()
    assert [problem.reason for problem in reading.blind] == ["hook_off"]
