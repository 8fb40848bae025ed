"""A port of an RDMA adapter, InfiniBand or RoCE, as the kernel describes it at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class PortKey(NamedTuple):
    """What identifies a port on its node."""

    device: str
    """Kernel name of the adapter, e.g. ``mlx5_0``."""
    port: int
    """From 1."""

    def __str__(self) -> str:
        return f"{self.device} port {self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PortFacts:
    """One port now. What the driver does not expose is ``None`` or not in ``counters``: absent, never zero."""

    key: PortKey
    up: bool | None = None
    """Whether it carries traffic."""
    rate_bytes_per_second: float | None = None
    """Speed of the link while it is up."""
    best_rate_bytes_per_second: float | None = None
    """The highest so far."""
    lost: bool | None = None
    """Whether it has been up before and is not now."""
    counters: Mapping[str, float] = field(default_factory=dict)
    """By catalogue name without ``network_``, in base units."""
    saturated: tuple[str, ...] = ()
    """Of ``counters``, those that stand at the most their width can hold: they count no more until they are reset."""
    link_layer: str = ""
    """``InfiniBand`` or ``Ethernet``."""
    state: str = ""
    """``ACTIVE``, ``DOWN``, ``INIT``, ``ARMED``, ``ACTIVE_DEFER``."""
    physical_state: str = ""
    """``LinkUp``, ``Polling`` (no cable, or nobody at its other end), ``Disabled``, …"""
    rate_text: str = ""
    """``400 Gb/sec (4X NDR)``."""
    board: str = ""
    """The maker's id of the board and its settings (PSID): equal for adapters that are alike."""
    firmware: str = ""


class PortFault(NamedTuple):
    """Why a port is not as it should be."""

    device: str
    port: int
    fault: str
    """``down``: it was up, and its neighbours are. ``rate``: its link is slower than its peers', or than it was.
    ``errors``: it recovers, goes down or counts symbol errors again and again."""
    text: str
    """The numbers, beside the peers': ``100 Gb/s, its peers 400 Gb/s``."""
