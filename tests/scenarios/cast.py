"""Who plays in a scenario: the ranks' processes, and the sidecars that watch them with the real code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from straggler.detect.policy import DEFAULT
from straggler.detect.window import Window
from straggler.join.view import RankView
from straggler.metrics.self_metrics import ExporterStatus, SourceStatus
from straggler.model.gpu import GpuFacts
from straggler.model.nccl import NcclFacts
from straggler.model.network import PortFacts
from straggler.model.progress import HangLimits
from straggler.model.rank import RankFacts, RankState, Totals
from straggler.model.reading import SourceState
from straggler.sources.rings.assess import Liveness, Sight
from straggler.wire import layout
from straggler.wire.recent import Sample
from straggler.wire.records import Identity, Live

_NS = 1_000_000_000
EPOCH = 1_700_000_000.0
LIMITS = HangLimits(
    steps=DEFAULT.hang_steps, min_seconds=DEFAULT.hang_min_seconds, excluded_seconds=DEFAULT.hang_excluded_seconds
)


@dataclass
class Process:
    """One rank's process: what its ring says. Times are seconds since the scenario's beginning."""

    identity: Identity
    begun: float
    own_reason: str = "measured"
    skew: float = 0.0
    """How far the node's clocks are off."""
    window: Window = field(default_factory=Window)
    steps: int = 0
    wall: float = 0.0
    own: float = 0.0
    wait: float = 0.0
    data: float = 0.0
    ahead: int = 0
    """Arrivals in a step that does not end."""
    pause: tuple[float, float, str] | None = None
    """Beginning, end and name of the last stay in checkpoint or eval."""
    status: int = layout.STATUS_RUNNING
    lives: bool = True
    frozen: bool = False
    moved: float = 0.0
    """When its ring was last written to."""

    def finish_step(self, end: float, own: float, wait: float, data: float, excluded: float) -> None:
        """Write one record."""
        if self.frozen:
            return
        wall = own + wait + excluded
        measured = self.own_reason == "measured"
        self.window.add(
            Sample(
                round((end + self.skew) * _NS),
                round(wall * _NS),
                round(own * _NS) if measured else None,
                round(wait * _NS),
            )
        )
        self.steps += 1
        self.wall += wall
        self.data += data
        self.moved = end
        if measured:
            self.own += own
            self.wait += wait

    def say_goodbye(self, now: float) -> None:
        """End properly."""
        self.status, self.lives, self.moved = layout.STATUS_FINISHED, False, now

    def phase(self, now: float) -> str | None:
        """``checkpoint`` or ``eval`` while in it."""
        return self.pause[2] if self.pause and self.pause[0] <= now < self.pause[1] else None

    def live(self, now: float) -> Live:
        """The ring's live block."""
        phase = self.phase(now)
        return Live(
            arrivals=self.steps + self.ahead,
            records=self.steps,
            updated_monotonic_ns=0,
            updated_realtime_ns=0,
            status=self.status,
            excluded_phase=layout.PHASES.index(phase) if phase else None,
        )

    def totals(self) -> Totals | None:
        """As the newest record has them."""
        if not self.steps:
            return None
        measured = self.own_reason == "measured"
        return Totals(
            steps=self.steps,
            step_seconds=self.wall,
            own_seconds=self.own if measured else None,
            wait_seconds=self.wait if measured else None,
            phase_seconds={"data": self.data, "wait": self.wait},
            arrivals=self.steps + self.ahead,
            unmeasured_steps=0 if measured else self.steps,
        )


class Sidecar:
    """Watches the processes of one node, with the liveness of the real ring source."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.up = True
        self._watched: dict[int, Liveness] = {}

    def restart(self) -> None:
        """Forget all that is not in the rings."""
        self._watched.clear()

    def look(
        self,
        now: float,
        processes: Iterable[Process],
        gpus: Mapping[int, GpuFacts],
        ports: tuple[PortFacts, ...] = (),
        nccl: NcclFacts | None = None,
    ) -> list[RankView]:
        """What the node's page is made from: of each rank the newest process, unless it is long gone."""
        newest = {process.identity.rank: process for process in processes}
        return [
            RankView(
                rank=facts,
                gpu=gpus.get(rank),
                evidence="uuid" if rank in gpus else "",
                unmatched_reason="" if rank in gpus else "no_evidence",
                nccl=nccl,
                ports=ports,
            )
            for rank, process in sorted(newest.items())
            if (facts := self._facts(now, process)) is not None
        ]

    def _facts(self, now: float, process: Process) -> RankFacts | None:
        recent = process.window.recent()
        watched = self._watched.get(id(process))
        if watched is None:
            age = max(0.0, now - max(process.moved, process.begun))
            watched = self._watched[id(process)] = Liveness(LIMITS, now=now, age_seconds=age)
        state = watched.assess(
            Sight(
                now=now,
                held=process.lives,
                live=process.live(now),
                serial=process.steps,
                mean_step_seconds=recent.step_mean_seconds if recent else None,
            )
        )
        if watched.gone_since is not None and now - watched.gone_since > DEFAULT.gone_counters_seconds:
            return None
        alive = state in (RankState.RUNNING, RankState.HUNG)
        return RankFacts(
            identity=process.identity,
            state=state,
            totals=process.totals(),
            recent=recent if alive else None,
            step=process.steps or None,
            last_step_timestamp_seconds=EPOCH + process.moved + process.skew if process.steps else None,
            excluded_phase=process.phase(now),
            own_reason=process.own_reason,
            since_progress_seconds=watched.progress.age(now),
        )


def exporter_status(state: str, blind: str, ranks: int) -> ExporterStatus:
    """What the sidecar says about itself.

    Args:
        state: of DCGM: ``ok``, ``stale`` or ``failed``.
        blind: what DCGM cannot show; ``""`` for nothing.
        ranks: on the node.
    """
    return ExporterStatus(
        sources=(
            SourceStatus(source="rings", state=SourceState.OK),
            SourceStatus(source="dcgm", state=SourceState(state), blind={blind: ranks} if blind else {}),
        ),
        hang_after_seconds=DEFAULT.hang_min_seconds,
    )
