"""What the RDMA ports of a scenario's nodes say about themselves, and what NCCL's logs say about them."""

from __future__ import annotations

from dataclasses import replace

from scenarios.vocabulary import Adapters, BadPort, Scenario
from straggler.model.nccl import NcclFacts
from straggler.model.network import PortFacts, PortKey

_PORTS = 4
_RATE = 50e9
"""Bytes a second: 400 Gb/s."""
_BAD = 1
"""Which of a node's ports is the bad one."""


def ports_of(scenario: Scenario, minute: float, node: int) -> tuple[PortFacts, ...]:
    """The ports of a node.

    Args:
        scenario: for whether there are any, and what is wrong with them.
        minute: since the run's first step.
        node: its number.
    """
    if not any(trouble.ports for trouble in scenario.troubles if isinstance(trouble, Adapters)):
        return ()
    ports = [
        PortFacts(
            key=PortKey(f"mlx5_{number}", 1),
            up=True,
            lost=False,
            rate_bytes_per_second=_RATE,
            best_rate_bytes_per_second=_RATE,
            counters={"symbol_errors_total": 4.0, "link_downs_total": 1.0, "link_recoveries_total": 1.0},
            state="ACTIVE",
            physical_state="LinkUp",
        )
        for number in range(_PORTS)
    ]
    for trouble in scenario.troubles:
        if isinstance(trouble, BadPort) and trouble.node == node and minute >= trouble.begins:
            ports[_BAD] = _afflicted(ports[_BAD], trouble, minute - trouble.begins)
    return tuple(ports)


def _afflicted(port: PortFacts, trouble: BadPort, minutes: float) -> PortFacts:
    if trouble.fault == "out":
        return replace(port, up=False, lost=True, rate_bytes_per_second=None, state="DOWN", physical_state="Polling")
    if trouble.fault == "half":
        return replace(port, rate_bytes_per_second=_RATE / 2)
    counted = {"flaps": "link_downs_total", "errs": "symbol_errors_total"}[trouble.fault]
    return replace(
        port, counters={**port.counters, counted: port.counters[counted] + 1 + int(minutes // trouble.every)}
    )


def logged(scenario: Scenario, node: str) -> NcclFacts | None:
    """What NCCL's log of a rank says; ``None`` where there is no log."""
    for trouble in scenario.troubles:
        if isinstance(trouble, Adapters) and trouble.transport:
            return NcclFacts(host=node, pid=1, channels={trouble.transport: 2, "p2p": 8})
    return None
