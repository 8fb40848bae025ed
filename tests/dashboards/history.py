"""Training runs of the past, step by step.

The durations come from ``straggler.simulate`` and the barrier is computed exactly. The same course gives the same
steps on every machine.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from straggler.simulate.scenario import Fault, Scenario, Work
from straggler.wire import layout
from straggler.wire.recent import WINDOW_STEPS, Recent, Sample, summarize_samples

END = 1_773_111_900.0
"""When the pictures are taken: 2026-03-10 03:05 UTC. Fixed, so that they are the same each time."""

_NS = 1e9
_HEAD = 1.12
"""The last stage of a pipeline computes the loss, too: a heavy stage is no straggler."""


@dataclass(frozen=True, kw_only=True)
class Course:
    """How one run went."""

    scenario: Scenario
    """Its fault begins ``trouble_minutes`` before the end, whatever step that is."""
    cluster: str
    """Target label; ``""`` for none, as with a single Prometheus."""
    per_node: int = 8
    stages: int = 1
    """Pipeline stages, of equally many ranks in order; the last one has more to do."""
    minutes: float = 60.0
    """How long before the end it starts."""
    scrape_seconds: float = 30.0
    trouble: str = ""
    """Besides the scenario's fault. ``crash``: the last rank dies and the others hang. ``unseen``: the second half of
    the nodes is not scraped. ``blind``: one rank has no GPU, another no own time, DCGM is stale."""
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

    @property
    def held_by(self) -> str:
        """The clocks event reason that holds the afflicted rank's GPU down; ``""`` for none."""
        kind = self.scenario.fault.kind
        if not kind.lowers_clock:
            return ""
        return "hw_power_brake" if kind.cause == "power_brake" else "hw_thermal"

    def afflicts(self, rank: int, now: float) -> bool:
        """Whether this rank has the fault at that time."""
        fault = self.scenario.fault
        return not fault.is_none and rank == fault.rank and self.troubled(now)

    def stage_of(self, rank: int) -> int:
        """The pipeline stage of a rank."""
        return rank * self.stages // self.scenario.ranks

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
    busy: float = 0.0
    """Share of the last step in which its GPU computed."""
    held_seconds: float = 0.0
    """Time in which something held the clock of its GPU down."""
    delayed_seconds: float = 0.0
    """Time in which it was ready and had no CPU."""
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
        works = [self._work(scenario, rank.number) for rank in self.ranks]
        release = max(
            rank.clock + work.until_arrival_seconds for rank, work in zip(self.ranks, works, strict=True)
        ) + max(work.all_reduce_seconds for work in works)
        for rank, work in zip(self.ranks, works, strict=True):
            end = release + work.optimizer_seconds
            wait = release - rank.clock - work.until_arrival_seconds
            wall = end - rank.clock
            rank.phases["data"] += work.data_seconds
            rank.phases["h2d"] += work.h2d_seconds
            rank.phases["forward"] += work.forward_seconds + work.host_seconds / 2
            rank.phases["backward"] += work.backward_seconds + work.host_seconds / 2
            rank.phases["optimizer"] += work.optimizer_seconds
            rank.phases["wait"] += wait
            rank.window.append(Sample(int(end * _NS), int(wall * _NS), int((wall - wait) * _NS), int(wait * _NS)))
            rank.steps += 1
            rank.last_step += 1
            rank.wall += wall
            rank.own += wall - wait
            rank.wait += wait
            rank.busy = (work.compute_seconds + work.optimizer_seconds) / wall
            if afflicted and rank.number == course.scenario.fault.rank:
                rank.held_seconds += wall if course.held_by else 0.0
                rank.delayed_seconds += max(0.0, work.host_seconds - scenario.work.host_seconds)
            rank.clock = end

    def _work(self, scenario: Scenario, rank: int) -> Work:
        work = scenario.work_of(rank, self.step)
        if self.course.stages == 1 or self.course.stage_of(rank) < self.course.stages - 1:
            return work
        return replace(work, forward_seconds=work.forward_seconds * _HEAD)
