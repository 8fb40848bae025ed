"""The text of a dcgm-exporter page, as its two renderers write it. Pure.

``template`` is dcgm-exporter up to 4.8.2: text templates, families in the order of the csv file, integers as ``%d`` and
doubles as ``%f``, label values not escaped, ``Hostname``. ``sorted`` is 4.8.3 and later: Prometheus' own encoder,
families sorted by name, numbers in Go's shortest ``g`` form, ``hostname``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

DRIVER_VERSION = "550.54.15"
MODEL_NAME = "NVIDIA H100 80GB HBM3"
_BUS_NUMBERS = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)  # as in an HGX board of eight


class Generation(str, Enum):
    """Which renderer."""

    TEMPLATE = "template"
    """Up to 4.8.2."""
    SORTED = "sorted"
    """4.8.3 and later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One row of the csv file that tells dcgm-exporter what to show."""

    name: str
    kind: str
    help: str


FIELDS: tuple[Field, ...] = tuple(
    Field(name=name, kind=kind, help=text)
    for name, kind, text in (
        ("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz)."),
        ("DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock frequency (in MHz)."),
        ("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C)."),
        ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W)."),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Total energy consumption since boot (in mJ)."),
        ("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %)."),
        ("DCGM_FI_DEV_XID_ERRORS", "gauge", "Value of the last XID error encountered."),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "gauge", "Why the clocks are what they are (bits)."),
        ("DCGM_FI_DEV_THERMAL_VIOLATION", "counter", "Throttling duration due to thermal constraints (in ns)."),
        (
            "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS",
            "counter",
            "Throttling duration due to the power brake (in ns).",
        ),
        ("DCGM_FI_DEV_PCIE_LINK_GEN", "gauge", "PCIe generation of the link."),
        ("DCGM_FI_DEV_PCIE_MAX_LINK_GEN", "gauge", "Highest PCIe generation of the link."),
        ("DCGM_FI_DEV_PCIE_LINK_WIDTH", "gauge", "PCIe lanes of the link."),
        ("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", "gauge", "Most PCIe lanes of the link."),
        ("DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB)."),
        ("DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB)."),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "Ratio of time the graphics engine is active."),
        ("DCGM_FI_PROF_SM_ACTIVE", "gauge", "The ratio of cycles an SM has at least 1 warp assigned."),
        ("DCGM_FI_PROF_SM_OCCUPANCY", "gauge", "The ratio of number of warps resident on an SM."),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "Ratio of cycles the tensor (HMMA) pipe is active."),
        ("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Ratio of cycles the device memory interface is active."),
    )
)
"""The default csv of 4.x, shortened, with the rows that this project asks people to enable, and those that explain."""

HELD_COUNTERS = tuple(
    field.name for field in FIELDS if "VIOLATION" in field.name or "CLOCKS_EVENT_REASON_" in field.name
)
"""Fields that count how long something held a clock down."""


Row = tuple[tuple[tuple[str, str], ...], Mapping[str, int | float]]
"""One GPU: its labels in the order written, and its values by field name."""


def gpu_labels(gpu: int, uuid: str, hostname: str, generation: Generation) -> tuple[tuple[str, str], ...]:
    """The labels of a whole GPU that belongs to no pod, in the order written."""
    return (
        ("gpu", str(gpu)),
        ("UUID", uuid),
        ("pci_bus_id", pci_bus_id(gpu)),
        ("device", f"nvidia{gpu}"),
        ("modelName", MODEL_NAME),
        ("Hostname" if generation is Generation.TEMPLATE else "hostname", hostname),
        ("DCGM_FI_DRIVER_VERSION", DRIVER_VERSION),
    )


def pci_bus_id(gpu: int) -> str:
    """E.g. ``00000000:1B:00.0``; a further board of eight GPUs is in the next PCI domain."""
    board, place = divmod(gpu, len(_BUS_NUMBERS))
    return f"{board:08X}:{_BUS_NUMBERS[place]:02X}:00.0"


def render(gpus: Sequence[Row], generation: Generation) -> str:
    """The page. A field that a GPU lacks gives no sample."""
    fields = FIELDS if generation is Generation.TEMPLATE else tuple(sorted(FIELDS, key=lambda field: field.name))
    number = template_number if generation is Generation.TEMPLATE else shortest_number
    lines: list[str] = []
    for field in fields:
        lines += [f"# HELP {field.name} {field.help}", f"# TYPE {field.name} {field.kind}"]
        for labels, values in gpus:
            if field.name in values:
                text = ",".join(f'{key}="{value}"' for key, value in labels)
                lines.append(f"{field.name}{{{text}}} {number(values[field.name])}")
    return "\n".join(lines) + "\n"


def template_number(value: float) -> str:
    """``%d`` for integers, ``%f`` for doubles."""
    return str(value) if isinstance(value, int) else f"{value:f}"


def shortest_number(value: float) -> str:
    """Go's ``strconv.FormatFloat(value, 'g', -1, 64)``: ``1.29931554972e+11``, ``69829``, ``0.871034``.

    Source:
        Go, strconv/ftoa.go: the shortest digits that read back as the same double, in exponent form if the exponent
        is below -4 or at least 6.
    """
    exact = Decimal(repr(float(value))).normalize()
    exponent = exact.adjusted()
    if -4 <= exponent < 6:
        return f"{exact:f}"
    mantissa = exact.scaleb(-exponent)
    return f"{mantissa:f}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
