"""When NVML is asked, and when it is let go."""

from __future__ import annotations

import pytest

from fakes import FakeClock
from straggler.errors import SourceAbsentError
from straggler.model.gpu import GpuFacts
from straggler.model.reading import Reading, SourceState
from straggler.sidecar.scrape import Request
from straggler.sidecar.sources import WhileNeeded

OCCUPIED = Request(1.0, stepping=True, occupied=True)
EMPTY = Request(1.0, stepping=False)


class Bench:
    """The gate, and what it did."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.spared = False
        self.released = 0
        self.gate = WhileNeeded(
            self._look, is_spared=lambda: self.spared, release=self._release, clock=self.clock, idle_seconds=60
        )

    def _look(self, request: Request) -> Reading[GpuFacts]:
        assert request
        return Reading(source="nvml", state=SourceState.OK)

    def _release(self) -> None:
        self.released += 1


def test_ranks_make_it_look() -> None:
    """While ranks live it is asked."""
    bench = Bench()

    assert bench.gate(OCCUPIED).state is SourceState.OK
    assert bench.released == 0


def test_dcgm_spares_it() -> None:
    """Where the other source says enough it is let go at once, and asked again when that one falls short."""
    bench = Bench()
    bench.gate(OCCUPIED)
    bench.spared = True
    with pytest.raises(SourceAbsentError):
        bench.gate(OCCUPIED)
    bench.spared = False

    assert bench.released == 1
    assert bench.gate(OCCUPIED).state is SourceState.OK


def test_idle_node_lets_go() -> None:
    """It is asked for a while after the last rank, and then let go."""
    bench = Bench()
    bench.gate(OCCUPIED)
    bench.clock.advance(59)
    assert bench.gate(EMPTY).state is SourceState.OK
    bench.clock.advance(1)

    with pytest.raises(SourceAbsentError):
        bench.gate(EMPTY)
    assert bench.released == 1


def test_nobody_has_come_yet() -> None:
    """Before the first rank it is not asked."""
    with pytest.raises(SourceAbsentError):
        Bench().gate(EMPTY)
