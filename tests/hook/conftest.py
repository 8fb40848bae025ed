"""A timer on a clock that is moved by hand, and the records that it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from straggler import StepTimer
from straggler.sources.rings.snapshot import Snapshot, read_snapshot
from straggler.wire.records import StepRecord

MS = 1_000_000


class Nanoseconds:
    """Both clocks, in nanoseconds."""

    def __init__(self) -> None:
        self.now = 10**12

    def __call__(self) -> int:
        """The time."""
        return self.now

    def ms(self, milliseconds: float) -> None:
        """Let time pass."""
        self.now += round(milliseconds * MS)


class Rank:
    """One timer in this process, of rank 0 of 2 unless told otherwise."""

    def __init__(self, **arguments: Any) -> None:
        self.clock = Nanoseconds()
        self.warnings: list[str] = []
        chosen: dict[str, Any] = {
            "run": "r",
            "rank": 0,
            "world_size": 2,
            "clock": self.clock,
        } | arguments
        self.timer = StepTimer(allow_any_filesystem=True, wall_clock=self.clock, **chosen)

    def step(self, own: float = 10, wait: float = 5) -> None:
        """Train one step of so many milliseconds."""
        with self.timer.step():
            self.clock.ms(own)
            with self.timer.phase("wait"):
                self.clock.ms(wait)

    @property
    def ring(self) -> Snapshot:
        """What can be read now."""
        assert self.timer.ring_path is not None
        return read_snapshot(Path(self.timer.ring_path))

    @property
    def records(self) -> tuple[StepRecord, ...]:
        """The steps so far."""
        return self.ring.records

    def phases(self, index: int = -1) -> dict[str, float]:
        """Milliseconds in each phase of one step, without those that are zero."""
        return phases_of(self.records[index])


def phases_of(record: StepRecord) -> dict[str, float]:
    """Milliseconds in each phase, without those that are zero."""
    from straggler.wire import layout

    assert sum(record.phase_ns) == record.wall_ns
    return {name: ns / MS for name, ns in zip(layout.PHASES, record.phase_ns, strict=True) if ns}


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Callable[..., Rank]]:
    """Make ranks, which are closed in the end."""
    made: list[Rank] = []

    def make(**arguments: Any) -> Rank:
        made.append(Rank(**{"directory": tmp_path} | arguments))
        return made[-1]

    yield make
    for one in made:
        one.timer.close()
