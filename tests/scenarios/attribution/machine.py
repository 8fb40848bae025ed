"""A run with faults on one rank, as the sidecars' pages show it look by look.

Each look's sums are drawn as those of its steps, so a run costs milliseconds; totals, windows and pages are the real
ones. The faults begin five and a half minutes after the run, and the last look is two and a half minutes later: about
when on-call reads the alert, with the means of the last minutes half full of health.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from facts import identity
from scenarios.attribution import faults as f
from scenarios.cast import exporter_status
from scenarios.course import Look, Page
from straggler.join.view import RankView
from straggler.metrics.self_metrics import ExporterStatus
from straggler.model.gpu import GpuFacts, GpuKey
from straggler.model.host import RankHost
from straggler.model.nccl import NcclFacts
from straggler.model.network import PortFacts, PortKey
from straggler.model.rank import RankFacts, RankKey, RankState, Totals
from straggler.wire.recent import Recent

LOOK_SECONDS = 15.0
ONSET_SECONDS = 330.0
END_SECONDS = 480.0
PER_NODE = 8
MARGIN = 0.1
"""Of the gap: what makes 40 to 60 % of it is about half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run."""

    faults: tuple[str, ...]
    """Keys of ``faults.FAULTS``; all on the same rank."""
    jitter: float
    seed: int
    ranks: int = 8
    hidden: str = ""
    """A source that nobody has: ``gpu``, ``prof``, ``host``."""

    @property
    def run(self) -> str:
        """A name that no other case has."""
        return f"{'+'.join(self.faults)} {self.jitter:.0%} #{self.seed} {self.ranks} {self.hidden}".strip()


@dataclass(slots=True)
class _Rank:
    """One rank's totals while time goes on."""

    well: f.Afflicted
    ill: f.Afflicted
    compute: float = 0.0
    data: float = 0.0
    h2d: float = 0.0
    wait: float = 0.0
    steps: int = 0
    wall: float = 0.0
    tokens: float = 0.0
    run_delay: float = 0.0
    memory: float = 0.0
    held: dict[str, float] = field(default_factory=dict)
    own_now: float = 0.0
    """Of a step, mean of the last look."""


class Machine:
    """One case, played."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._dice = Random(case.run)
        dice = self._dice
        own = dice.uniform(*f.STEP_OWN_SECONDS)
        self.afflicted = dice.randrange(case.ranks)
        """The rank that the faults are on."""
        data, h2d = dice.uniform(*f.DATA_SHARE), dice.uniform(*f.H2D_SHARE)
        bound, efficiency = dice.uniform(*f.COMPUTE_BOUND), dice.uniform(*f.PCIE_EFFICIENCY)
        self._exchange = own * f.EXCHANGE_SHARE / (1 - f.EXCHANGE_SHARE)
        self._copies_are_timed = dice.random() < 0.5
        self._full_link = f.PCIE_WIDTH * f.PCIE_BYTES_PER_LANE[int(f.PCIE_GENERATION)]
        self._bytes = own * h2d * self._full_link * efficiency
        self._clocks = [f.HEALTHY_CLOCK_HERTZ * min(1.0, dice.gauss(0.99, f.CLOCK_SPREAD)) for _ in range(case.ranks)]
        self._caps = [dice.uniform(*f.POWER_CAP_SHARE) for _ in range(case.ranks)]
        self._healthy = f.Afflicted(
            well=own, compute=own * (1 - data - h2d), data=own * data, h2d=own * h2d, compute_bound=bound
        )
        self._ranks = [
            _Rank(self._afflict(()), self._afflict(case.faults if number == self.afflicted else ()))
            for number in range(case.ranks)
        ]

    @property
    def excess(self) -> dict[str, float]:
        """Seconds a step that each fault adds, by its name: the mean over both orders in which two may have come."""
        whole, well = self._own(self.case.faults), self._own(())
        if len(self.case.faults) == 1:
            return {self.case.faults[0]: whole - well}
        first, second = self.case.faults
        alone, other = self._own((first,)) - well, self._own((second,)) - well
        return {first: (alone + whole - well - other) / 2, second: (other + whole - well - alone) / 2}

    def _own(self, names: tuple[str, ...]) -> float:
        return self._afflict(names).own

    def _afflict(self, names: tuple[str, ...]) -> f.Afflicted:
        rank = replace(self._healthy, xids={})
        for name in names:
            {**f.FAULTS, **f.NETWORK_FAULTS}[name](rank, Random(f"{self.case.run} {name}"))
        return rank

    def looks(self) -> Iterator[Look]:
        """All looks of the case, one each quarter of a minute."""
        at = 0.0
        while at < END_SECONDS:
            at += LOOK_SECONDS
            self._pass(at)
            views = tuple(self._view(number, at) for number in range(self.case.ranks))
            yield Look(
                at,
                tuple(
                    Page(f"n{node}", views[node * PER_NODE : (node + 1) * PER_NODE], self._status(), True, True)
                    for node in range(math.ceil(self.case.ranks / PER_NODE))
                ),
            )

    def _pass(self, until: float) -> None:
        sick = until > ONSET_SECONDS
        now = [rank.ill if sick else rank.well for rank in self._ranks]
        exchange = self._exchange_in(now)
        slowest = max(state.own for state in now)
        begun = self._ranks[0].wall
        count = max(1, int((until - begun) / (slowest + exchange)))
        sums = [tuple(self._sum(part, count) for part in (state.computing, state.data, state.h2d)) for state in now]
        wall = max(sum(parts) for parts in sums) + count * exchange
        for number, (rank, state, (compute, data, h2d)) in enumerate(zip(self._ranks, now, sums, strict=True)):
            own = compute + data + h2d
            rank.compute, rank.data, rank.h2d = rank.compute + compute, rank.data + data, rank.h2d + h2d
            rank.wait += wall - own
            rank.steps, rank.wall = rank.steps + count, rank.wall + wall
            rank.own_now = own / count
            rank.tokens += count * f.TOKENS * state.tokens_ratio
            rank.run_delay += wall * self._dice.uniform(*f.RUN_DELAY_SHARE) + count * state.run_delay
            rank.memory += wall * self._dice.uniform(*f.MEMORY_PRESSURE) + count * state.memory_stall
            # A GPU whose clock is held down by something else no longer reaches its power limit.
            capped = self._caps[number] if state.clock_ratio == 1.0 else 0.0
            for reason in ("sw_power_cap", "sw_thermal", "hw_thermal", "hw_power_brake", "thermal"):
                share = state.held_share if reason == state.reason else capped * (reason == "sw_power_cap")
                rank.held[reason] = rank.held.get(reason, 0.0) + share * LOOK_SECONDS

    def _exchange_in(self, now: Sequence[f.Afflicted]) -> float:
        return self._exchange * max(state.exchange_ratio for state in now)

    def _sum(self, seconds: float, count: int) -> float:
        return count * seconds * max(0.1, self._dice.gauss(1.0, self.case.jitter / math.sqrt(count)))

    def _view(self, number: int, at: float) -> RankView:
        rank, dice = self._ranks[number], self._dice
        noise = dice.gauss(1.0, self.case.jitter / math.sqrt(32))
        step = rank.wall / rank.steps
        own, median = rank.own_now, rank.own_now * noise
        exchange = self._exchange_in([one.ill if at > ONSET_SECONDS else one.well for one in self._ranks])
        step = max(other.own_now for other in self._ranks) + exchange
        facts = RankFacts(
            identity=identity(
                number, run=self.case.run, node=f"n{number // PER_NODE}", world_size=self.case.ranks, clock="cuda"
            ),
            state=RankState.RUNNING,
            totals=self._totals(rank),
            recent=Recent(32, step, own, median, max(step - own, 0.0), exchange * 0.9),
            step=rank.steps,
            last_step_timestamp_seconds=1_700_000_000.0 + at,
            excluded_phase=None,
            own_reason="measured",
        )
        gpu = None if self.case.hidden == "gpu" else self._gpu(number, at)
        host = None if self.case.hidden == "host" else self._host(number)
        return RankView(
            rank=facts,
            gpu=gpu,
            evidence="uuid" if gpu else "",
            unmatched_reason="" if gpu else "no_evidence",
            host=host,
            nccl=self._nccl(number, at),
            ports=self._ports(number, at),
        )

    def _node(self, number: int, at: float) -> Sequence[f.Afflicted]:
        """The ranks on a rank's node."""
        first = number // PER_NODE * PER_NODE
        return [rank.ill if at > ONSET_SECONDS else rank.well for rank in self._ranks[first : first + PER_NODE]]

    def _nccl(self, number: int, at: float) -> NcclFacts:
        over = "socket" if any(rank.sockets for rank in self._node(number, at)) else "ib"
        return NcclFacts(host=f"n{number // PER_NODE}", pid=number, rank=number, channels={"p2p": 16, over: 8})

    def _ports(self, number: int, at: float) -> tuple[PortFacts, ...]:
        worst = min(rank.port_ratio for rank in self._node(number, at))
        return tuple(
            PortFacts(
                key=PortKey(f"mlx5_{port}", 1),
                up=True,
                rate_bytes_per_second=f.PORT_BYTES_PER_SECOND * (worst if port == 0 else 1.0),
                link_layer="InfiniBand",
                state="ACTIVE",
                board="MT_0000000838",
            )
            for port in range(f.PORTS)
        )

    def _totals(self, rank: _Rank) -> Totals:
        copies = rank.h2d if self._copies_are_timed else 0.0
        return Totals(
            steps=rank.steps,
            step_seconds=rank.wall,
            own_seconds=rank.compute + rank.data + rank.h2d,
            wait_seconds=rank.wait,
            phase_seconds={
                "data": rank.data,
                "h2d": copies,
                "forward": rank.compute + rank.h2d - copies,
                "wait": rank.wait,
            },
            arrivals=rank.steps,
            tokens=int(rank.tokens),
        )

    def _gpu(self, number: int, at: float) -> GpuFacts:
        rank, dice = self._ranks[number], self._dice
        state = rank.ill if at > ONSET_SECONDS else rank.well
        step = max(other.own_now for other in self._ranks) + self._exchange
        clock = self._clocks[number] * state.clock_ratio
        # Arithmetic per wall time: all steps are equally long. As a share of the cycles, a slow clock reads higher.
        tensor_hertz = f.TENSOR_ACTIVE * f.HEALTHY_CLOCK_HERTZ * state.work_ratio * 0.5 / step
        values = {
            "utilization_ratio": 0.99,
            "sm_clock_hertz": round(clock / 15e6) * 15e6,
            "temperature_celsius": 86.0 if "thermal" in state.reason else 62.0,
            "power_watts": 0.9 * state.power_limit,
            "power_limit_watts": state.power_limit,
            "pcie_link_width": state.width,
            "pcie_link_generation": state.generation,
            "pcie_link_width_max": f.PCIE_WIDTH,
            "pcie_link_generation_max": f.PCIE_GENERATION,
            "ecc_double_bit_errors_total": float(state.double_bit_errors),
            "row_remap_pending": float(state.row_remap_pending),
            "row_remap_failed": 0.0,
        }
        if self.case.hidden != "prof":
            values["tensor_active_ratio"] = min(1.0, tensor_hertz / clock * dice.gauss(1.0, f.TENSOR_SPREAD))
            values["pcie_receive_bytes_per_second"] = self._bytes / step * dice.gauss(1.0, 0.05)
            values["sm_active_ratio"] = 0.6
        return GpuFacts(
            key=GpuKey(f"GPU-{self.case.seed:08d}-0000-0000-0000-{number:012d}"),
            values=values,
            clocks_event_seconds=dict(rank.held),
            clocks_event_reasons={"applications_clocks_setting": float(bool(state.flag))},
            xid_events={xid: float(count) for xid, count in state.xids.items()},
            gpu=number % PER_NODE,
        )

    def _host(self, number: int) -> RankHost:
        rank = self._ranks[number]
        return RankHost(
            key=RankKey(self.case.run, number),
            values={"run_delay_seconds_total": rank.run_delay},
            pressure={("memory", "some"): rank.memory, ("cpu", "some"): rank.run_delay},
        )

    @staticmethod
    def _status() -> ExporterStatus:
        return exporter_status("ok", "", PER_NODE)


def accepted(excess: Mapping[str, float]) -> frozenset[str]:
    """The causes that are right to name: what makes about half of the gap or more.

    Where nothing makes clearly more than half, it is also right not to know; and a GPU with errors that is slow for
    another reason that nobody can see looks the same.
    """
    total = sum(excess.values())
    right = {name for name, seconds in excess.items() if seconds >= (0.5 - MARGIN) * total}
    if max(excess.values()) < (0.5 + MARGIN) * total:
        right.add("unknown")
    if excess.keys() == {"gpu_errors", "unknown"}:
        right |= excess.keys()
    return frozenset(right)


def views_of(look: Look) -> Sequence[RankView]:
    """All ranks of one look."""
    return [view for page in look.pages for view in page.views]
