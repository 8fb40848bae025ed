"""A sidecar of scripted sources, and a real one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fakes import FakeClock
from scripted import Bench, MakeBench, ScriptedSource
from straggler.sidecar.collector import Collector, Observer
from straggler.sidecar.state import NodeState


@pytest.fixture
def make_bench() -> MakeBench:
    """Put scripted sources together."""

    def make(
        *sources: ScriptedSource, observers: Sequence[Observer] = (), max_ranks: int = 100, node_proven: bool = True
    ) -> Bench:
        clock = FakeClock()
        real = [source.source() for source in sources]
        state = NodeState(
            clock,
            sources=real,
            node_proven=node_proven,
            gpu_sharing=False,
            max_ranks=max_ranks,
            hang_after_seconds=120,
            host_name="n1",
        )
        return Bench(clock, state, Collector(real, state, clock, observers))

    return make
