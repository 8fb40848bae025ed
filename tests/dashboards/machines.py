"""What the machines of a run show: GPUs, the host, the RDMA ports, NCCL's log.

They move with their ranks, and the fault of the course's scenario shows where it would in a real machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from dashboards.history import Course, RankCourse
from straggler.model.gpu import CLOCKS_EVENT_BITS, GpuFacts, GpuKey
from straggler.model.host import NodeHost, RankHost
from straggler.model.nccl import NcclFacts
from straggler.model.network import PortFacts, PortKey
from straggler.model.rank import RankKey

HOT_MINUTES = 6.0
"""How long a GPU gets warmer before its clock is held down."""
BYTES_PER_STEP = 28e9
"""Given to all-reduce by each rank."""

_CLOCK_HERTZ = 1.98e9
_PORT_GIGABITS = 400


def _works(rank: RankCourse, now: float) -> bool:
    return rank.steps > 0 and now - rank.clock < 60 and not rank.crashed


def _heat(course: Course, rank: RankCourse, now: float) -> float:
    """From 0 to 1, as the GPU gets too hot."""
    fault = course.scenario.fault
    if course.held_by != "hw_thermal" or rank.number != fault.rank:
        return 0.0
    return min(1.0, max(0.0, (now - course.trouble_begins) / 60 / HOT_MINUTES + 1))


def gpu_of(course: Course, rank: RankCourse, now: float) -> GpuFacts:
    """The GPU of a rank: it waits when the rank waits, and is hot before it is slow."""
    dice = Random(f"{course.scenario.run}/{rank.number}/{int(now)}")
    working = _works(rank, now)
    busy = rank.busy if working else 0.0
    held = course.held_by if working and course.afflicts(rank.number, now) else ""
    factor = course.scenario.fault.factor if held else 1.0
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
        "temperature_celsius": round(38 + 28 * busy + 21 * _heat(course, rank, now) + dice.uniform(-1, 1)),
        "memory_temperature_celsius": round(46 + 32 * busy + 14 * _heat(course, rank, now) + dice.uniform(-1, 1)),
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
        "sw_power_cap": not held and working and dice.random() < 0.05,
        "hw_slowdown": bool(held),
        "gpu_idle": not working,
        **({held: True} if held else {}),
    }
    return GpuFacts(
        key=GpuKey(gpu_uuid(course.scenario.run, rank.number)),
        values=values,
        clocks_event_seconds={
            "sw_power_cap": rank.wall * 0.03,
            **dict.fromkeys(("sw_thermal", "hw_thermal", "hw_power_brake"), 0.0),
            **({course.held_by: rank.held_seconds} if course.held_by else {}),
        },
        clocks_event_reasons={name: float(active.get(name, False)) for name in CLOCKS_EVENT_BITS.values()},
        gpu=rank.number % course.per_node,
        pci_bus_id=f"00000000:{0x1A + 0x10 * (rank.number % course.per_node):02X}:00.0",
        model="NVIDIA H100 80GB HBM3",
    )


def host_of(course: Course, rank: RankCourse, now: float) -> RankHost:
    """The process of a rank, in a pod of its own."""
    ready = rank.wall * 0.002 + rank.delayed_seconds
    return RankHost(
        key=RankKey(course.scenario.run, rank.number),
        values={
            "cpu_user_seconds_total": rank.wall * 0.85,
            "cpu_system_seconds_total": rank.wall * 0.06,
            "run_delay_seconds_total": ready,
            "io_wait_seconds_total": rank.phases["data"] * 0.02,
            "major_faults_total": 40.0,
            "cpu_periods_total": (now - course.begins) * 10,
            "cpu_throttled_periods_total": 0.0,
            "cpu_throttled_seconds_total": 0.0,
        },
        pressure=_pressure(ready, rank.wall * 0.0004, rank.phases["data"] * 0.02),
        memory_events=dict.fromkeys(("high", "max", "oom", "oom_kill"), 0.0),
    )


def node_host(course: Course, ranks: Sequence[RankCourse], now: float) -> NodeHost:
    """The node of these ranks: a CPU that one of them lacks is one that something else on the node has."""
    delayed = max(rank.delayed_seconds for rank in ranks)
    lasted = now - course.begins
    return NodeHost(pressure=_pressure(lasted * 0.01 + delayed, lasted * 0.0005, lasted * 0.004))


def _pressure(cpu: float, memory: float, disk: float) -> dict[tuple[str, str], float]:
    some = {"cpu": cpu, "memory": memory, "io": disk}
    return {(name, share): spent * (1 if share == "some" else 0.3) for name, spent in some.items() for share in _SHARES}


_SHARES = ("some", "full")


def ports_of(course: Course, node: int, ranks: Sequence[RankCourse], now: float) -> tuple[PortFacts, ...]:
    """As many adapters as GPUs; NCCL spreads the exchange over all of them."""
    fault = course.scenario.fault
    link = fault.kind.symptoms.link
    faulty = link is not None and node == fault.rank // course.per_node and course.troubled(now)
    return tuple(
        _port(course, device, ranks, now, spoilt=faulty and device == fault.rank % course.per_node)
        for device in range(course.per_node)
    )


def _port(course: Course, device: int, ranks: Sequence[RankCourse], now: float, *, spoilt: bool) -> PortFacts:
    link = course.scenario.fault.kind.symptoms.link if spoilt else None
    gigabits = link.gigabits_per_second if link else _PORT_GIGABITS
    sent = sum(rank.steps for rank in ranks) * BYTES_PER_STEP / len(ranks)
    lasted = now - course.trouble_begins
    counters = {
        "transmit_bytes_total": sent,
        "receive_bytes_total": sent,
        "transmit_waits_total": sent / 1e6,
        "symbol_errors_total": lasted * link.symbol_errors_per_second if link else 0.0,
        "link_recoveries_total": link.recoveries if link else 0.0,
    }
    return PortFacts(
        key=PortKey(f"mlx5_{device}", 1),
        up=True,
        lost=False,
        rate_bytes_per_second=gigabits * 1e9 / 8,
        best_rate_bytes_per_second=_PORT_GIGABITS * 1e9 / 8,
        counters={**dict.fromkeys(_QUIET_COUNTERS, 0.0), **counters},
        link_layer="InfiniBand",
        state="ACTIVE",
        physical_state="LinkUp",
        rate_text=f"{gigabits:.0f} Gb/sec ({link.lanes if link else '4X NDR'})",
        board="MT_0000000838",
        firmware="28.43.1014",
    )


_QUIET_COUNTERS = (
    "link_downs_total",
    "receive_errors_total",
    "transmit_discards_total",
    "out_of_sequence_total",
    "acknowledge_timeouts_total",
    "retransmissions_total",
    "cnp_handled_total",
    "ecn_marked_total",
)


def nccl_of(course: Course, rank: RankCourse, node: str, attempt: int) -> NcclFacts:
    """NVLink inside the node, InfiniBand between nodes."""
    local = rank.number % course.per_node
    return NcclFacts(
        host=node,
        pid=4200 + local,
        rank=rank.number,
        nranks=course.scenario.ranks,
        version="2.27.7",
        cuda_version="13.0",
        network="IB",
        channels={"p2p": 16, "ib": 8} if course.nodes > 1 else {"p2p": 24},
        gdr_ratio=1.0 if course.nodes > 1 else None,
        nvls=True,
        is_complete=True,
        warnings={"remote_closed": attempt},
    )


def _on_grid(hertz: float) -> float:
    """Clocks come in steps of 15 MHz."""
    return round(hertz / 15e6) * 15e6


def gpu_uuid(run: str, rank: int) -> str:
    """The same in each scrape."""
    dice = Random(f"{run}/{rank}")
    digits = f"{dice.getrandbits(128):032x}"
    return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
