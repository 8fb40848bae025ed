"""A rank as the sidecar sees it at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from straggler.wire.recent import Recent
from straggler.wire.records import Identity


class RankKey(NamedTuple):
    """What identifies a rank."""

    run: str
    rank: int


class RankState(str, Enum):
    """Label values of ``training_rank_state``."""

    RUNNING = "running"
    HUNG = "hung"
    """Alive, but no step for longer than the policy allows."""
    CRASHED = "crashed"
    """Gone without a goodbye, or with an exception."""
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Since the rank's start; only grow while the rank lives. ``None``: not known to the training loop."""

    steps: int
    step_seconds: float
    own_seconds: float | None
    """Over the steps whose own time was measured; ``None`` if there is none."""
    wait_seconds: float | None
    phase_seconds: dict[str, float]
    """Keys: ``wire.layout.PHASES``, all of them."""
    arrivals: int
    tokens: int | None = None
    samples: int | None = None
    flops: float | None = None
    allreduce_bytes: int | None = None
    unmeasured_steps: int = 0
    profiled_steps: int = 0
    host_data_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFacts:
    """All that a ring, or a push, says about one rank now."""

    identity: Identity
    """Label values cleaned and bounded already."""
    state: RankState
    totals: Totals | None
    """``None`` before the first step."""
    recent: Recent | None
    """``None`` before the first step, and when the rank is gone: its gauges go at once."""
    step: int | None
    last_step_timestamp_seconds: float | None
    excluded_phase: str | None
    """``checkpoint`` or ``eval`` while the rank is in it."""
    own_reason: str
    """``measured``, or why own time is absent: one of ``wire.layout.OWN_REASONS``."""
    source: str = "rings"
    """``rings`` or ``push``."""
    since_progress_seconds: float = 0.0
    """How long the sidecar has seen nothing move: no step, no arrival, no entering or leaving ``excluded_phase``."""
    pid: int | None = None
    """Of the process, in its own PID namespace, as its ring says: it repeats from container to container."""
    uid: int | None = None
    """Who owns the ring's file; ``None`` for a pushed rank."""
    directory: str | None = None
    """Where the ring lies below the ring directory: ``.``, or ``NAMESPACE/POD`` where each pod has one; ``None`` for a
    pushed rank."""

    @property
    def key(self) -> RankKey:
        """What identifies the rank."""
        return RankKey(self.identity.run, self.identity.rank)

    @property
    def alive(self) -> bool:
        """Whether the process is still there."""
        return self.state in (RankState.RUNNING, RankState.HUNG)
