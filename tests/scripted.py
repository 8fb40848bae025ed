"""Sources that say what a test puts in, and a sidecar's state over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fakes import FakeClock
from straggler.model.reading import Problem, Reading, SourceState
from straggler.sidecar.collector import Collector
from straggler.sidecar.scrape import Request, Source, SourceCounts
from straggler.sidecar.state import NodeState


@dataclass
class ScriptedSource:
    """Says what a test puts in, and remembers what it was asked."""

    name: str
    facts: Sequence[Any] = ()
    state: SourceState = SourceState.OK
    problems: Sequence[Problem] = ()
    blind: Sequence[Problem] = ()
    counts: SourceCounts = field(default_factory=SourceCounts)
    polled: bool = False
    requests: list[Request] = field(default_factory=list)
    before: Callable[[], object] = lambda: None
    """Called at the beginning of each look."""

    def look(self, request: Request) -> Reading[Any]:
        """Give what was put in."""
        self.requests.append(request)
        self.before()
        return Reading(
            source=self.name,
            state=self.state,
            facts=tuple(self.facts),
            problems=tuple(self.problems),
            blind=tuple(self.blind),
        )

    def source(self) -> Source:
        """As the sidecar takes it."""
        return Source(name=self.name, look=self.look, polled=self.polled, counts=lambda: self.counts)


@dataclass
class Bench:
    """A state and a collector over scripted sources."""

    clock: FakeClock
    state: NodeState
    collector: Collector


MakeBench = Callable[..., Bench]
