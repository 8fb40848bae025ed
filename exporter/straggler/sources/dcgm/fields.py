"""Every vendor name, once: what it becomes, in which unit it comes, which values can be true.

DCGM's names came in four generations, and a page may mix them, since a user's csv file chooses the names:

- 1.x (``dcgm_sm_clock``), still written by ``1.x-compatibility-metrics.csv``;
- up to DCGM 4.5, and by default in exporters up to 4.8: ``DCGM_FI_DEV_SM_CLOCK``;
- DCGM 4.6 added second names for the same fields, units unchanged: ``DCGM_FI_PROF_SM_UTIL_RATIO``;
- DCGM 4.7 added fields in base units: ``DCGM_FI_DEV_SM_CLOCK_HERTZ``. They are what exporter 4.9 writes.

TYPE and HELP of a page are not evidence: both are copied from the csv file, and have been wrong in shipped ones (rates
typed ``counter``, ratios "in %", nanoseconds "in us"). So units stand here.

Sources: NVIDIA/DCGM ``dcgmlib/dcgm_fields.h`` of 3.x to 4.6; NVIDIA/go-dcgm ``base_unit_fields_test.go`` for 4.7;
nvml.h for ranges and for what the violation counters mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

MIB: Final = 1024 * 1024

NVLINK_MB: Final = 1_024_000
"""DCGM divides NVML's KiB/s by 1,000 and calls it MB/s."""


class Under(Enum):
    """What a sample with ``GPU_I_ID`` says about the GPU instance."""

    INSTANCE = auto()
    """Measured for the instance."""
    SHARED = auto()
    """A state of the whole GPU, true for each instance: exporters repeat it, and it stays on each."""
    WHOLE = auto()
    """An amount of the whole GPU: repeated by exporters too, but a sum over instances would be a multiple. It goes to
    the GPU itself, once."""
    NOTHING = auto()
    """NVML cannot measure it for an instance: exporters leave it out, or print 0 or a sentinel."""


class Into(Enum):
    """Where in ``GpuFacts`` a value goes."""

    VALUE = auto()
    EVENT_SECONDS = auto()
    """``clocks_event_seconds``; the attribute is the reason."""
    EVENT_MASK = auto()
    """``clocks_event_reasons``: one bit for each reason, ``model.gpu.CLOCKS_EVENT_BITS``."""
    UTILIZATION = auto()
    """Percent or ratio, which only the rest of the page can tell: see ``parse.py``."""


@dataclass(frozen=True, slots=True)
class Field:
    """One vendor field."""

    attribute: str
    """The catalogue's name without ``gpu_``; for event seconds, the reason."""
    names: tuple[str, ...]
    low: float
    high: float
    """Values outside, in the vendor's unit, cannot be true."""
    times: float = 1
    per: float = 1
    """Base unit = vendor's times ``times``, divided by ``per``."""
    under_mig: Under = Under.SHARED
    into: Into = Into.VALUE
    overshoot: bool = False
    """A ratio of counters that are read one after the other: a little over 1 is 1."""
    zero_is_absent: bool = False
    """The driver says 0 where there is no sensor."""


def _dev(
    attribute: str,
    names: str,
    high: float,
    *,
    low: float = 0,
    times: float = 1,
    per: float = 1,
    under_mig: Under = Under.SHARED,
    into: Into = Into.VALUE,
    zero_is_absent: bool = False,
) -> Field:
    """A device field; names are short for ``DCGM_FI_DEV_…``, those in lower case stand as they are."""
    return Field(
        attribute=attribute,
        names=tuple(name if name.islower() else f"DCGM_FI_DEV_{name}" for name in names.split()),
        low=low,
        high=high,
        times=times,
        per=per,
        under_mig=under_mig,
        into=into,
        zero_is_absent=zero_is_absent,
    )


def _percent(attribute: str, names: str) -> Field:
    return _dev(attribute, names, 100, per=100, under_mig=Under.NOTHING)


def _activity(attribute: str, classic: str, renamed: str) -> Field:
    """A profiling ratio, 0 to 1 in all generations, whatever its HELP says."""
    names = (f"DCGM_FI_PROF_{classic}", f"DCGM_FI_PROF_{renamed}", f"dcgm_fi_prof_{classic.lower()}")
    return Field(attribute, names, 0, 1, under_mig=Under.INSTANCE, overshoot=True)


def _traffic(attribute: str, name: str, high: float) -> Field:
    """Bytes per second. A rate in all versions, though some csv files type it ``counter``."""
    names = (f"DCGM_FI_PROF_{name}", f"dcgm_fi_prof_{name.lower()}")
    return Field(attribute, names, 0, high, under_mig=Under.INSTANCE)


def _megahertz(attribute: str, names: str) -> Field:
    return _dev(attribute, names, 50_000, times=1e6)


def _hertz(attribute: str, name: str) -> Field:
    return _dev(attribute, name, 5e10)


def _mebibytes(attribute: str, names: str) -> Field:
    return _dev(attribute, names, 1e7, times=MIB, under_mig=Under.INSTANCE)


def _bytes(attribute: str, name: str) -> Field:
    return _dev(attribute, name, 1e13, under_mig=Under.INSTANCE)


def _count(attribute: str, names: str, high: float = 1e15) -> Field:
    return _dev(attribute, names, high, under_mig=Under.WHOLE)


def _event_ns(reason: str, names: str) -> Field:
    """Nanoseconds, though DCGM's header said usec until 4.5 and the csv's HELP until exporter 4.7.1."""
    return _dev(reason, names, 1e18, per=1e9, into=Into.EVENT_SECONDS)


def _event_seconds(reason: str, name: str) -> Field:
    return _dev(reason, name, 1e9, into=Into.EVENT_SECONDS)


FIELDS: Final[tuple[Field, ...]] = (
    # Where several rows have one attribute, the first that a page has is taken.
    _percent("utilization_ratio", "GPU_UTIL dcgm_gpu_utilization"),
    _dev("utilization_ratio", "GPU_UTIL_RATIO", 100, under_mig=Under.NOTHING, into=Into.UTILIZATION),
    _percent("memory_copy_utilization_ratio", "MEM_COPY_UTIL dcgm_mem_copy_utilization"),
    _dev("memory_copy_utilization_ratio", "MEMORY_UTIL_RATIO", 1, under_mig=Under.NOTHING),
    _activity("sm_active_ratio", "SM_ACTIVE", "SM_UTIL_RATIO"),
    _activity("sm_occupancy_ratio", "SM_OCCUPANCY", "SM_OCCUPANCY_RATIO"),
    _activity("tensor_active_ratio", "PIPE_TENSOR_ACTIVE", "TENSOR_UTIL_RATIO"),
    _activity("dram_active_ratio", "DRAM_ACTIVE", "DRAM_UTIL_RATIO"),
    _activity("graphics_engine_active_ratio", "GR_ENGINE_ACTIVE", "GR_ENGINE_UTIL_RATIO"),
    _megahertz("sm_clock_hertz", "SM_CLOCK dcgm_sm_clock"),
    _hertz("sm_clock_hertz", "SM_CLOCK_HERTZ"),
    _megahertz("sm_clock_max_hertz", "MAX_SM_CLOCK"),
    _hertz("sm_clock_max_hertz", "SM_MAX_CLOCK_HERTZ"),
    _megahertz("memory_clock_hertz", "MEM_CLOCK dcgm_memory_clock"),
    _hertz("memory_clock_hertz", "MEMORY_CLOCK_HERTZ"),
    _dev("performance_state", "PSTATE GPU_PSTATE", 15),
    _dev("temperature_celsius", "GPU_TEMP GPU_TEMP_CELSIUS dcgm_gpu_temp", 150, low=-40),
    _dev(
        "memory_temperature_celsius",
        "MEMORY_TEMP MEMORY_TEMP_CELSIUS dcgm_memory_temp",
        150,
        low=-40,
        zero_is_absent=True,
    ),
    _count("power_watts", "POWER_USAGE BOARD_POWER_WATTS dcgm_power_usage", 10_000),
    _count("power_watts", "POWER_USAGE_INSTANT BOARD_POWER_RAW_WATTS", 10_000),
    _count("power_limit_watts", "ENFORCED_POWER_LIMIT BOARD_POWER_LIMIT_ENFORCED_WATTS", 10_000),
    _count("power_limit_watts", "POWER_MGMT_LIMIT BOARD_POWER_LIMIT_REQUESTED_WATTS", 10_000),
    _dev(
        "energy_joules_total",
        "TOTAL_ENERGY_CONSUMPTION dcgm_total_energy_consumption",
        1e17,
        per=1000,
        under_mig=Under.WHOLE,
    ),
    _count("energy_joules_total", "GPU_ENERGY_JOULES_TOTAL", 1e14),
    _mebibytes("memory_used_bytes", "FB_USED dcgm_fb_used"),
    _bytes("memory_used_bytes", "FB_USED_BYTES"),
    _mebibytes("memory_free_bytes", "FB_FREE dcgm_fb_free"),
    _bytes("memory_free_bytes", "FB_FREE_BYTES"),
    _mebibytes("memory_reserved_bytes", "FB_RESERVED dcgm_fb_reserved"),
    _bytes("memory_reserved_bytes", "FB_RESERVED_BYTES"),
    _mebibytes("memory_total_bytes", "FB_TOTAL dcgm_fb_total"),
    _bytes("memory_total_bytes", "FB_CAPACITY_BYTES"),
    _count("xid_last", "XID_ERRORS XID_ERROR dcgm_xid_errors", 9999),
    _count("ecc_single_bit_errors_total", "ECC_SBE_AGG_TOTAL dcgm_ecc_sbe_aggregate_total"),
    _count("ecc_double_bit_errors_total", "ECC_DBE_AGG_TOTAL dcgm_ecc_dbe_aggregate_total"),
    _count("remapped_rows_correctable", "CORRECTABLE_REMAPPED_ROWS ROW_REMAP_CORRECTABLE_TOTAL", 1e6),
    _count("remapped_rows_uncorrectable", "UNCORRECTABLE_REMAPPED_ROWS ROW_REMAP_UNCORRECTABLE_TOTAL", 1e6),
    _count("row_remap_failed", "ROW_REMAP_FAILURE ROW_REMAP_FAILED", 1),
    _count("pcie_replays_total", "PCIE_REPLAY_COUNTER PCIE_REPLAY_TOTAL dcgm_pcie_replay_counter"),
    _traffic("pcie_transmit_bytes_per_second", "PCIE_TX_BYTES", 1e12),
    _traffic("pcie_receive_bytes_per_second", "PCIE_RX_BYTES", 1e12),
    _dev("pcie_link_generation", "PCIE_LINK_GEN", 16),
    _dev("pcie_link_generation_max", "PCIE_MAX_LINK_GEN", 16),
    _dev("pcie_link_width", "PCIE_LINK_WIDTH", 64),
    _dev("pcie_link_width_max", "PCIE_MAX_LINK_WIDTH", 64),
    _traffic("nvlink_transmit_bytes_per_second", "NVLINK_TX_BYTES", 1e13),
    _traffic("nvlink_receive_bytes_per_second", "NVLINK_RX_BYTES", 1e13),
    _dev(
        "nvlink_bytes_per_second",
        "NVLINK_BANDWIDTH_TOTAL NVLINK_THROUGHPUT_TOTAL dcgm_nvlink_bandwidth_total",
        1e7,
        times=NVLINK_MB,
        under_mig=Under.WHOLE,
    ),
    _count("nvlink_bytes_per_second", "NVLINK_THROUGHPUT_BYTES_PER_SECOND", 1e13),
    _count(
        "nvlink_flit_crc_errors_total",
        "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL NVLINK_CRC_FLIT_ERROR_TOTAL dcgm_nvlink_flit_crc_error_count_total",
    ),
    _count(
        "nvlink_data_crc_errors_total",
        "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL NVLINK_CRC_DATA_ERROR_TOTAL dcgm_nvlink_data_crc_error_count_total",
    ),
    _count(
        "nvlink_replays_total",
        "NVLINK_REPLAY_ERROR_COUNT_TOTAL NVLINK_REPLAY_ERROR_TOTAL dcgm_nvlink_replay_error_count_total",
    ),
    _count(
        "nvlink_recoveries_total",
        "NVLINK_RECOVERY_ERROR_COUNT_TOTAL NVLINK_RECOVERY_ERROR_TOTAL dcgm_nvlink_recovery_error_count_total",
    ),
    # NVML gives POWER and SYNC_BOOST violations the same field ids as the event counters SW_POWER_CAP and SYNC_BOOST:
    # they are one thing. A THERMAL violation is software's or hardware's slowdown, unsaid which. Of the names in
    # seconds only POWER's was seen written out; a wrong one would never match.
    _event_ns("sw_power_cap", "CLOCKS_EVENT_REASON_SW_POWER_CAP_NS POWER_VIOLATION dcgm_power_violation"),
    _event_seconds("sw_power_cap", "GPU_POWER_THROTTLE_SECONDS_TOTAL"),
    _event_ns("sync_boost", "CLOCKS_EVENT_REASON_SYNC_BOOST_NS SYNC_BOOST_VIOLATION dcgm_sync_boost_violation"),
    _event_seconds("sync_boost", "GPU_SYNC_BOOST_THROTTLE_SECONDS_TOTAL"),
    _event_ns("thermal", "THERMAL_VIOLATION dcgm_thermal_violation"),
    _event_seconds("thermal", "GPU_THERMAL_THROTTLE_SECONDS_TOTAL"),
    _event_ns("sw_thermal", "CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS"),
    _event_ns("hw_thermal", "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS"),
    _event_ns("hw_power_brake", "CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS"),
    _event_ns("board_limit", "BOARD_LIMIT_VIOLATION dcgm_board_limit_violation"),
    _event_seconds("board_limit", "GPU_BOARD_LIMIT_THROTTLE_SECONDS_TOTAL"),
    _event_ns("low_utilization", "LOW_UTIL_VIOLATION dcgm_low_util_violation"),
    _event_seconds("low_utilization", "GPU_LOW_UTIL_THROTTLE_SECONDS_TOTAL"),
    _event_ns("reliability", "RELIABILITY_VIOLATION dcgm_reliability_violation"),
    _event_seconds("reliability", "GPU_RELIABILITY_THROTTLE_SECONDS_TOTAL"),
    _dev("", "CLOCKS_EVENT_REASONS CLOCK_THROTTLE_REASONS", 0xFFFF, into=Into.EVENT_MASK),
)

# Left out on purpose:
# DCGM_FI_DEV_PCIE_TX_THROUGHPUT, …_RX_…: a 20 ms sample in KB that csv files typed counter; now never supported.
# DCGM_FI_DEV_TOTAL_APP_CLOCKS_VIOLATION, …_BASE_…: the sum over all reasons; beside them it would count twice.
# DCGM_EXP_XID_ERRORS_COUNT, DCGM_EXP_CLOCK_EVENTS_COUNT: counts of samples in a sliding window: they fall, and depend
# on how often DCGM looks.


BY_NAME: Final[dict[str, Field]] = {name: field for field in FIELDS for name in field.names}


def field_of(name: str) -> Field | None:
    """The field behind a metric's name; also where something in between gave a counter its ``_total``."""
    return BY_NAME.get(name) or BY_NAME.get(name.removesuffix("_total"))
