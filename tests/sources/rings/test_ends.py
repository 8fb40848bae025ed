"""How real processes end, and what the source makes of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes import FakeClock
from ring_files import Trainer, trainer
from straggler.sources.rings.read import RingSource
from straggler.wire import layout

End = Callable[[Trainer], object]
MakeSource = Callable[[], RingSource]


def states(source: RingSource) -> list[str]:
    """The state of each rank."""
    return [facts.state.value for facts in source.collect().facts]


def leave(process: Trainer) -> None:
    """End without another word."""
    process.do("exit", 3)
    process.wait()


def exception(process: Trainer) -> None:
    """What the hook does when the interpreter ends because of an exception."""
    process.do("goodbye", layout.STATUS_EXCEPTION)
    leave(process)


def finish(process: Trainer) -> None:
    """What the hook does at a normal end."""
    process.do("goodbye", layout.STATUS_FINISHED)
    leave(process)


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (lambda process: process.kill(signal.SIGKILL), "crashed"),
        (lambda process: process.kill(signal.SIGTERM), "crashed"),
        (leave, "crashed"),
        (lambda process: process.do("exec"), "crashed"),
        (exception, "crashed"),
        (finish, "finished"),
    ],
    ids=["SIGKILL", "SIGTERM", "os._exit", "exec", "exception", "finish"],
)
def test_end(root: Path, clock: FakeClock, source: RingSource, end: End, state: str) -> None:
    """A process is running until it ends, and from the second look after its end it is what the end was."""
    with trainer(root / "a.ring") as process:
        process.do("step", 40)
        assert states(source) == ["running"]
        process.do("step", 10)
        end(process)
        source.collect()
        clock.advance(5)

        assert states(source) == [state]


def test_killed_trainer_with_living_workers(root: Path, clock: FakeClock, source: RingSource) -> None:
    """Data loader workers that outlive a SIGKILLed trainer do not keep its rank alive."""
    with trainer(root / "a.ring") as process:
        process.do("step", 40)
        worker = int(process.do("fork"))
        try:
            source.collect()
            process.kill()
            source.collect()
            clock.advance(5)

            assert states(source) == ["crashed"]
            os.kill(worker, 0)
        finally:
            os.kill(worker, signal.SIGKILL)


def test_dropped_lock_of_a_living_trainer(root: Path, clock: FakeClock, source: RingSource) -> None:
    """If a library opened and closed the ring, the lock is lost and the rank goes on: it stays running."""
    with trainer(root / "a.ring") as process:
        process.do("step", 40)
        source.collect()
        process.do("open_and_close")
        seen = []
        for _ in range(5):
            seen += states(source)
            process.do("step", 10)
            clock.advance(5)

    assert seen == ["running"] * 5


def test_trainer_without_a_lock_hangs_and_is_given_up(root: Path, clock: FakeClock, source: RingSource) -> None:
    """After its lock was shown worthless, a trainer that stops is hung first and gone after an hour."""
    with trainer(root / "a.ring") as process:
        process.do("step", 40)
        source.collect()
        process.do("open_and_close")
        source.collect()
        process.do("step", 1)
        source.collect()
        clock.advance(121)
        assert states(source) == ["hung"]
        clock.advance(3600)

        assert states(source) == ["crashed"]


def test_hung_trainer_is_found_hung_by_a_new_sidecar(
    root: Path, clock: FakeClock, make_source: Callable[[], RingSource]
) -> None:
    """A sidecar that starts in the middle of a hang knows it from the age of the file."""
    with trainer(root / "a.ring") as process:
        process.do("step", 40)
        status = (root / "a.ring").stat()
        os.utime(root / "a.ring", (status.st_atime, clock.time() - 1200))

        assert states(make_source()) == ["hung"]


def test_goodbye_between_the_looks_is_no_crash(root: Path, source: RingSource) -> None:
    """A process that ends normally between two looks is finished at once: the lock is asked for before the rest."""
    with trainer(root / "a.ring") as process:
        process.do("step", 40)
        source.collect()
        finish(process)

        assert states(source) == ["finished"]
