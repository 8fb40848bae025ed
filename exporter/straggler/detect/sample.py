"""What the verdicts need to know about one rank at one moment: the same for a living rank and for a recorded one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from straggler.detect.lately import Lately
from straggler.join.view import RankView
from straggler.model.nccl import NcclFacts
from straggler.model.network import PortFault
from straggler.model.rank import RankKey, RankState
from straggler.wire.recent import Recent


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSample:
    """One rank now. ``None`` is unknown, never zero."""

    run: str
    rank: int
    peer_group: str = "0"
    node: str = ""
    """``""`` where the node is unknown."""
    world_size: int | None = None
    state: RankState = RankState.RUNNING
    recent: Recent | None = None
    """The window of last steps; ``None`` before the first step and when the rank is gone."""
    step: int | None = None
    steps_total: int | None = None
    """Steps since the process began."""
    arrivals: int | None = None
    excluded_phase: str | None = None
    own_reason: str = "measured"
    since_progress_seconds: float = 0.0
    """How long no new step has been seen."""
    gone_seconds: float | None = None
    """How long the rank has been seen as crashed; ``None`` while it is not."""
    run_finished: int = 0
    """How many ranks of the run have finished in the last hour: those that are forgotten already, too."""

    run_imbalance: tuple[float, float] | None = None
    """``shape.Imbalance`` of the run, its mean over the last minutes."""

    data_share: float | None = None
    """Waiting for the next batch, as a share of the step, over the last minutes."""
    throttled_share: Mapping[str, float] = field(default_factory=dict)
    """Share of the last minutes in which each clocks event reason held the GPU's clock down."""
    gpu_uuid: str = ""
    utilization_ratio: float | None = None
    sm_active_ratio: float | None = None
    pcie_link_width: float | None = None
    pcie_link_width_max: float | None = None
    nccl: NcclFacts | None = None
    """What NCCL's log says of it; ``None`` is no log."""
    rdma_ports_up: tuple[str, ...] = ()
    """RDMA ports of its node that carry traffic, e.g. ``mlx5_0 port 1``."""

    lately: Lately | None = None
    """What causes are reckoned from; only a ``history.History`` knows."""
    network_faults: tuple[PortFault, ...] = ()
    """RDMA ports of its node that are down, slower than their peers, or count errors; ``ports.PortMemory`` tells."""

    @property
    def key(self) -> RankKey:
        """What identifies the rank."""
        return RankKey(self.run, self.rank)

    @property
    def alive(self) -> bool:
        """Whether the process is still there."""
        return self.state in (RankState.RUNNING, RankState.HUNG)

    @property
    def own_mean(self) -> float:
        """Mean own time; only for ranks that are comparable."""
        if self.recent is None or self.recent.own_mean_seconds is None:
            raise ValueError(f"rank {self.rank} of {self.run} has no own time")
        return self.recent.own_mean_seconds

    @property
    def own_median(self) -> float:
        """Median own time; only for ranks that are comparable."""
        if self.recent is None or self.recent.own_median_seconds is None:
            raise ValueError(f"rank {self.rank} of {self.run} has no own time")
        return self.recent.own_median_seconds

    @property
    def step_mean(self) -> float:
        """Mean wall time of a step; only for ranks that have one."""
        if self.recent is None:
            raise ValueError(f"rank {self.rank} of {self.run} has no steps")
        return self.recent.step_mean_seconds

    def comparable(self, min_steps: int) -> bool:
        """Alive, own time measured, and over enough steps: the ranks that verdicts compare."""
        recent = self.recent
        return (
            self.alive
            and recent is not None
            and recent.steps >= min_steps
            and recent.own_mean_seconds is not None
            and recent.own_median_seconds is not None
        )


def sample(
    view: RankView,
    *,
    gone_seconds: float | None = None,
    run_finished: int = 0,
    data_share: float | None = None,
    throttled_share: Mapping[str, float] | None = None,
    lately: Lately | None = None,
) -> RankSample:
    """One joined rank as the verdicts see it, with what only a ``history.History`` knows."""
    facts, identity = view.rank, view.rank.identity
    values: Mapping[str, float] = view.gpu.values if view.gpu else {}
    return RankSample(
        run=identity.run,
        rank=identity.rank,
        peer_group=identity.peer_group,
        node=identity.node,
        world_size=identity.world_size,
        state=facts.state,
        recent=facts.recent,
        step=facts.step,
        steps_total=facts.totals.steps if facts.totals else None,
        arrivals=facts.totals.arrivals if facts.totals else None,
        excluded_phase=facts.excluded_phase,
        own_reason=facts.own_reason,
        since_progress_seconds=facts.since_progress_seconds,
        gone_seconds=gone_seconds,
        run_finished=run_finished,
        data_share=data_share,
        throttled_share={} if throttled_share is None else throttled_share,
        lately=lately,
        gpu_uuid=view.gpu.key.uuid if view.gpu else identity.gpu_uuid,
        utilization_ratio=values.get("utilization_ratio"),
        sm_active_ratio=values.get("sm_active_ratio"),
        pcie_link_width=values.get("pcie_link_width"),
        pcie_link_width_max=values.get("pcie_link_width_max"),
        nccl=view.nccl,
        rdma_ports_up=tuple(str(port.key) for port in view.ports if port.up),
    )
