"""Why NVML, a GPU or a value is not shown: the values of the label ``reason``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from straggler.model.reading import Problem
from straggler.sources.nvml.binding import NvmlError

_OPEN: Final = {
    4: ("no_permission", "may not use the driver: give the sidecar the /dev/nvidia* devices"),
    9: ("driver_not_loaded", "the library is there, the kernel module is not: see dmesg | grep NVRM"),
    15: ("gpu_lost", "a GPU has fallen off the bus and NVML does not start: see dmesg | grep Xid"),
    18: (
        "version_mismatch",
        "library and kernel module are of different drivers: reboot the node",
    ),
    999: ("unknown_error", "often a container that has lost its devices: restart it"),
}
"""What a failure of the whole library means, and what to do."""

FAILURES: Final = (
    *(reason for reason, _ in _OPEN.values()),
    "nvml_error",  # any other code; the detail has it
    "library_missing",  # it was there, or was asked for
    "timeout",  # no answer yet; the call goes on
    "hung",  # no answer for so long that the process was killed
    "worker_died",
)
"""NVML gave nothing."""

VALUE_REASONS: Final = ("value_failed", "impossible_value")
"""One value was not given, or is not believed. That the GPU has no such value is no problem."""

BLIND_REASONS: Final = (
    "gpu_lost",  # counted by the driver, but it cannot be talked to any more
    "gpu_unreadable",
    "gpu_missing",  # was there, and the driver does not count it any more
    "metric_missing",  # a value that the GPU had
    "sm_active_absent",
)
"""Conditions, as long as they last."""

NVML_REASONS: Final = tuple(dict.fromkeys((*FAILURES, *VALUE_REASONS, *BLIND_REASONS)))

_ABSENCE: Final = frozenset(
    (
        2,  # INVALID_ARGUMENT: a field id that the driver does not know yet
        3,  # NOT_SUPPORTED
        4,  # NO_PERMISSION: the value is not for us
        6,  # NOT_FOUND
        13,  # FUNCTION_NOT_FOUND: the driver is older than the function
        21,  # NO_DATA
        25,  # ARGUMENT_VERSION_MISMATCH
        26,  # DEPRECATED
    )
)
_LOSS: Final = frozenset((15, 16, 28))
"""GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND."""


def means_absent(code: int) -> bool:
    """Whether a code says that this GPU or driver has no such value: absence, no trouble."""
    return code in _ABSENCE


def means_lost(code: int) -> bool:
    """Whether a code is about the GPU itself: no other value will come either."""
    return code in _LOSS


def opening_failure(error: NvmlError) -> tuple[str, str]:
    """Reason and advice when the library as a whole does not work."""
    reason, advice = _OPEN.get(error.code, ("nvml_error", "see nvidia-smi"))
    return reason, f"{error}: {advice}"


class Findings:
    """Problems by reason, with the first detail of each."""

    def __init__(self) -> None:
        self._found: dict[str, Problem] = {}

    def add(self, reason: str, detail: str) -> None:
        """Count once more."""
        known = self._found.get(reason)
        count = known.count + 1 if known else 1
        self._found[reason] = Problem(reason=reason, detail=known.detail if known else detail, count=count)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._found.values())
