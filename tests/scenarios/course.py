"""How a scenario goes, step by step: the barrier is computed exactly, and the real sidecar code looks on.

The same scenario and seed give the same course on every machine.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from scenarios.adapters import logged, ports_of
from scenarios.cast import Process, Sidecar, exporter_status
from scenarios.effects import Labour, Work
from scenarios.graphics import gpus_of
from scenarios.vocabulary import (
    End,
    Gap,
    Gpus,
    Hang,
    Kill,
    Pause,
    Restart,
    Scenario,
    SidecarRestart,
    Skew,
    Unmeasured,
    Unseen,
)
from straggler.join.view import RankView
from straggler.metrics.self_metrics import ExporterStatus
from straggler.wire.records import Identity

LOOK_SECONDS = 15.0
"""Between two scrapes, and between two evaluations of the rules."""

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class Page:
    """What one node's sidecar says."""

    node: str
    views: tuple[RankView, ...]
    status: ExporterStatus
    listed: bool
    """Whether it is a target at all."""
    scraped: bool
    """Whether Prometheus gets the page."""


@dataclass(frozen=True, slots=True)
class Look:
    """All pages at one moment, seconds since the beginning."""

    at: float
    pages: tuple[Page, ...]


@dataclass(slots=True)
class _Step:
    begin: float
    end: float
    work: Work
    waits: list[float]
    excluded: list[float]


@dataclass(order=True)
class _Event:
    at: float
    order: int
    act: Callable[[float], None] = field(compare=False)


class Course:
    """One run of a scenario."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario, self.seed = scenario, seed
        self.run = f"{scenario.name} / {seed}"
        self._dice = Random(self.run)
        self.begin = self._dice.uniform(0.5, LOOK_SECONDS)
        """When the first step begins: somewhere between two scrapes."""
        self._size = scenario.ranks
        self._attempt = 0
        self._gpu_set = 0
        self._cast: list[Process] = []
        self._all: list[Process] = []
        self._sidecars: dict[str, Sidecar] = {}
        self._events: list[_Event] = []
        self._clock = self.begin
        self._stepping = True
        self._step = 0
        self._pending: _Step | None = None
        self._pauses = {pause: self.moment(pause.every) for pause in self._of(Pause)}
        """When each is due next."""
        self._begin_attempt(self.begin)
        for trouble in scenario.troubles:
            if isinstance(trouble, Hang):
                self._at(self.moment(trouble.at), self._hang(trouble))
            elif isinstance(trouble, Kill):
                self._at(self.moment(trouble.at), self._kill(trouble))
            elif isinstance(trouble, End):
                self._at(self.moment(trouble.at), self._end(trouble))
            elif isinstance(trouble, Restart):
                self._at(self.moment(trouble.at), self._restart(trouble))
            elif isinstance(trouble, Unseen) and trouble.frozen:
                self._at(self.moment(trouble.begins), self._freeze(trouble))

    def moment(self, minute: float) -> float:
        """Seconds since the beginning of a scenario's minute."""
        return self.begin + minute * 60

    def looks(self, every: float = LOOK_SECONDS) -> Iterator[Look]:
        """Go through the scenario, scrape by scrape."""
        for index in range(1, int(self.scenario.minutes * 60 / every) + 1):
            now = index * every
            self._advance(now)
            yield Look(now, tuple(self._page(now, sidecar) for sidecar in self._sidecars.values()))

    # How time passes.

    def _advance(self, until: float) -> None:
        while True:
            horizon = min(until, self._clock) if self._stepping else until
            while self._events and self._events[0].at <= horizon:
                event = heapq.heappop(self._events)
                event.act(event.at)
                horizon = min(until, self._clock) if self._stepping else until
            if not self._stepping:
                return
            if self._pending is None:
                if self._clock > until:
                    return
                self._pending = self._plan()
            if self._pending.end > until:
                return
            self._finish(self._pending)
            self._clock, self._pending = self._pending.end, None

    def _plan(self) -> _Step:
        self._step += 1
        begin = self._clock
        work = self._labour.work(self._step, (begin - self.begin) / 60)
        excluded = [0.0] * len(self._cast)
        held = 0.0
        for pause, due in self._pauses.items():
            if begin >= due:
                self._pauses[pause] = begin + pause.every * 60
                held += pause.seconds
                for index, process in enumerate(self._cast):
                    if pause.everyone or index == 0:
                        excluded[index] += pause.seconds
                        process.pause = (begin, begin + pause.seconds, pause.phase)
        release = max(work.own) + work.exchange + held
        waits = [release - own - out for own, out in zip(work.own, excluded, strict=True)]
        return _Step(begin, begin + release, work, waits, excluded)

    def _finish(self, step: _Step) -> None:
        for index, process in enumerate(self._cast):
            process.finish_step(
                step.end, step.work.own[index], step.waits[index], step.work.data[index], step.excluded[index]
            )

    # What happens.

    def _at(self, at: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._events, _Event(at, len(self._events), act))

    def _hang(self, trouble: Hang) -> Callable[[float], None]:
        def act(now: float) -> None:
            self._stop(now, but=trouble.rank)
            if trouble.killed_after < math.inf:
                self._at(now + trouble.killed_after, lambda _: self._die())

        return act

    def _kill(self, trouble: Kill) -> Callable[[float], None]:
        def act(now: float) -> None:
            self._stop(now, but=trouble.rank)
            self._cast[trouble.rank].lives = False
            if trouble.others_after < math.inf:
                self._at(now + trouble.others_after, lambda _: self._die())
            if trouble.restart_after < math.inf:
                self._at(now + trouble.others_after + trouble.restart_after, self._begin_attempt)

        return act

    def _end(self, trouble: End) -> Callable[[float], None]:
        def act(now: float) -> None:
            self._stop(now, but=None)
            late = self._cast[:2] if trouble.straggling else []
            for process in self._cast[len(late) :]:
                process.say_goodbye(now)
            for process in late:
                self._at(now + trouble.straggling, process.say_goodbye)

        return act

    def _restart(self, trouble: Restart) -> Callable[[float], None]:
        def act(now: float) -> None:
            self._stop(now, but=None)
            for process in self._cast:
                process.say_goodbye(now) if trouble.polite else self._die()
            self._size = trouble.ranks or self._size
            self._gpu_set += trouble.new_gpus
            self._at(now + trouble.down, self._begin_attempt)

        return act

    def _freeze(self, trouble: Unseen) -> Callable[[float], None]:
        def act(_: float) -> None:
            for rank in trouble.ranks:
                self._cast[rank].frozen = True

        return act

    def _stop(self, now: float, but: int | None) -> None:
        """No step ends any more; all but one rank arrive once more."""
        self._stepping, self._pending = False, None
        for index, process in enumerate(self._cast):
            process.pause = None
            if index != but and not process.frozen:
                process.ahead += 1
                process.moved = now

    def _die(self) -> None:
        for process in self._cast:
            process.lives = False

    def _begin_attempt(self, now: float) -> None:
        scenario = self.scenario
        per_stage = math.ceil(self._size / len(scenario.stages))
        stages = [rank // per_stage for rank in range(self._size)]
        unmeasured = {rank: trouble.reason for trouble in self._of(Unmeasured) for rank in trouble.ranks}
        skews = {f"node{trouble.node}": trouble.seconds for trouble in self._of(Skew)}
        self._cast = []
        for rank in range(self._size):
            node = f"node{rank // scenario.per_node}"
            self._sidecars.setdefault(node, Sidecar(node))
            identity = Identity(
                run=self.run,
                rank=rank,
                peer_group=str(stages[rank]) if scenario.known_stages else "0",
                node=node,
                world_size=self._size,
                local_rank=rank % scenario.per_node,
                attempt=self._attempt,
                own_reason=unmeasured.get(rank, "measured"),
            )
            self._cast.append(Process(identity, now, unmeasured.get(rank, "measured"), skews.get(node, 0.0), moved=now))
        self._all += self._cast
        self._labour = Labour(scenario, self._dice, stages)
        self._attempt += 1
        self._step, self._pending, self._stepping, self._clock = 0, None, True, now

    # What is seen of it.

    def _page(self, now: float, sidecar: Sidecar) -> Page:
        scraped = not any(self._is_gap(now, gap) for gap in self._of(Gap) if f"node{gap.node}" == sidecar.node)
        down = [
            restart
            for restart in self._of(SidecarRestart)
            if f"node{restart.node}" == sidecar.node and 0 <= now - self.moment(restart.at) < restart.down
        ]
        if down:
            sidecar.restart()
            return Page(sidecar.node, (), exporter_status("ok", "", 0), listed=True, scraped=False)
        unseen = {
            rank
            for trouble in self._of(Unseen)
            if not trouble.frozen and now >= self.moment(trouble.begins)
            for rank in trouble.ranks
        }
        here = [
            process
            for process in self._all
            if process.identity.node == sidecar.node and process.identity.rank not in unseen and process.begun <= now
        ]
        minute = (now - self.begin) / 60
        said = [trouble for trouble in self._of(Gpus) if minute >= trouble.begins]
        says = said[-1] if said else Gpus()
        gpus = gpus_of(self.scenario, says, minute, [process.identity.rank for process in here], self._gpu_set)
        ports = ports_of(self.scenario, minute, int(sidecar.node.removeprefix("node")))
        views = sidecar.look(now, here, gpus, ports, logged(self.scenario, sidecar.node))
        status = exporter_status(says.state, says.blind, len(views))
        has_sidecar = not (here == [] and unseen)
        return Page(sidecar.node, tuple(views), status, listed=has_sidecar, scraped=scraped and has_sidecar)

    def _is_gap(self, now: float, gap: Gap) -> bool:
        since = now - self.moment(gap.at)
        return since >= 0 and math.fmod(since, gap.every * 60) < gap.seconds

    def _of(self, kind: type[Kind]) -> list[Kind]:
        return [trouble for trouble in self.scenario.troubles if isinstance(trouble, kind)]
