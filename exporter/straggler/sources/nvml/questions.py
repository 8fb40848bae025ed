"""What NVML is asked for, once: function or field, what it becomes, in which unit it comes, what can be true.

Source: nvml.h of CUDA 11 to 13. Its numbers are used, since names of constants have changed (throttle, then event).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from straggler.sources.nvml.binding import FieldId

_CLOCK_SM: Final = 1
_CLOCK_MEMORY: Final = 2
_TEMPERATURE_CORE: Final = 0
_MEMORY_V2: Final = 0x2000028
_ALL_LINKS: Final = 0xFFFFFFFF
MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Out:
    """One number of an answer."""

    attribute: str
    """The catalogue's name without ``gpu_``; for event seconds, the reason."""
    high: float
    """Values above, in NVML's unit, cannot be true, nor can those below 0 (-40 for temperatures)."""
    times: float = 1
    per: float = 1
    member: str = ""
    """Of the struct; ``""`` if the answer is the number."""
    low: float = 0
    zero_is_absent: bool = False

    def convert(self, raw: float) -> float | None:
        """To base units; ``None`` if it cannot be true. NaN never is."""
        return raw * self.times / self.per if self.low <= raw <= self.high else None


@dataclass(frozen=True, slots=True)
class Question:
    """One call. The forms after the first are for drivers that do not have it."""

    forms: tuple[tuple[str, tuple[Any, ...]], ...]
    outs: tuple[Out, ...]


def _ask(function: str, *outs: Out, arguments: tuple[Any, ...] = ()) -> Question:
    return Question(((function, arguments),), outs)


MEMORY: Final = Question(
    (("nvmlDeviceGetMemoryInfo", (_MEMORY_V2,)), ("nvmlDeviceGetMemoryInfo", ())),
    (
        Out("memory_total_bytes", 1e13, member="total"),
        Out("memory_free_bytes", 1e13, member="free"),
        Out("memory_used_bytes", 1e13, member="used"),
        Out("memory_reserved_bytes", 1e13, member="reserved"),
    ),
)
"""The first version of the struct has no ``reserved`` and counts it as used."""

QUESTIONS: Final = (
    _ask(
        "nvmlDeviceGetUtilizationRates",
        Out("utilization_ratio", 100, per=100, member="gpu"),
        Out("memory_copy_utilization_ratio", 100, per=100, member="memory"),
    ),
    _ask("nvmlDeviceGetClockInfo", Out("sm_clock_hertz", 50_000, times=1e6), arguments=(_CLOCK_SM,)),
    _ask("nvmlDeviceGetMaxClockInfo", Out("sm_clock_max_hertz", 50_000, times=1e6), arguments=(_CLOCK_SM,)),
    _ask("nvmlDeviceGetClockInfo", Out("memory_clock_hertz", 50_000, times=1e6), arguments=(_CLOCK_MEMORY,)),
    _ask("nvmlDeviceGetPerformanceState", Out("performance_state", 15)),
    _ask("nvmlDeviceGetTemperature", Out("temperature_celsius", 150, low=-40), arguments=(_TEMPERATURE_CORE,)),
    _ask("nvmlDeviceGetPowerUsage", Out("power_watts", 1e7, per=1000)),
    _ask("nvmlDeviceGetEnforcedPowerLimit", Out("power_limit_watts", 1e7, per=1000)),
    _ask("nvmlDeviceGetTotalEnergyConsumption", Out("energy_joules_total", 1e17, per=1000)),
    MEMORY,
    _ask("nvmlDeviceGetCurrPcieLinkGeneration", Out("pcie_link_generation", 16)),
    _ask("nvmlDeviceGetMaxPcieLinkGeneration", Out("pcie_link_generation_max", 16)),
    _ask("nvmlDeviceGetCurrPcieLinkWidth", Out("pcie_link_width", 64)),
    _ask("nvmlDeviceGetMaxPcieLinkWidth", Out("pcie_link_width_max", 64)),
    _ask("nvmlDeviceGetPcieReplayCounter", Out("pcie_replays_total", 1e15)),
)

FIELDS: Final[dict[FieldId, Out]] = {
    5: Out("ecc_single_bit_errors_total", 1e15),
    6: Out("ecc_double_bit_errors_total", 1e15),
    38: Out("nvlink_flit_crc_errors_total", 1e15),
    45: Out("nvlink_data_crc_errors_total", 1e15),
    52: Out("nvlink_replays_total", 1e15),
    59: Out("nvlink_recoveries_total", 1e15),
    82: Out("memory_temperature_celsius", 150, low=-40, zero_is_absent=True),  # 0 where there is no sensor
    142: Out("remapped_rows_correctable", 1e6),
    143: Out("remapped_rows_uncorrectable", 1e6),
    144: Out("row_remap_pending", 1),
    145: Out("row_remap_failed", 1),
    173: Out("pcie_correctable_errors_total", 1e15),
    179: Out("pcie_non_fatal_errors_total", 1e15),
    180: Out("pcie_fatal_errors_total", 1e15),
}

EVENT_FIELDS: Final[dict[FieldId, Out]] = {
    74: Out("sw_power_cap", 1e18, per=1e9),
    76: Out("sync_boost", 1e18, per=1e9),
    77: Out("board_limit", 1e18, per=1e9),
    78: Out("low_utilization", 1e18, per=1e9),
    79: Out("reliability", 1e18, per=1e9),
    269: Out("sw_thermal", 1e18, per=1e9),
    270: Out("hw_thermal", 1e18, per=1e9),
    271: Out("hw_power_brake", 1e18, per=1e9),
}
"""Nanoseconds since the driver was loaded in which a reason held the clock down. 74 and 76 are the older "violations"
and the newer event reasons both."""

OLD_THERMAL_FIELD: Final[FieldId] = 75
OLD_THERMAL: Final = Out("thermal", 1e18, per=1e9)
"""Software's or hardware's slowdown, unsaid which: only where the driver does not tell them apart."""

BYTE_FIELDS: Final[dict[FieldId, Out]] = {
    197: Out("pcie_transmit_bytes_per_second", 1e18),
    198: Out("pcie_receive_bytes_per_second", 1e18),
    (138, _ALL_LINKS): Out("nvlink_transmit_bytes_per_second", 1e18, times=1024),  # counted in KiB
    (139, _ALL_LINKS): Out("nvlink_receive_bytes_per_second", 1e18, times=1024),
}
"""Counters of bytes, that may wrap; the rate is taken between two looks. Where GPM speaks, GPM's are used."""

GPM: Final[dict[int, Out]] = {
    1: Out("graphics_engine_active_ratio", 100, per=100),
    2: Out("sm_active_ratio", 100, per=100),
    3: Out("sm_occupancy_ratio", 100, per=100),
    5: Out("tensor_active_ratio", 100, per=100),
    10: Out("dram_active_ratio", 100, per=100),
    20: Out("pcie_transmit_bytes_per_second", 1e7, times=MIB),
    21: Out("pcie_receive_bytes_per_second", 1e7, times=MIB),
    60: Out("nvlink_receive_bytes_per_second", 1e7, times=MIB),
    61: Out("nvlink_transmit_bytes_per_second", 1e7, times=MIB),
}
"""Percent, and MiB/s; the mean between two samples. Hopper and later."""

OVERSHOOT: Final = 1.05
"""Ratios of counters that are read one after the other: a little over 100 % is 100 %."""

SHARED_WITH_INSTANCES: Final = frozenset(
    (
        "sm_clock_hertz",
        "sm_clock_max_hertz",
        "memory_clock_hertz",
        "performance_state",
        "temperature_celsius",
        "memory_temperature_celsius",
        "pcie_link_generation",
        "pcie_link_generation_max",
        "pcie_link_width",
        "pcie_link_width_max",
    )
)
"""States of the whole GPU that hold for each of its MIG instances. Amounts (power, errors) stay on the GPU, once."""

EVENT_REASONS_NOW: Final = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
EVENT_REASONS_SUPPORTED: Final = (
    "nvmlDeviceGetSupportedClocksEventReasons",
    "nvmlDeviceGetSupportedClocksThrottleReasons",
)
"""Drivers before 535 know only the second of each."""

XID_EVENT: Final = 0x8
