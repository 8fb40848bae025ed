"""Training runs of the past, step by step.

The durations come from ``straggler.simulate`` and the barrier is computed exactly. The same course gives the same
steps on every machine.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from straggler.simulate.scenario import Fault, Scenario
from straggler.wire import layout
from straggler.wire.recent import WINDOW_STEPS, Recent, Sample, summarize_samples

END = 1_773_111_900.0
"""When the pictures are taken: 2026-03-10 03:05 UTC. Fixed, so that they are the same each time."""

_NS = 1e9


@dataclass(frozen=True, kw_only=True)
class Course:
    """How one run went."""

    scenario: Scenario
    """Its fault begins ``trouble_minutes`` before the end, whatever step that is."""
    cluster: str
    """Target label; ``""`` for none, as with a single Prometheus."""
    per_node: int = 8
    minutes: float = 60.0
    """How long before the end it starts."""
    scrape_seconds: float = 30.0
    trouble: str = ""
    """``thermal``: the slow rank's clock is held down. ``crash``: the last rank dies and the others hang. ``unseen``:
    the second half of the nodes is not scraped. ``blind``: one rank has no GPU, another no own time, DCGM is stale."""
    trouble_minutes: float = 25.0
    restart_minutes: float | None = None
    """How long before the end all ranks were started anew, if they were."""

    @property
    def begins(self) -> float:
        """Unix time of the first step."""
        return END - self.minutes * 60

    @property
    def nodes(self) -> int:
        """How many there are."""
        return math.ceil(self.scenario.ranks / self.per_node)

    def throttles(self, rank: int) -> bool:
        """Whether it is this rank's GPU that gets too hot."""
        return self.trouble == "thermal" and rank == self.scenario.fault.rank

    def troubled(self, now: float) -> bool:
        """Whether the trouble has begun."""
        return now >= self.trouble_begins

    @property
    def trouble_begins(self) -> float:
        """Unix time."""
        return END - self.trouble_minutes * 60


@dataclass
class RankCourse:
    """What a ring would say, as it grows."""

    number: int
    clock: float
    """Unix time at which its next step begins."""
    window: deque[Sample] = field(default_factory=lambda: deque(maxlen=WINDOW_STEPS))
    steps: int = 0
    wall: float = 0.0
    own: float = 0.0
    wait: float = 0.0
    phases: dict[str, float] = field(default_factory=lambda: dict.fromkeys(layout.PHASES, 0.0))
    last_step: int = 0
    held_seconds: float = 0.0
    """Time in which heat held the clock of its GPU down."""
    crashed: bool = False

    @property
    def recent(self) -> Recent | None:
        """As the exporter says it."""
        return summarize_samples(self.window)


class Run:
    """Steps all ranks of a course together."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self.ranks = [RankCourse(number, course.begins) for number in range(course.scenario.ranks)]
        self.step = 0
        self.attempt = 0

    def scrapes(self) -> Iterator[float]:
        """Go through the time of the run and stop at each scrape, at the time given."""
        course = self.course
        first = math.ceil(course.begins / course.scrape_seconds) + 1
        for tick in range(first, int(END / course.scrape_seconds) + 1):
            now = tick * course.scrape_seconds
            while self._stepping(now) and max(rank.clock for rank in self.ranks) < now:
                self._take_step()
            yield now

    def _stepping(self, now: float) -> bool:
        course = self.course
        if course.trouble == "crash" and course.troubled(now):
            self.ranks[-1].crashed = True
            return False
        if course.restart_minutes is not None and self.attempt == 0 and now >= END - course.restart_minutes * 60:
            self.attempt = 1
            self.ranks = [RankCourse(rank.number, now + 45.0, last_step=rank.last_step) for rank in self.ranks]
        return True

    def _take_step(self) -> None:
        """One step of all ranks: each works, then all wait for the last to arrive."""
        course = self.course
        self.step += 1
        afflicted = course.troubled(self.ranks[0].clock)
        scenario = course.scenario if afflicted else replace(course.scenario, fault=Fault())
        works = [scenario.work_of(rank.number, self.step) for rank in self.ranks]
        release = max(
            rank.clock + work.until_arrival_seconds for rank, work in zip(self.ranks, works, strict=True)
        ) + max(work.all_reduce_seconds for work in works)
        for rank, work in zip(self.ranks, works, strict=True):
            end = release + work.optimizer_seconds
            wait = release - rank.clock - work.until_arrival_seconds
            wall = end - rank.clock
            rank.phases["data"] += work.data_seconds
            rank.phases["forward"] += work.forward_seconds
            rank.phases["backward"] += work.backward_seconds
            rank.phases["optimizer"] += work.optimizer_seconds
            rank.phases["wait"] += wait
            rank.window.append(Sample(int(end * _NS), int(wall * _NS), int((wall - wait) * _NS), int(wait * _NS)))
            rank.steps += 1
            rank.last_step += 1
            rank.wall += wall
            rank.own += wall - wait
            rank.wait += wait
            if afflicted and self.course.throttles(rank.number):
                rank.held_seconds += wall
            rank.clock = end
