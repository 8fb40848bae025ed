"""What the GPUs of a scenario say about themselves."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import NAMESPACE_OID, uuid5

from scenarios.vocabulary import Faulty, Gpus, NarrowLink, Scenario, Throttled
from straggler.model.gpu import GpuFacts, GpuKey

_REASONS = ("sw_power_cap", "sw_thermal", "hw_thermal", "hw_power_brake")
_POWER_CAP_SHARE = 0.3
"""Of the time, on every GPU: normal under load."""


def gpus_of(
    scenario: Scenario, says: Gpus, minute: float, ranks: Iterable[int], generation: int
) -> dict[int, GpuFacts]:
    """The GPU of each rank that has one, by rank.

    Args:
        scenario: for what is wrong with single GPUs.
        says: what all of them say at present.
        minute: since the run's first step.
        ranks: those on the node.
        generation: another number for other GPUs.
    """
    if says.utilization is None and says.sm_active is None:
        return {}
    return {rank: _gpu(scenario, says, minute, rank, generation) for rank in ranks}


def _gpu(scenario: Scenario, says: Gpus, minute: float, rank: int, generation: int) -> GpuFacts:
    key = GpuKey(
        f"GPU-{uuid5(NAMESPACE_OID, f'{generation}/{rank // 2 if says.instances else rank}')}",
        7 + rank % 2 if says.instances else None,
    )
    if says.state != "ok":
        return GpuFacts(key=key)
    values = {"pcie_link_width": 16.0, "pcie_link_width_max": 16.0}
    if says.utilization is not None:
        values["utilization_ratio"] = says.utilization
    if says.sm_active is not None:
        values["sm_active_ratio"] = says.sm_active
    held = dict.fromkeys(_REASONS, 0.0)
    held["sw_power_cap"] = _POWER_CAP_SHARE * minute * 60
    for trouble in scenario.troubles:
        if isinstance(trouble, NarrowLink) and trouble.rank == rank and minute >= trouble.begins:
            values["pcie_link_width"] = 8.0
        if isinstance(trouble, Throttled) and trouble.rank == rank:
            held[trouble.reason] += trouble.share * max(0.0, minute - trouble.begins) * 60
    return GpuFacts(
        key=key,
        values=values,
        clocks_event_seconds=held,
        xid_events=_xids(scenario, minute, rank),
        gpu=rank % scenario.per_node,
    )


def _xids(scenario: Scenario, minute: float, rank: int) -> dict[int, float]:
    seen: dict[int, float] = {}
    for trouble in scenario.troubles:
        if isinstance(trouble, Faulty) and trouble.rank == rank and minute >= trouble.begins:
            seen[trouble.xid] = seen.get(trouble.xid, 0.0) + 1 + (minute - trouble.begins) // trouble.every
    return seen
