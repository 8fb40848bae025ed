"""The table of vendor fields: factors by hand, ranges, and its own consistency."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from straggler.metrics.catalogue import GPU_METRICS
from straggler.model.gpu import CLOCKS_EVENT_REASONS
from straggler.sources.dcgm.fields import BY_NAME, FIELDS, Field, Into, Under, field_of
from straggler.sources.dcgm.units import to_base_unit

D = "DCGM_FI_DEV_"
P = "DCGM_FI_PROF_"

BY_HAND: dict[str, tuple[float, float]] = {
    # first name of each row: a value as the vendor writes it, and the same in base units
    f"{D}GPU_UTIL": (97, 0.97),  # percent
    f"{D}MEM_COPY_UTIL": (41, 0.41),
    f"{D}MEMORY_UTIL_RATIO": (0.41, 0.41),
    f"{P}SM_ACTIVE": (0.871034, 0.871034),  # a ratio, though old HELP texts say %
    f"{P}SM_OCCUPANCY": (0.41221, 0.41221),
    f"{P}PIPE_TENSOR_ACTIVE": (0.412345, 0.412345),
    f"{P}DRAM_ACTIVE": (0.5033, 0.5033),
    f"{P}GR_ENGINE_ACTIVE": (0.998127, 0.998127),
    f"{D}SM_CLOCK": (1980, 1_980_000_000),  # MHz
    f"{D}SM_CLOCK_HERTZ": (1.98e9, 1_980_000_000),
    f"{D}MAX_SM_CLOCK": (1980, 1_980_000_000),
    f"{D}SM_MAX_CLOCK_HERTZ": (1.98e9, 1_980_000_000),
    f"{D}MEM_CLOCK": (2619, 2_619_000_000),
    f"{D}MEMORY_CLOCK_HERTZ": (2.619e9, 2_619_000_000),
    f"{D}PSTATE": (2, 2),
    f"{D}GPU_TEMP": (48, 48),
    f"{D}MEMORY_TEMP": (54, 54),
    f"{D}POWER_USAGE": (612.382, 612.382),
    f"{D}POWER_USAGE_INSTANT": (612.382, 612.382),
    f"{D}ENFORCED_POWER_LIMIT": (700, 700),
    f"{D}POWER_MGMT_LIMIT": (300, 300),
    f"{D}TOTAL_ENERGY_CONSUMPTION": (129_931_554_972, 129_931_554.972),  # mJ
    f"{D}GPU_ENERGY_JOULES_TOTAL": (129_931_554, 129_931_554),
    f"{D}FB_USED": (69_829, 73_221_013_504),  # MiB of 1,048,576 bytes
    f"{D}FB_USED_BYTES": (73_221_013_504, 73_221_013_504),
    f"{D}FB_FREE": (11_275, 11_822_694_400),
    f"{D}FB_FREE_BYTES": (11_822_694_400, 11_822_694_400),
    f"{D}FB_RESERVED": (457, 479_199_232),
    f"{D}FB_RESERVED_BYTES": (479_199_232, 479_199_232),
    f"{D}FB_TOTAL": (81_559, 85_520_809_984),
    f"{D}FB_CAPACITY_BYTES": (85_520_809_984, 85_520_809_984),
    f"{D}XID_ERRORS": (79, 79),
    f"{D}ECC_SBE_AGG_TOTAL": (3, 3),
    f"{D}ECC_DBE_AGG_TOTAL": (1, 1),
    f"{D}CORRECTABLE_REMAPPED_ROWS": (2, 2),
    f"{D}UNCORRECTABLE_REMAPPED_ROWS": (1, 1),
    f"{D}ROW_REMAP_FAILURE": (1, 1),
    f"{D}PCIE_REPLAY_COUNTER": (9, 9),
    f"{P}PCIE_TX_BYTES": (1_043_129_873, 1_043_129_873),  # bytes per second already
    f"{P}PCIE_RX_BYTES": (903_412_221, 903_412_221),
    f"{D}PCIE_LINK_GEN": (5, 5),
    f"{D}PCIE_MAX_LINK_GEN": (5, 5),
    f"{D}PCIE_LINK_WIDTH": (16, 16),
    f"{D}PCIE_MAX_LINK_WIDTH": (16, 16),
    f"{P}NVLINK_TX_BYTES": (20_971_520, 20_971_520),
    f"{P}NVLINK_RX_BYTES": (20_971_520, 20_971_520),
    f"{D}NVLINK_BANDWIDTH_TOTAL": (45_012, 46_092_288_000),  # KiB/s divided by 1,000: times 1,000 times 1,024
    f"{D}NVLINK_THROUGHPUT_BYTES_PER_SECOND": (46_092_288_000, 46_092_288_000),
    f"{D}NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": (7, 7),
    f"{D}NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": (6, 6),
    f"{D}NVLINK_REPLAY_ERROR_COUNT_TOTAL": (5, 5),
    f"{D}NVLINK_RECOVERY_ERROR_COUNT_TOTAL": (4, 4),
    f"{D}CLOCKS_EVENT_REASON_SW_POWER_CAP_NS": (2_500_000_000, 2.5),  # ns
    f"{D}GPU_POWER_THROTTLE_SECONDS_TOTAL": (2.5, 2.5),
    f"{D}CLOCKS_EVENT_REASON_SYNC_BOOST_NS": (1_000_000, 0.001),
    f"{D}GPU_SYNC_BOOST_THROTTLE_SECONDS_TOTAL": (0.001, 0.001),
    f"{D}THERMAL_VIOLATION": (140_737_488_355_328, 140_737.488355328),  # a blank elsewhere; here 39 hours
    f"{D}GPU_THERMAL_THROTTLE_SECONDS_TOTAL": (140_737.5, 140_737.5),
    f"{D}CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS": (1e9, 1),
    f"{D}CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS": (1e9, 1),
    f"{D}CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS": (1e9, 1),
    f"{D}BOARD_LIMIT_VIOLATION": (1e9, 1),
    f"{D}GPU_BOARD_LIMIT_THROTTLE_SECONDS_TOTAL": (1, 1),
    f"{D}LOW_UTIL_VIOLATION": (1e9, 1),
    f"{D}GPU_LOW_UTIL_THROTTLE_SECONDS_TOTAL": (1, 1),
    f"{D}RELIABILITY_VIOLATION": (1e9, 1),
    f"{D}GPU_RELIABILITY_THROTTLE_SECONDS_TOTAL": (1, 1),
    f"{D}CLOCKS_EVENT_REASONS": (96, 96),  # a mask
}

plain = [field for field in FIELDS if field.into is not Into.UTILIZATION]  # that one's unit depends on the page
each = pytest.mark.parametrize("field", plain, ids=lambda field: field.names[0])


@each
def test_factor_by_hand(field: Field) -> None:
    """Each row turns a value as exporters write it into the one that was worked out by hand."""
    raw, expected = BY_HAND[field.names[0]]

    assert to_base_unit(field, raw, under_mig=False) == expected


@each
@pytest.mark.parametrize("raw", [-41.0, 2_147_483_632.0, 9223372036854775794.0, 1.8446744e19])
def test_nothing_impossible_passes(field: Field, raw: float) -> None:
    """Values outside a row's range give a reason, and so does a blank in it: 2147483632 errors are no errors."""
    assert to_base_unit(field, raw, under_mig=False) == ("impossible_value" if raw < 0 else "sentinel")


def test_minus_zero_is_zero() -> None:
    """A zero with a sign, as some writers make of an empty sum, is not shown as -0."""
    assert str(to_base_unit(BY_NAME[f"{D}FB_USED"], -0.0, under_mig=False)) == "0.0"


@pytest.mark.parametrize(
    ("name", "raw", "reason"),
    [
        (f"{D}GPU_UTIL", 2619, "impossible_value"),
        (f"{D}GPU_UTIL", 627618, "impossible_value"),
        (f"{D}GPU_UTIL", 808334905, "impossible_value"),
        (f"{D}GPU_UTIL", 4294967295, "impossible_value"),
        (f"{D}GPU_UTIL", 100.5, "impossible_value"),
        (f"{D}GPU_TEMP", 345, "impossible_value"),
        (f"{D}GPU_TEMP", 82505, "impossible_value"),
        (f"{D}GPU_TEMP", 200000, "impossible_value"),
        (f"{D}GPU_TEMP", 644245923, "impossible_value"),
        (f"{D}GPU_TEMP", 2147483634, "sentinel"),
        (f"{D}MEMORY_TEMP", 9223372036854775794, "sentinel"),
        (f"{P}SM_ACTIVE", 140737488355328.0, "sentinel"),
        (f"{P}SM_ACTIVE", 140737488355331.0, "sentinel"),
        (f"{P}SM_ACTIVE", 1.4073748835532e14, "impossible_value"),
        (f"{P}SM_ACTIVE", 1.294, "impossible_value"),
        (f"{P}SM_ACTIVE", 64.0, "impossible_value"),
        (f"{D}ROW_REMAP_FAILURE", 2, "impossible_value"),
        (f"{D}CLOCKS_EVENT_REASONS", 808334905, "impossible_value"),
    ],
)
def test_values_seen_in_the_field(name: str, raw: float, reason: str) -> None:
    """Blanks and corrupted numbers that people met are told apart, and never shown."""
    assert to_base_unit(BY_NAME[name], raw, under_mig=False) == reason


def test_overshoot() -> None:
    """A ratio a little over 1 is 1; far over 1 it is so only for a MIG instance, where DCGM counts the wrong SMs."""
    field = BY_NAME[f"{P}SM_ACTIVE"]

    assert to_base_unit(field, 1.000352, under_mig=False) == 1
    assert to_base_unit(field, 1.294, under_mig=True) == 1
    assert to_base_unit(field, 1.6, under_mig=True) == "impossible_value"


def test_memory_temperature_of_zero() -> None:
    """Cards without the sensor say 0: that is no temperature, and no fault either. A cold core is one."""
    assert to_base_unit(BY_NAME[f"{D}MEMORY_TEMP"], 0, under_mig=False) is None
    assert to_base_unit(BY_NAME[f"{D}GPU_TEMP"], 0, under_mig=False) == 0


def test_names_stand_once() -> None:
    """A vendor name in two rows would have two units."""
    names = [name for field in FIELDS for name in field.names]

    assert len(names) == len(set(names))


def test_table_and_catalogue_agree() -> None:
    """Each row gives a metric of the catalogue or a listed reason, and each GPU metric of the catalogue has a row."""
    values = {field.attribute for field in FIELDS if field.into in (Into.VALUE, Into.UTILIZATION)}
    reasons = {field.attribute for field in FIELDS if field.into is Into.EVENT_SECONDS}
    elsewhere = {"gpu_info", "gpu_clocks_event_reason", "gpu_clocks_event_seconds_total"}
    elsewhere |= {
        # what NVML alone tells
        "gpu_row_remap_pending",
        "gpu_xid_events_total",
        "gpu_xid_events_by_number_total",
        "gpu_pcie_correctable_errors_total",
        "gpu_pcie_non_fatal_errors_total",
        "gpu_pcie_fatal_errors_total",
    }

    assert {f"gpu_{attribute}" for attribute in values} == {metric.name for metric in GPU_METRICS} - elsewhere
    assert reasons <= set(CLOCKS_EVENT_REASONS)


def test_counter_with_a_suffix() -> None:
    """Tools in between give everything typed counter a ``_total``; it is the same field."""
    assert field_of(f"{D}TOTAL_ENERGY_CONSUMPTION_total") is field_of(f"{D}TOTAL_ENERGY_CONSUMPTION")
    assert field_of("DCGM_FI_DEV_ENC_UTIL") is None


@pytest.mark.parametrize("name", [f"{D}PCIE_TX_THROUGHPUT", f"{D}PCIE_RX_THROUGHPUT", f"{D}TOTAL_APP_CLOCKS_VIOLATION"])
def test_left_out(name: str) -> None:
    """Fields that mean nothing, or everything twice, have no row."""
    assert field_of(name) is None


def test_amounts_belong_to_the_whole_gpu() -> None:
    """Counters and watts of a whole GPU are never a MIG instance's: their sum would be a multiple."""
    amounts = [field for field in FIELDS if field.attribute.endswith("_total") or "watts" in field.attribute]

    assert amounts
    assert {field.under_mig for field in amounts} == {Under.WHOLE}


def test_renamed_fields_are_known(corpus: Path) -> None:
    """Every field of the table that DCGM 4.6 renamed is known under its new name too."""
    with (corpus / "csv" / "dcgm_4.6.0_old_to_new_field_names.tsv").open() as lines:
        renamed = {row[0]: row[1] for row in csv.reader(lines, delimiter="\t")}
    del renamed[f"{D}GPU_UTIL"]  # its second name means two things, see test_parse.py
    ours = {name: field for name, field in BY_NAME.items() if name in renamed}

    assert len(ours) > 20
    assert {name: BY_NAME.get(renamed[name]) for name in ours} == ours


def test_shipped_csv_files_are_known(corpus: Path) -> None:
    """Every active row of every csv file that NVIDIA ships has a row in the table, or stands here."""
    unused = ("ENC_UTIL", "DEC_UTIL", "VGPU_LICENSE_STATUS", "PCIE_TX_THROUGHPUT", "PCIE_RX_THROUGHPUT")
    unused_first = ("dcgm_enc_utilization", "dcgm_dec_utilization")
    for path in sorted((corpus / "csv").glob("*.csv")):
        rows = [line.split(",") for line in path.read_text().splitlines() if line.strip() and line[0] != "#"]
        names = {row[0].strip() for row in rows if row[1].strip() != "label"}
        unknown = {name for name in names if field_of(name) is None}

        assert unknown <= {*(f"{D}{name}" for name in unused), *unused_first}, path.name
