"""What the exporter would have served at a moment of a run.

The series are the product's own (``straggler.metrics``), so what is drawn has the names, labels and meanings of a real
page. What the machines show is in ``machines.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from dashboards.history import RankCourse, Run
from dashboards.machines import BYTES_PER_STEP, gpu_of, gpu_uuid, host_of, nccl_of, node_host, ports_of
from straggler.join.view import RankView
from straggler.metrics.book import MetricBook
from straggler.metrics.families import add_gpus, add_network, add_node, add_ranks
from straggler.metrics.self_metrics import ExporterStatus, SourceStatus, add_exporter
from straggler.model.rank import RankFacts, RankState, Totals
from straggler.model.reading import SourceState
from straggler.wire.recent import Recent
from straggler.wire.records import Identity

HUNG_SECONDS = 120.0

_FLOPS_PER_TOKEN = 6 * 13e9


_LOOK_SECONDS = {"rings": 0.002, "dcgm": 0.011, "nvml": 0.006, "host": 0.003, "infiniband": 0.004, "nccl": 0.0007}
"""How long a look at each source takes."""
_BLIND = {"dcgm": {"sm_active_absent": 2}, "infiniband": {"counters_hidden": 8}, "nccl": {"rank_without_log": 1}}
"""What the blind exporters do not see."""


@dataclass(frozen=True)
class Page:
    """One scrape of one node."""

    time: float
    target: dict[str, str]
    """The labels that Prometheus adds."""
    book: MetricBook

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """Name, labels and value of all that Prometheus would store."""
        yield "up", self.target, 1.0
        for family in self.book.collect():
            for sample in family.samples:
                yield sample.name, {**sample.labels, **self.target}, sample.value


def pages(run: Run, now: float) -> Iterator[Page]:
    """One page for each node that is scraped."""
    course = run.course
    for node in range(course.nodes):
        if course.trouble == "unseen" and course.troubled(now) and node >= course.nodes // 2:
            continue
        here = run.ranks[node * course.per_node : (node + 1) * course.per_node]
        name = f"{course.scenario.run.split('-')[0]}-gpu-{node + 1:02d}"
        views = [_view(run, rank, name, now) for rank in here]
        book = MetricBook()
        add_ranks(book, views)
        add_gpus(book, [gpu_of(course, rank, now) for rank in here])
        add_node(book, node_host(course, here, now))
        add_network(book, ports_of(course, node, here, now), name)
        add_exporter(book, _status(run, node, now), views)
        target = {"job": "straggler", "instance": f"{name}:10110"}
        yield Page(now, {**target, "cluster": course.cluster} if course.cluster else target, book)


def _view(run: Run, rank: RankCourse, node: str, now: float) -> RankView:
    course = run.course
    blind = course.trouble == "blind" and course.troubled(now)
    matched = not (blind and rank.number == 1)
    measured = not (blind and rank.number == 2)
    silent = max(0.0, now - rank.clock)
    state = RankState.CRASHED if rank.crashed else RankState.HUNG if silent > HUNG_SECONDS else RankState.RUNNING
    recent = rank.recent
    if recent is not None and not measured:
        recent = Recent(recent.steps, recent.step_mean_seconds, None, None, None, None)
    facts = RankFacts(
        identity=_identity(run, rank, node),
        state=state,
        totals=_totals(rank, course.scenario.tokens, measured=measured) if rank.steps else None,
        recent=None if rank.crashed else recent,
        step=rank.last_step or None,
        last_step_timestamp_seconds=rank.clock if rank.steps else None,
        excluded_phase=None,
        own_reason="measured" if measured else "no_wait_phase",
        since_progress_seconds=silent,
    )
    return RankView(
        rank=facts,
        gpu=gpu_of(course, rank, now) if matched else None,
        evidence="uuid" if matched else "",
        unmatched_reason="" if matched else "no_evidence",
        host=host_of(course, rank, now),
        nccl=nccl_of(course, rank, node, run.attempt) if measured else None,
    )


def _identity(run: Run, rank: RankCourse, node: str) -> Identity:
    course = run.course
    local = rank.number % course.per_node
    return Identity(
        run=course.scenario.run,
        rank=rank.number,
        node=node,
        peer_group=str(course.stage_of(rank.number)),
        world_size=course.scenario.ranks,
        local_rank=local,
        local_world_size=course.per_node,
        attempt=run.attempt,
        gpu_uuid=gpu_uuid(course.scenario.run, rank.number),
        gpu=local,
        pci_bus_id=f"00000000:{0x1A + 0x10 * local:02X}:00.0",
        slurm_job="48213",
        user="mira",
        framework="torch 2.13.0",
        clock="cuda",
        hook_version="0.1.0",
    )


def _totals(rank: RankCourse, tokens: int, *, measured: bool) -> Totals:
    return Totals(
        steps=rank.steps,
        step_seconds=rank.wall,
        own_seconds=rank.own if measured else None,
        wait_seconds=rank.wait if measured else None,
        phase_seconds=dict(rank.phases),
        arrivals=rank.steps * 2 - (1 if rank.crashed else 0),
        tokens=rank.steps * tokens,
        samples=rank.steps * 4,
        flops=rank.steps * tokens * _FLOPS_PER_TOKEN,
        allreduce_bytes=int(rank.steps * BYTES_PER_STEP),
        host_data_seconds=rank.phases["data"],
    )


def _status(run: Run, node: int, now: float) -> ExporterStatus:
    course = run.course
    blind = course.trouble == "blind" and course.troubled(now)
    dice = Random(f"{course.scenario.run}/exporter/{node}/{int(now)}")
    age = now - course.trouble_begins if blind else 0.0
    read = sum(rank.steps for rank in run.ranks[: course.per_node])

    def looked(source: str, seconds: float) -> SourceStatus:
        stale = blind and source == "dcgm"
        rings = source == "rings"
        return SourceStatus(
            source=source,
            state=SourceState.STALE if stale else SourceState.OK,
            duration_seconds=seconds * dice.uniform(0.8, 1.5),
            age_seconds=age if stale else 0.0,
            blind=_BLIND.get(source, {}) if blind else {},
            records_read=read if rings else None,
            records_missed=0 if rings else None,
        )

    return ExporterStatus(
        sources=(
            *(looked(source, seconds) for source, seconds in _LOOK_SECONDS.items()),
            SourceStatus(source="push", state=SourceState.ABSENT),
        ),
        refused={("dcgm", "bad_value"): int(age / 30), ("rings", "bad_checksum"): 1},
        ranks_refused={"duplicate_rank": 1 if blind else 0},
        scrape_seconds=0.018 * dice.uniform(0.8, 1.5),
        rings_removed=run.attempt * course.per_node,
        hang_after_seconds=120.0,
        nccl_logs=course.per_node - (1 if blind else 0),
        nccl_unlinked={"no_such_process": run.attempt * course.per_node},
    )
