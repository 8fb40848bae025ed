"""A made-up ``/sys/class/infiniband``: what a node with RDMA adapters would show, for the demonstration and for tests.

Each file is replaced as a whole, so a reader never sees half a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_STATES = {True: ("4: ACTIVE", "5: LinkUp"), False: ("1: DOWN", "2: Polling")}

_HEALTHY: Mapping[str, int] = {
    "counters/symbol_error": 0,
    "counters/link_error_recovery": 0,
    "counters/link_downed": 0,
    "counters/port_rcv_errors": 0,
    "counters/port_xmit_discards": 0,
    "counters/port_xmit_wait": 0,
    "counters/port_xmit_data": 0,
    "counters/port_rcv_data": 0,
    "hw_counters/out_of_sequence": 0,
    "hw_counters/local_ack_timeout_err": 0,
    "hw_counters/packet_seq_err": 0,
    "hw_counters/np_cnp_sent": 0,
    "hw_counters/rp_cnp_handled": 0,
    "hw_counters/np_ecn_marked_roce_packets": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPort:
    """One port of one adapter, as it shall look."""

    device: str
    port: int = 1
    up: bool = True
    gigabits_per_second: float = 400.0
    lanes: str = "4X NDR"
    link_layer: str = "InfiniBand"
    board: str = "MT_0000000838"
    counters: Mapping[str, int] = field(default_factory=dict)
    """By path below the port, e.g. ``counters/symbol_error``, as the driver counts: data in words of four bytes. The
    usual files that are not here hold zero."""


def write_infiniband(sysfs: Path, ports: Iterable[SimulatedPort]) -> None:
    """Write or update the files of these ports; those of others stay as they are.

    Args:
        sysfs: what stands for ``/sys``.
        ports: any number of any adapters.
    """
    for port in ports:
        device = sysfs / "class" / "infiniband" / port.device
        state, physical = _STATES[port.up]
        files = {
            "state": state,
            "phys_state": physical,
            "rate": f"{port.gigabits_per_second:g} Gb/sec ({port.lanes})",
            "link_layer": port.link_layer,
            **{name: str(value) for name, value in {**_HEALTHY, **port.counters}.items()},
        }
        _write(device / "board_id", port.board)
        _write(device / "fw_ver", "28.39.1002")
        for name, text in files.items():
            _write(device / "ports" / str(port.port) / name, text)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}")
    beside.write_text(f"{text}\n", encoding="ascii")
    beside.replace(path)
