"""What faults do to a rank and to what can be seen of it: the numbers of the attribution table, each with its source.

They say how machines behave, not where a threshold lies: nothing here imports the policy. A fault draws its own
strength from a range, so that a table is over weak and strong cases alike. Ranges without a source beside them are
ours, wide on purpose. Mixed faults act on one rank together; of two that hold the clock down, the lower clock counts
and is the one that is reported, as in the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

HEALTHY_CLOCK_HERTZ = 1_980e6
"""SM clock of an H100 under load: nvidia-smi 590 on an H100 80GB HBM3, ``clocks.current.sm`` and ``clocks.max.sm``."""
POWER_LIMIT_WATTS = 700.0
"""Of the same: ``power.limit``."""
CLOCK_SPREAD = 0.015
"""Between GPUs of one kind, by silicon and place in the chassis."""
TENSOR_ACTIVE = 0.45
TENSOR_SPREAD = 0.02
"""Of one GPU from look to look: PROF counters are multiplexed."""
PCIE_GENERATION = 5.0
PCIE_WIDTH = 16.0
"""``pcie.link.gen.max`` and ``pcie.link.width.max`` of the same H100."""
PCIE_BYTES_PER_LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9}
"""Per direction: PCI-SIG base specifications, transfer rate times coding (8b/10b, from generation 3 on 128b/130b)."""
PCIE_EFFICIENCY = (0.75, 0.9)
"""Share of it that copies of pinned memory get."""

STEP_OWN_SECONDS = (0.25, 1.2)
DATA_SHARE = (0.01, 0.08)
"""Of own time: a loader that prefetches."""
H2D_SHARE = (0.02, 0.08)
EXCHANGE_SHARE = 0.23
"""Of the step: the reference step spends 23 % in its all-reduce."""
COMPUTE_BOUND = (0.6, 1.0)
"""Share of the compute time that follows the SM clock; the rest follows memory."""
RUN_DELAY_SHARE = (0.0, 0.01)
"""Of the wall time: the main thread of a healthy rank waits for a CPU that much."""
MEMORY_PRESSURE = (0.0, 0.005)
POWER_CAP_SHARE = (0.0, 0.4)
"""``sw_power_cap`` is normal under load."""
TOKENS = 8192.0


@dataclass(slots=True)
class Afflicted:
    """One rank as its faults make it: seconds a step and what is seen of it."""

    well: float
    """Own time without faults."""
    compute: float
    """At the healthy clock."""
    data: float
    h2d: float
    compute_bound: float
    stalls: float = 0.0
    """Of the host, in the compute phases."""
    clock_ratio: float = 1.0
    reason: str = ""
    """The clocks event reason that holds the clock at this ratio, if it is one that is counted …"""
    held_share: float = 0.0
    """… for this share of the time …"""
    flag: str = ""
    """… or one that is only flagged."""
    power_limit: float = POWER_LIMIT_WATTS
    width: float = PCIE_WIDTH
    generation: float = PCIE_GENERATION
    run_delay: float = 0.0
    """Seconds a step."""
    memory_stall: float = 0.0
    """Seconds a step."""
    work_ratio: float = 1.0
    """Arithmetic done, times the peers'."""
    tokens_ratio: float = 1.0
    xids: dict[int, int] = field(default_factory=dict)
    double_bit_errors: int = 0
    row_remap_pending: bool = False
    port_ratio: float = 1.0
    """Speed of one RDMA port of its node, of the full one."""
    sockets: bool = False
    """NCCL goes over TCP on its node."""
    exchange_ratio: float = 1.0
    """What the exchange takes longer, for all ranks."""

    @property
    def computing(self) -> float:
        """Seconds a step in the compute phases."""
        return self.compute * (1 + self.compute_bound * (1 / self.clock_ratio - 1)) + self.stalls

    @property
    def own(self) -> float:
        """Seconds a step."""
        return self.computing + self.data + self.h2d


Fault = Callable[[Afflicted, Random], None]


def _slow_clock(rank: Afflicted, ratio: float, reason: str = "", share: float = 0.0, flag: str = "") -> None:
    if ratio < rank.clock_ratio:
        rank.clock_ratio, rank.reason, rank.held_share, rank.flag = ratio, reason, share, flag


def thermal(rank: Afflicted, dice: Random) -> None:
    """Software backs off bit by bit, hardware halves the clock and worse.

    Source: NVML, ``nvmlClocksThrottleReasonHwSlowdown``: "reducing the core clocks by a factor of 2 or more".
    """
    if dice.random() < 0.5:
        ratio, reason = dice.uniform(0.60, 0.88), dice.choice(["sw_thermal", "thermal"])
    else:
        ratio, reason = dice.uniform(0.35, 0.60), "hw_thermal"
    _slow_clock(rank, ratio, reason, dice.uniform(0.5, 1.0))


def power_brake(rank: Afflicted, dice: Random) -> None:
    """A rack or a power supply pulls the brake.

    Source: a C4130 with V100s in the field, SM 382 MHz instead of about 1,530; NVML says "a factor of 2 or more".
    """
    _slow_clock(rank, dice.uniform(0.25, 0.60), "hw_power_brake", dice.uniform(0.8, 1.0))


def power_cap(rank: Afflicted, dice: Random) -> None:
    """Somebody has lowered one GPU's power limit. Clock goes with the square to the cube root of power."""
    rank.power_limit = dice.uniform(300.0, 500.0)
    ratio = (rank.power_limit / POWER_LIMIT_WATTS) ** dice.uniform(1 / 3, 1 / 2)
    _slow_clock(rank, ratio, "sw_power_cap", dice.uniform(0.7, 1.0))


def clocks_set_low(rank: Afflicted, dice: Random) -> None:
    """Application or locked clocks that somebody forgot. Newer drivers no longer give a reason for them.

    Source: nvml.h: ``ApplicationsClocksSetting``, "no longer used".
    """
    flag = "applications_clocks_setting" if dice.random() < 0.5 else ""
    _slow_clock(rank, dice.uniform(0.45, 0.85), flag=flag)


def pcie_degraded(rank: Afflicted, dice: Random) -> None:
    """Lanes or generations are lost, so copies take longer by as much.

    Source: nvidia-smi -q, ``Link Width: Current 4x``, in the field; a slot or riser that trains at generation 1.
    """
    width, generation = dice.choice([(4.0, 5.0), (2.0, 5.0), (1.0, 5.0), (16.0, 1.0), (16.0, 2.0), (8.0, 3.0)])
    rank.width, rank.generation = width, generation
    full = PCIE_WIDTH * PCIE_BYTES_PER_LANE[int(PCIE_GENERATION)]
    rank.h2d *= full / (width * PCIE_BYTES_PER_LANE[int(generation)])


def gpu_errors(rank: Afflicted, dice: Random) -> None:
    """The GPU computes slower at its clock, and has said what is wrong.

    Source: NVIDIA's XID list: 48 double-bit ECC, 63 and 64 row remapping, 92 many single-bit errors, 94 contained.
    """
    number = dice.choice([48, 63, 64, 92, 94])
    rank.xids[number] = dice.randint(1, 5)
    if number == 48:
        rank.double_bit_errors = 1
    rank.row_remap_pending = number == 63
    rank.compute *= dice.uniform(1.15, 1.7)


def host_cpu(rank: Afflicted, dice: Random) -> None:
    """Other threads on the core of the training thread: it is ready and does not run.

    Source: ``/proc/PID/schedstat``, second field: time spent waiting on a runqueue. With k equal threads on its core a
    thread gets one part in k + 1.
    """
    host_bound = dice.uniform(0.15, 0.6) * rank.well
    delay = host_bound * dice.choice([1, 2, 3])
    loading = dice.uniform(0.0, 0.5)
    rank.stalls += delay * (1 - loading)
    rank.data += delay * loading
    rank.run_delay += delay * dice.uniform(0.85, 1.0)


def data_loading(rank: Afflicted, dice: Random) -> None:
    """The next batch is not there."""
    rank.data += rank.well * dice.uniform(0.2, 1.5)


def memory(rank: Afflicted, dice: Random) -> None:
    """The control group reclaims pages, and the rank stands still meanwhile.

    Source: Documentation/accounting/psi.rst: ``some`` is the share of time in which at least one task is stalled.
    """
    stall = rank.well * dice.uniform(0.2, 1.0)
    rank.stalls += stall * 0.7
    rank.data += stall * 0.3
    rank.memory_stall += stall * dice.uniform(0.8, 1.2)


def work(rank: Afflicted, dice: Random) -> None:
    """More tokens, or popular experts: more arithmetic at the same speed.

    Source: WLB-LLM: the slowest GPU of a job has 1.44 times the compute; sequence length is the cause of 21 % of the
    straggling jobs of a large cluster, on average 1.34 times.
    """
    ratio = dice.uniform(1.15, 1.6)
    rank.compute *= ratio
    rank.work_ratio *= ratio
    if dice.random() < 0.5:
        rank.tokens_ratio *= ratio


def unknown(rank: Afflicted, dice: Random) -> None:
    """Slow, and nothing that can be seen says why: bad memory timing, a library built for another GPU."""
    rank.compute *= dice.uniform(1.15, 1.7)


def link(rank: Afflicted, dice: Random) -> None:
    """A cable or transceiver comes up at a lower speed, and every ring through it goes at that.

    Source: rates of one adapter in sysfs: 400 Gb/sec (4X NDR), 200 (4X HDR), 100 (4X EDR), 25 (1X EDR).
    """
    rank.port_ratio = dice.choice([0.5, 0.25, 0.0625])
    rank.exchange_ratio = dice.uniform(1.3, min(4.0, 1 / rank.port_ratio))


def transport(rank: Afflicted, dice: Random) -> None:
    """NCCL falls back to sockets: 10 to 25 Gb/s of TCP instead of 400 Gb/s."""
    rank.sockets = True
    rank.exchange_ratio = dice.uniform(4.0, 12.0)


FAULTS: Mapping[str, Fault] = {
    fault.__name__: fault
    for fault in (
        thermal,
        power_brake,
        power_cap,
        clocks_set_low,
        pcie_degraded,
        gpu_errors,
        host_cpu,
        data_loading,
        memory,
        work,
        unknown,
    )
}
"""Faults that make one rank slow, by the name of the cause."""

NETWORK_FAULTS: Mapping[str, Fault] = {"link": link, "transport": transport}
"""Faults of one node that make no rank slow: everybody waits longer. The alert is another one, and names the node."""

PORTS = 4
PORT_BYTES_PER_SECOND = 50e9
"""400 Gb/s."""

JITTERS = (0.0, 0.02, 0.05, 0.08)
"""Standard deviation of each phase of each step."""
TUNING_SEEDS = tuple(range(1, 11))
HELD_OUT_SEEDS = tuple(range(1001, 1013))
"""Nothing is tuned on these: they make the printed figures."""
