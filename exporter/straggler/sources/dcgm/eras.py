"""Which names a page uses, and so which names its owner should write into the csv file of dcgm-exporter."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Flag, auto
from typing import Final, NamedTuple


class Era(Flag):
    """What the presence of a name tells about the page."""

    ANY = 0
    FIRST = auto()
    """1.x names."""
    RENAMED = auto()
    """Names of DCGM 4.6, which 4.7 has too."""
    BASE_UNITS = auto()
    """Fields that only DCGM 4.7 has."""


_BASE_UNIT_ENDINGS = (
    "_HERTZ",
    "_JOULES_TOTAL",
    "_THROTTLE_SECONDS_TOTAL",
    "_THROUGHPUT_BYTES_PER_SECOND",
    "_CAPACITY_BYTES",
    "FB_USED_BYTES",
    "FB_FREE_BYTES",
    "FB_RESERVED_BYTES",
    "DEV_MEMORY_UTIL_RATIO",
    "DEV_ENC_UTIL_RATIO",
    "DEV_DEC_UTIL_RATIO",
    "DEV_FAN_SPEED_RATIO",
)


def era(name: str) -> Era:
    """What one name tells."""
    if name.startswith("dcgm_"):
        return Era.FIRST
    if name.endswith(_BASE_UNIT_ENDINGS):
        return Era.BASE_UNITS
    if name.startswith("DCGM_FI_PROF_") and name.endswith("_RATIO"):
        return Era.RENAMED
    return Era.ANY


class _Row(NamedTuple):
    classic: str
    renamed: str
    first: str
    help: str


_ROWS: Final[dict[str, _Row]] = {
    "sm_active_ratio": _Row(
        "DCGM_FI_PROF_SM_ACTIVE",
        "DCGM_FI_PROF_SM_UTIL_RATIO",
        "dcgm_fi_prof_sm_active",
        "Share of cycles with a warp resident on an SM.",
    ),
    "sm_occupancy_ratio": _Row(
        "DCGM_FI_PROF_SM_OCCUPANCY",
        "DCGM_FI_PROF_SM_OCCUPANCY_RATIO",
        "dcgm_fi_prof_sm_occupancy",
        "Resident warps as a share of the most possible.",
    ),
    "tensor_active_ratio": _Row(
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "DCGM_FI_PROF_TENSOR_UTIL_RATIO",
        "dcgm_fi_prof_pipe_tensor_active",
        "Share of cycles with the tensor pipe busy.",
    ),
    "utilization_ratio": _Row(
        "DCGM_FI_DEV_GPU_UTIL",
        "DCGM_FI_DEV_GPU_UTIL_RATIO",
        "dcgm_gpu_utilization",
        "Share of time in which any kernel ran.",
    ),
}

WANTED: Final = tuple(_ROWS)
"""What verdicts need from dcgm-exporter, by catalogue name without ``gpu_``. The first two are commented out in every
csv file that NVIDIA ships."""


def csv_lines_to_enable(missing: Iterable[str], seen: Era = Era.ANY) -> tuple[str, ...]:
    """The lines to add to the csv file of dcgm-exporter.

    Args:
        missing: catalogue names without ``gpu_``; those not in ``WANTED`` are passed over.
        seen: what the page's names tell; the lines use names that its DCGM knows.

    Returns:
        One line for each, in the order of ``WANTED``, e.g. ``DCGM_FI_PROF_SM_ACTIVE, gauge, Share of …``.
    """
    asked = set(missing)
    lines = []
    for attribute, row in _ROWS.items():
        if attribute not in asked:
            continue
        name = row.classic
        if Era.BASE_UNITS in seen or (Era.RENAMED in seen and attribute != "utilization_ratio"):
            # Before 4.7 the renamed utilization is still in percent: its classic name cannot be misread.
            name = row.renamed
        elif Era.FIRST in seen:
            name = row.first
        lines.append(f"{name}, gauge, {row.help}")
    return tuple(lines)
