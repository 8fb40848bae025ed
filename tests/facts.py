"""Ranks and GPUs for tests: a healthy one each; a test says what is different about its own."""

from __future__ import annotations

from typing import Any

from straggler.join.view import RankView
from straggler.model.gpu import GpuFacts, GpuKey
from straggler.model.rank import RankFacts, RankState, Totals
from straggler.wire import layout
from straggler.wire.recent import Recent
from straggler.wire.records import Identity

UUID = "GPU-00000000-0000-0000-0000-00000000000{}"


def identity(rank: int = 0, **changes: Any) -> Identity:
    """One rank of run ``r`` on ``n1``."""
    return Identity(run="r", rank=rank, node="n1", world_size=8, local_rank=rank)._replace(**changes)


def totals(**changes: Any) -> Totals:
    """A hundred steps of 44 ms, 34 of them own."""
    phases = dict.fromkeys(layout.PHASES, 0.0) | {"forward": 3.4, "wait": 1.0}
    values: dict[str, Any] = {
        "steps": 100,
        "step_seconds": 4.4,
        "own_seconds": 3.4,
        "wait_seconds": 1.0,
        "phase_seconds": phases,
        "arrivals": 200,
    }
    return Totals(**(values | changes))


def recent(own: float | None = 0.034, step: float = 0.044) -> Recent:
    """A window of 32 equal steps."""
    wait = None if own is None else step - own
    return Recent(32, step, own, own, wait, wait)


def rank_facts(rank: int = 0, **changes: Any) -> RankFacts:
    """A running rank; ``gone`` ones are given their state."""
    values: dict[str, Any] = {
        "identity": identity(rank),
        "state": RankState.RUNNING,
        "totals": totals(),
        "recent": recent(),
        "step": 100,
        "last_step_timestamp_seconds": 1_700_000_000.0,
        "excluded_phase": None,
        "own_reason": "measured",
    }
    return RankFacts(**(values | changes))


def gpu_facts(index: int = 0, **changes: Any) -> GpuFacts:
    """A busy GPU."""
    values: dict[str, Any] = {
        "key": GpuKey(UUID.format(index)),
        "values": {"utilization_ratio": 0.98, "sm_active_ratio": 0.61, "temperature_celsius": 61.0},
        "clocks_event_seconds": {"sw_power_cap": 2.5},
        "gpu": index,
        "pci_bus_id": f"00000000:1{index}:00.0",
        "model": "NVIDIA H100 80GB HBM3",
    }
    return GpuFacts(**(values | changes))


def view(rank: int = 0, *, gpu: GpuFacts | None = None, **changes: Any) -> RankView:
    """A rank, on a GPU if one is given."""
    return RankView(
        rank=rank_facts(rank, **changes),
        gpu=gpu,
        evidence="uuid" if gpu else "",
        unmatched_reason="" if gpu else "no_evidence",
    )
