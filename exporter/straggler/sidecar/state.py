"""What the sidecar knows: the last reading of each source, and what follows from all of them together."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from straggler.detect.lately import Lately
from straggler.detect.policy import DEFAULT
from straggler.detect.trail import Trails
from straggler.join.match import match
from straggler.join.nccl import link
from straggler.join.network import name_node, with_ports
from straggler.join.node import own_gpus, still_blind, unseen_gpus
from straggler.join.view import RankView
from straggler.metrics.self_metrics import ExporterStatus, SourceStatus
from straggler.model.clock import Clock
from straggler.model.gpu import GpuFacts
from straggler.model.host import NodeHost, RankHost
from straggler.model.nccl import NcclFacts
from straggler.model.network import PortFacts
from straggler.model.rank import RankFacts, RankKey, RankState
from straggler.model.reading import Problem, Reading, SourceState
from straggler.sidecar.merge import merge_gpus, merge_ranks, most_alive
from straggler.sidecar.scrape import Outcome, Source, SourceCounts
from straggler.sidecar.trouble import TroubleLog

_log = logging.getLogger(__name__)

Fact = TypeVar("Fact")


_TRUSTED = frozenset({0, os.geteuid()})
"""Users whose logs are believed for any rank: root, who collects the output of containers, and whoever runs this."""

MAX_GPUS = 512
"""MIG makes at most seven of one GPU. More than this is the page of a cluster, and not of a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that is known at one moment. It never changes, so any number of answers can be made from it."""

    taken: float
    """Seconds since the epoch."""
    taken_monotonic: float
    views: tuple[RankView, ...] = ()
    """Ordered by run and rank."""
    gpus: tuple[GpuFacts, ...] = ()
    lately: Mapping[RankKey, Lately] = field(default_factory=dict)
    """Of the ranks that live: what their causes are reckoned from."""
    node: NodeHost | None = None
    ports: tuple[PortFacts, ...] = ()
    node_name: str = ""
    """What the ranks of this node call it."""
    status: ExporterStatus = field(default_factory=ExporterStatus)

    @property
    def stepping(self) -> bool:
        """Whether some rank is in the middle of its steps."""
        return any(
            view.rank.state is RankState.RUNNING and view.rank.recent is not None and view.rank.excluded_phase is None
            for view in self.views
        )

    @property
    def occupied(self) -> bool:
        """Whether any rank lives."""
        return any(view.rank.alive for view in self.views)


class NodeState:
    """Keeps readings and counts. Not for two threads at a time, but for ``count`` and ``tell``.

    Args:
        clock: both clocks.
        sources: those that will be asked.
        node_proven: whether the GPU page is known to be of this node.
        gpu_sharing: whether several ranks may be on one GPU.
        max_ranks: more are left out and counted.
        hang_after_seconds: for the page.
        host_name: what this node is called where no rank says it.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        sources: Iterable[Source],
        node_proven: bool,
        gpu_sharing: bool,
        max_ranks: int,
        hang_after_seconds: float,
        host_name: str,
    ) -> None:
        self._clock = clock
        self._counts = {source.name: source.counts for source in sources}
        self._node_proven = node_proven
        self._gpu_sharing = gpu_sharing
        self._max_ranks = max_ranks
        self._hang_after_seconds = hang_after_seconds
        self._host_name = host_name
        self._node_name = ""
        self._outcomes: dict[str, Outcome] = {}
        self._facts_at: dict[str, float] = {}
        self._last_views: dict[RankKey, RankView] = {}
        self._refused: Counter[tuple[str, str]] = Counter()
        self._counting = threading.Lock()
        self._untold: dict[tuple[str, str], Problem] = {}
        self._trouble = TroubleLog()
        self._trails = Trails(DEFAULT)

    def apply(self, outcomes: Mapping[str, Outcome]) -> None:
        """Take in what sources said: each outcome once, so that its problems are counted once."""
        with self._counting:
            untold, self._untold = self._untold, {}
        for (name, _), problem in untold.items():
            self._trouble.update(name, (problem,), now=self._clock.monotonic())
        for name, outcome in outcomes.items():
            said = self._log_change(name, outcome.reading)
            self._outcomes[name] = outcome
            if outcome.reading.state in (SourceState.OK, SourceState.STALE):
                self._facts_at[name] = outcome.ended
            self.count(name, outcome.reading.problems)
            self._trouble.update(
                name,
                (*outcome.reading.problems, *outcome.reading.blind),
                still=self._counts[name]().ranks_refused,
                said=said,
                now=self._clock.monotonic(),
            )

    def count(self, source: str, problems: Iterable[Problem]) -> None:
        """Count what was refused, also outside a look: a push, a sample of the page. Any thread may call it."""
        with self._counting:
            for problem in problems:
                self._refused[source, problem.reason] += problem.count

    def count_one(self, source: str, reason: str) -> None:
        """Count one refusal."""
        self.count(source, (Problem(reason=reason),))

    def tell(self, source: str, problem: Problem) -> None:
        """Have a problem that was counted outside a look logged with the next look. Any thread may call it."""
        with self._counting:
            self._untold.setdefault((source, problem.reason), problem)

    def snapshot(self, scrape_seconds: float | None = None) -> Snapshot:
        """Merge and join all that is known now."""
        readings = [outcome.reading for outcome in self._outcomes.values()]
        ranks = merge_ranks([_facts(reading, RankFacts) for reading in readings])
        told = {name: _facts(outcome.reading, GpuFacts) for name, outcome in self._outcomes.items()}
        gpus = merge_gpus(list(told.values()))
        own = own_gpus(gpus, told, node_proven=self._node_proven)
        shown = ranks if len(ranks) <= self._max_ranks else most_alive(ranks, self._max_ranks)
        logs = link(shown, [facts for reading in readings for facts in _facts(reading, NcclFacts)], trusted=_TRUSTED)
        joined = match(
            shown,
            own.gpus,
            node_proven=own.node_proven,
            sharing=self._gpu_sharing,
            logged_bus_ids=logs.bus_ids,
        )
        hosts = {host.key: host for reading in readings for host in _facts(reading, RankHost)}
        node = next((facts for reading in readings for facts in _facts(reading, NodeHost)), None)
        ports = tuple(port for reading in readings for port in _facts(reading, PortFacts))
        named = name_node(shown, self._node_name, self._host_name)
        self._node_name = named.name
        views = [
            with_ports(logs.add_to(self._with_last_gpu(_with_host(view, hosts))), ports, named.name) for view in joined
        ]
        self._last_views = {view.rank.key: view for view in views}
        if len(gpus) > MAX_GPUS:
            self.count("metrics", (Problem(reason="too_many_gpus", count=len(gpus) - MAX_GPUS),))
        unseen = unseen_gpus(
            told,
            shown,
            node_proven=self._node_proven,
            sharing=self._gpu_sharing,
            installed=node.gpu_bus_ids if node else frozenset(),
        )
        if ports:
            unseen["infiniband"] = named.problems()
        if (nccl := self._outcomes.get("nccl")) is not None and nccl.reading.state is SourceState.OK:
            unseen["nccl"] = logs.without_log(shown)
        for name in told:
            self._trouble.update(f"{name} here", unseen.get(name, ()), now=self._clock.monotonic())
        return Snapshot(
            taken=self._clock.time(),
            taken_monotonic=self._clock.monotonic(),
            views=tuple(sorted(views, key=lambda view: view.rank.key)),
            gpus=gpus[:MAX_GPUS],
            lately=self._trails.look(self._clock.monotonic(), views),
            node=node,
            ports=ports,
            node_name=named.name,
            status=replace(
                self._status(scrape_seconds, too_many=len(ranks) - len(shown), gpus=gpus, unseen=unseen),
                nccl_unlinked=logs.unlinked,
            ),
        )

    def _with_last_gpu(self, view: RankView) -> RankView:
        """Name the GPU that a rank was on, once it is gone: an alert on its crash has to say where. Without values."""
        last = self._last_views.get(view.rank.key)
        if view.rank.alive or view.gpu is not None or last is None or last.gpu is None:
            return view
        gpu = replace(last.gpu, values={}, clocks_event_seconds={}, clocks_event_reasons={})
        return RankView(rank=view.rank, gpu=gpu, evidence=last.evidence, unmatched_reason="")

    def _status(
        self,
        scrape_seconds: float | None,
        too_many: int,
        gpus: Sequence[GpuFacts],
        unseen: Mapping[str, Sequence[Problem]],
    ) -> ExporterStatus:
        counts = {name: count() for name, count in self._counts.items()}
        with self._counting:
            refused = dict(self._refused)
        ranks_refused = Counter[str]()
        for each in counts.values():
            ranks_refused.update(each.ranks_refused)
        if too_many:
            ranks_refused["too_many_ranks"] += too_many
        blind = still_blind({name: outcome.reading.blind for name, outcome in self._outcomes.items()}, gpus)
        removed = [each.rings_removed for each in counts.values() if each.rings_removed is not None]
        return ExporterStatus(
            sources=tuple(
                self._source_status(
                    name,
                    outcome,
                    counts[name],
                    blind=(*blind[name], *unseen.get(name, ())),
                )
                for name, outcome in self._outcomes.items()
            ),
            refused=refused,
            ranks_refused=ranks_refused,
            scrape_seconds=scrape_seconds,
            rings_removed=sum(removed) if removed else None,
            hang_after_seconds=self._hang_after_seconds,
            nccl_logs=next((each.logs for each in counts.values() if each.logs is not None), None),
        )

    def _source_status(
        self, name: str, outcome: Outcome, counts: SourceCounts, blind: Iterable[Problem]
    ) -> SourceStatus:
        blind_counts = Counter[str]()
        for problem in blind:
            blind_counts[problem.reason] += problem.count
        facts_at = self._facts_at.get(name)
        return SourceStatus(
            source=name,
            state=outcome.reading.state,
            duration_seconds=outcome.reading.duration_seconds,
            age_seconds=None if facts_at is None else max(0.0, self._clock.monotonic() - facts_at),
            blind=blind_counts,
            records_read=counts.records_read,
            records_missed=counts.records_missed,
        )

    def _log_change(self, name: str, now: Reading[Any]) -> bool:
        """Say that a source has become another, and why; tell whether the reasons have been said."""
        before = self._outcomes.get(name)
        if before is not None and before.reading.state is now.state:
            return False
        is_bad = now.state in (SourceState.FAILED, SourceState.STALE)
        why = "; ".join(f"{problem.reason}: {problem.detail}" for problem in (*now.problems, *now.blind)[:3])
        _log.log(
            logging.WARNING if is_bad else logging.INFO,
            "source %s is %s%s",
            name,
            now.state.value,
            f": {why}" if is_bad and why else "",
        )
        return is_bad


def _with_host(view: RankView, hosts: Mapping[RankKey, RankHost]) -> RankView:
    """Add what the operating system says. A pushed rank has no ring here, and so no process either."""
    host = hosts.get(view.rank.key) if view.rank.source == "rings" else None
    return view if host is None else replace(view, host=host)


def _facts(reading: Reading[Any], kind: type[Fact]) -> tuple[Fact, ...]:
    return tuple(fact for fact in reading.facts if isinstance(fact, kind))
