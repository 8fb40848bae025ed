"""A GPU, or a MIG instance of one, as DCGM or NVML describes it at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

CLOCKS_EVENT_BITS: Final[Mapping[int, str]] = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal",
    0x040: "hw_thermal",
    0x080: "hw_power_brake",
    0x100: "display_clocks_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
"""Clocks event reasons by their bit in NVML's and DCGM's mask; the name is the label value ``reason``.

NVML renamed the constants (throttle, then event) but never moved a bit, so the bits are the contract.
"""

CLOCKS_EVENT_REASONS: Final = (*CLOCKS_EVENT_BITS.values(), "thermal", "low_utilization")
"""All values of ``reason``. ``thermal`` and ``low_utilization`` have a counter and no bit: the older violation
counters do not say whether software or hardware reacted to the heat."""


class GpuKey(NamedTuple):
    """What identifies a GPU anywhere: bus ids and indices repeat on every host."""

    uuid: str
    """``GPU-`` and a lower-case UUID. Under MIG the parent's."""
    gpu_instance: int | None = None
    """GPU instance id under MIG; ``None`` for a whole GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One GPU at one moment. A name that is not in ``values`` was not reported: it is absent, not zero."""

    key: GpuKey
    values: Mapping[str, float] = field(default_factory=dict)
    """By catalogue name without its prefix, in base units: ``utilization_ratio``, ``sm_active_ratio``,
    ``sm_occupancy_ratio``, ``tensor_active_ratio``, ``sm_clock_hertz``, ``temperature_celsius``, …
    (``metrics.catalogue`` lists them all)."""
    clocks_event_seconds: Mapping[str, float] = field(default_factory=dict)
    """Time since start in which each clocks event reason held the clock down, by reason."""
    clocks_event_reasons: Mapping[str, float] = field(default_factory=dict)
    """1 or 0 for each reason that is known now."""
    xid_events: Mapping[int, float] = field(default_factory=dict)
    """XID events since the exporter's start, by number, repeats included; only those that happened."""
    gpu: int | None = None
    """Index on the node."""
    pci_bus_id: str = ""
    """``00000000:17:00.0``, upper-case, eight-digit domain."""
    model: str = ""
    hostname: str = ""
    """As the exporter wrote it: for people, never a key (often a pod's name)."""
    mig_profile: str = ""
    mig_uuids: tuple[str, ...] = ()
    """``MIG-`` and lower case: one for each compute instance in this GPU instance."""
    pod: str = ""
    namespace: str = ""
    container: str = ""
    source: str = "dcgm"
    """Who spoke; ``dcgm+nvml`` where one completed the other."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """All other labels of the page, for the log and the landing page."""
