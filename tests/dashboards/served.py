"""What the exporter would have served at a moment of a run.

The series are the product's own (``straggler.metrics``), so what is drawn has the names, labels and meanings of a real
page. The GPUs move with their ranks: they wait when the rank waits, and are hot before they are slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from dashboards.history import Course, RankCourse, Run
from straggler.join.view import RankView
from straggler.metrics.book import MetricBook
from straggler.metrics.families import add_gpus, add_ranks
from straggler.metrics.self_metrics import ExporterStatus, SourceStatus, add_exporter
from straggler.model.gpu import CLOCKS_EVENT_BITS, GpuFacts, GpuKey
from straggler.model.rank import RankFacts, RankState, Totals
from straggler.model.reading import SourceState
from straggler.wire.recent import Recent
from straggler.wire.records import Identity

HOT_MINUTES = 6.0
"""How long a GPU gets warmer before its clock is held down."""
HUNG_SECONDS = 120.0

_CLOCK_HERTZ = 1.98e9
_BYTES_PER_STEP = 28e9
_TOKENS = 16_384
_FLOPS = 6 * 13e9 * _TOKENS


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
        add_gpus(book, [_gpu(course, rank, now) for rank in here])
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
        totals=_totals(rank, measured=measured) if rank.steps else None,
        recent=None if rank.crashed else recent,
        step=rank.last_step or None,
        last_step_timestamp_seconds=rank.clock if rank.steps else None,
        excluded_phase=None,
        own_reason="measured" if measured else "no_wait_phase",
        since_progress_seconds=silent,
    )
    return RankView(
        rank=facts,
        gpu=_gpu(course, rank, now) if matched else None,
        evidence="uuid" if matched else "",
        unmatched_reason="" if matched else "no_evidence",
    )


def _identity(run: Run, rank: RankCourse, node: str) -> Identity:
    course = run.course
    local = rank.number % course.per_node
    return Identity(
        run=course.scenario.run,
        rank=rank.number,
        node=node,
        world_size=course.scenario.ranks,
        local_rank=local,
        local_world_size=course.per_node,
        attempt=run.attempt,
        gpu_uuid=_uuid(course.scenario.run, rank.number),
        gpu=local,
        pci_bus_id=f"00000000:{0x1A + 0x10 * local:02X}:00.0",
        slurm_job="48213",
        user="mira",
        framework="torch 2.13.0",
        clock="cuda",
        hook_version="0.1.0",
    )


def _totals(rank: RankCourse, *, measured: bool) -> Totals:
    return Totals(
        steps=rank.steps,
        step_seconds=rank.wall,
        own_seconds=rank.own if measured else None,
        wait_seconds=rank.wait if measured else None,
        phase_seconds=dict(rank.phases),
        arrivals=rank.steps * 2 - (1 if rank.crashed else 0),
        tokens=rank.steps * _TOKENS,
        samples=rank.steps * 4,
        flops=rank.steps * _FLOPS,
        allreduce_bytes=int(rank.steps * _BYTES_PER_STEP),
        host_data_seconds=rank.phases["data"],
    )


def _gpu(course: Course, rank: RankCourse, now: float) -> GpuFacts:
    dice = Random(f"{course.scenario.run}/{rank.number}/{int(now)}")
    recent = rank.recent
    working = recent is not None and now - rank.clock < 60 and not rank.crashed
    busy = 0.0
    if recent is not None and working and recent.own_mean_seconds is not None:
        busy = recent.own_mean_seconds / recent.step_mean_seconds
    throttled = working and course.troubled(now) and course.throttles(rank.number)
    heat = 0.0
    if course.throttles(rank.number):
        heat = min(1.0, max(0.0, (now - course.trouble_begins) / 60 / HOT_MINUTES + 1))
    factor = course.scenario.fault.factor if throttled else 1.0
    waver = 1 + dice.gauss(0, 0.01)
    sm_active = busy * 0.86 * waver
    values = {
        "utilization_ratio": (0.985 + dice.uniform(-0.01, 0.01)) if working else 0.0,
        "sm_active_ratio": sm_active,
        "sm_occupancy_ratio": sm_active * 0.42,
        "tensor_active_ratio": sm_active * 0.58,
        "dram_active_ratio": sm_active * 0.5,
        "graphics_engine_active_ratio": 0.99 if working else 0.0,
        "memory_copy_utilization_ratio": sm_active * 0.5,
        "sm_clock_hertz": _on_grid(_CLOCK_HERTZ / factor * (1 + dice.gauss(0, 0.004))),
        "sm_clock_max_hertz": _CLOCK_HERTZ,
        "memory_clock_hertz": 2.619e9,
        "performance_state": 0.0,
        "temperature_celsius": round(38 + 28 * busy + 21 * heat + dice.uniform(-1, 1)),
        "memory_temperature_celsius": round(46 + 32 * busy + 14 * heat + dice.uniform(-1, 1)),
        "power_watts": (110 + 560 * busy / factor**1.6) * waver,
        "power_limit_watts": 700.0,
        "energy_joules_total": 5e9 + (now - course.begins) * 600,
        "memory_used_bytes": 71.5e9,
        "memory_free_bytes": 13.5e9,
        "memory_reserved_bytes": 0.6e9,
        "memory_total_bytes": 85.6e9,
        "xid_last": 0.0,
        "ecc_single_bit_errors_total": 2.0,
        "ecc_double_bit_errors_total": 0.0,
        "remapped_rows_correctable": 0.0,
        "remapped_rows_uncorrectable": 0.0,
        "row_remap_failed": 0.0,
        "pcie_replays_total": 0.0,
        "pcie_transmit_bytes_per_second": 0.9e9 * busy * waver,
        "pcie_receive_bytes_per_second": 1.7e9 * busy * waver,
        "pcie_link_generation": 5.0,
        "pcie_link_width": 16.0,
        "pcie_link_generation_max": 5.0,
        "pcie_link_width_max": 16.0,
        "nvlink_transmit_bytes_per_second": 21e9 * waver * (1 if working else 0),
        "nvlink_receive_bytes_per_second": 20e9 * waver * (1 if working else 0),
        "nvlink_bytes_per_second": 41e9 * waver * (1 if working else 0),
        "nvlink_flit_crc_errors_total": 0.0,
        "nvlink_data_crc_errors_total": 0.0,
        "nvlink_replays_total": 0.0,
        "nvlink_recoveries_total": 0.0,
    }
    active = {
        "sw_power_cap": not throttled and working and dice.random() < 0.05,
        "hw_slowdown": throttled,
        "hw_thermal": throttled,
        "gpu_idle": not working,
    }
    return GpuFacts(
        key=GpuKey(_uuid(course.scenario.run, rank.number)),
        values=values,
        clocks_event_seconds={
            "sw_power_cap": rank.wall * 0.03,
            "sw_thermal": 0.0,
            "hw_thermal": rank.held_seconds,
            "hw_power_brake": 0.0,
        },
        clocks_event_reasons={name: float(active.get(name, False)) for name in CLOCKS_EVENT_BITS.values()},
        gpu=rank.number % course.per_node,
        pci_bus_id=f"00000000:{0x1A + 0x10 * (rank.number % course.per_node):02X}:00.0",
        model="NVIDIA H100 80GB HBM3",
    )


def _status(run: Run, node: int, now: float) -> ExporterStatus:
    course = run.course
    blind = course.trouble == "blind" and course.troubled(now)
    dice = Random(f"{course.scenario.run}/exporter/{node}/{int(now)}")
    age = now - course.trouble_begins if blind else 0.0
    read = sum(rank.steps for rank in run.ranks[: course.per_node])
    return ExporterStatus(
        sources=(
            SourceStatus(
                source="rings",
                state=SourceState.OK,
                duration_seconds=0.002 * dice.uniform(0.8, 1.4),
                age_seconds=0.0,
                records_read=read,
                records_missed=0,
            ),
            SourceStatus(
                source="dcgm",
                state=SourceState.STALE if blind else SourceState.OK,
                duration_seconds=0.011 * dice.uniform(0.8, 1.6),
                age_seconds=age,
                blind={"sm_active_absent": 2} if blind else {},
            ),
            SourceStatus(source="push", state=SourceState.ABSENT),
        ),
        refused={("dcgm", "bad_value"): int(age / 30), ("rings", "bad_checksum"): 1},
        ranks_refused={"duplicate_rank": 1 if blind else 0},
        scrape_seconds=0.018 * dice.uniform(0.8, 1.5),
        rings_removed=run.attempt * course.per_node,
        hang_after_seconds=120.0,
    )


def _on_grid(hertz: float) -> float:
    """Clocks come in steps of 15 MHz."""
    return round(hertz / 15e6) * 15e6


def _uuid(run: str, rank: int) -> str:
    dice = Random(f"{run}/{rank}")
    digits = f"{dice.getrandbits(128):032x}"
    return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
