"""What can go wrong in a simulated run: what it makes longer, for whom, what the node shows, and who must say so.

A fault with a number has it from the field, and the source stands beside it; none is taken from a threshold of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from straggler.simulate.work import Work


class Hits(Enum):
    """Whom a fault makes slower."""

    NOBODY = auto()
    """The training is well; what watches it is not."""
    RANK = auto()
    """One rank; the others wait for it."""
    EXCHANGE = auto()
    """All ranks alike: an all-reduce goes through every link, and is as fast as the slowest. Own time stays equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLink:
    """An RDMA port that has lost lanes."""

    gigabits_per_second: float
    lanes: str
    symbol_errors_per_second: float
    recoveries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptoms:
    """What the afflicted rank's GPU and adapter show from the onset on. The clock follows the speed."""

    reason_bits: int = 0
    """Of ``DCGM_FI_DEV_CLOCKS_EVENT_REASONS``."""
    counters: tuple[str, ...] = ()
    """Fields that count nanoseconds while the clock is held down."""
    celsius: int | None = None
    pcie_lanes: int | None = None
    frozen: bool = False
    """dcgm-exporter's page repeats itself for good, for all GPUs."""
    link: BadLink | None = None
    over_sockets: bool = False
    """NCCL found no adapter, though there are some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of fault."""

    text: str
    """For ``says``."""
    hits: Hits = Hits.RANK
    lengthens: tuple[str, ...] = ()
    """Parts of ``Work`` that take ``factor`` times as long."""
    factor: float = 1.0
    """Unless somebody wants another."""
    lowers_clock: bool = False
    """The SM clock falls as far as the computing gets slower."""
    competes: bool = False
    """The slowness is not acted: other threads compete for the rank's core, ``factor - 1`` of them."""
    work: Work = field(default_factory=Work)
    """A healthy rank's step, where the fault needs a part that the reference step has not."""
    symptoms: Symptoms = Symptoms()
    from_start: bool = False
    """What goes wrong does so when the job starts, and never in its middle."""
    ranks: int = 8
    """Unless somebody wants another number: what really computes needs processors."""
    nodes: int = 1
    alert: str = "TrainingStraggler"
    """Who must say so."""
    cause: str = ""
    """What must be named as the cause: a value of the label ``cause``; ``""``: nothing in particular."""

    def says(self, factor: float) -> str:
        """What becomes of the afflicted rank or node, as the second half of a sentence."""
        return self.text.format(megahertz=FULL_CLOCK_MHZ / factor, threads=round(factor) - 1)

    @property
    def has_strength(self) -> bool:
        """Whether it can be stronger or weaker; else the numbers that the node shows say how strong it is."""
        shown = self.symptoms
        return bool(self.lengthens) and shown.pcie_lanes is None and shown.link is None and not shown.over_sockets

    @property
    def by_rules_alone(self) -> bool:
        """Whether only Prometheus' rules can tell: it is about several nodes, or about the sidecar's own eyes."""
        return bool(self.alert) and self.hits is not Hits.RANK


_COMPUTE: Final = ("forward_seconds", "backward_seconds")
_SW_THERMAL, _HW_SLOWDOWN, _HW_POWER_BRAKE = 0x20, 0x08, 0x80  # nvml.h, nvmlClocksEventReasons
_THERMAL: Final = Symptoms(reason_bits=_SW_THERMAL, counters=("DCGM_FI_DEV_THERMAL_VIOLATION",), celsius=88)

FULL_CLOCK_MHZ: Final = 1980
"""Highest SM clock of an H100 or H200 SXM, as ``nvidia-smi -q`` of both prints it."""

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "none": Kind(text="stays well", hits=Hits.NOBODY, alert=""),
        "slow-rank": Kind(
            text="becomes slow", lengthens=_COMPUTE, factor=1.5, lowers_clock=True, symptoms=_THERMAL, cause="thermal"
        ),
        # 88 C as in a public write-up of a cloud GPU that fell to 510 of 1755 MHz. That was hardware's reaction, of
        # which nvml.h says "a factor of 2 or more"; here it is software's, which takes less.
        "thermal": Kind(
            text="gets too hot, its SM clock falls to {megahertz:,.0f} MHz",
            lengthens=_COMPUTE,
            factor=FULL_CLOCK_MHZ / 1155,
            lowers_clock=True,
            symptoms=_THERMAL,
            cause="thermal",
        ),
        # A public write-up of a C4130 with V100: HW Power Brake Slowdown active, SM at 382 of about 1530 MHz.
        "power-brake": Kind(
            text="is held back by the power brake, its SM clock falls to {megahertz:,.0f} MHz",
            lengthens=_COMPUTE,
            factor=1530 / 382,
            lowers_clock=True,
            symptoms=Symptoms(
                reason_bits=_HW_SLOWDOWN | _HW_POWER_BRAKE,
                counters=("DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS",),
            ),
            cause="power_brake",
        ),
        # The lanes are the bandwidth: a quarter of them takes four times as long.
        "pcie": Kind(
            text="has 4 of its 16 PCIe lanes left",
            lengthens=("h2d_seconds",),
            factor=16 / 4,
            work=Work(data_seconds=0.002, h2d_seconds=0.004),
            symptoms=Symptoms(pcie_lanes=4),
            cause="pcie_degraded",
        ),
        # As measured on four ranks of PyTorch DDP, of which one had 50 ms more to load in a step of 63 ms.
        "slow-loader": Kind(
            text="waits for its data",
            lengthens=("data_seconds",),
            factor=7.0,
            cause="data_loading",
        ),
        "host-cpu": Kind(
            text="shares its core with {threads} busy threads",
            lengthens=("host_seconds",),
            factor=11.0,
            competes=True,
            ranks=4,
            work=Work(host_seconds=0.004, forward_seconds=0.006),
            cause="host_cpu",
        ),
        # Lanes are lost, and the link comes up again with those that are left. A ring over four rails is done when its
        # slowest is. The specification allows one symbol error in 10^12 bits, at this speed one in ten seconds; this
        # cable makes a hundred times as many.
        "bad-cable": Kind(
            text="has a bad cable, one port falls from 400 to 100 Gb/s",
            hits=Hits.EXCHANGE,
            lengthens=("all_reduce_seconds",),
            factor=400 / 100,
            symptoms=Symptoms(
                link=BadLink(gigabits_per_second=100, lanes="1X NDR", symbol_errors_per_second=10, recoveries=1)
            ),
            nodes=2,
            alert="TrainingLinkDegraded",
            cause="link",
        ),
        # One Ethernet adapter of 100 Gb/s, instead of four for InfiniBand of 400 each.
        "socket-fallback": Kind(
            text="goes over sockets, its image lacks libibverbs",
            hits=Hits.EXCHANGE,
            lengthens=("all_reduce_seconds",),
            factor=4 * 400 / 100,
            symptoms=Symptoms(over_sockets=True),
            from_start=True,
            nodes=2,
            alert="TrainingSlowTransport",
            cause="transport",
        ),
        "dcgm-frozen": Kind(
            text="freezes, the page about the GPUs repeats itself",
            hits=Hits.NOBODY,
            symptoms=Symptoms(frozen=True),
            alert="StragglerExporterBlind",
        ),
    }
)
"""Every fault by name."""
