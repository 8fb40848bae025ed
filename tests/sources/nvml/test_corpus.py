"""What a real driver said, through nvidia-smi, about the same bits."""

from __future__ import annotations

import re
from pathlib import Path

from fakes import FakeNvml
from straggler.sources.nvml.session import Session

# ..., P0, 0x00000000000001FF, 0x0000000000000001, Active, Not Active, …       (nvidia-smi 590 --query-gpu)
_ROW = re.compile(r"(0x[0-9A-F]{16}), (0x[0-9A-F]{16}), ((?:(?:Not )?Active, ){8})")
_COLUMNS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "hw_thermal",
    "hw_power_brake",
    "sw_thermal",
    "sync_boost",
)


def test_reasons_agree_with_nvidia_smi(corpus: Path) -> None:
    """Each mask that a driver gave means what nvidia-smi printed beside it."""
    rows = [row for path in sorted((corpus / "nvidia_smi").glob("*.txt")) for row in _ROW.findall(path.read_text())]
    assert len(rows) >= 6
    for supported, active, printed in rows:
        nvml = FakeNvml()
        nvml.answers["nvmlDeviceGetSupportedClocksEventReasons"] = int(supported, 16)
        nvml.answers["nvmlDeviceGetCurrentClocksEventReasons"] = int(active, 16)
        reasons = Session(nvml).look(0.0).facts[0].clocks_event_reasons
        flags = [float(flag == "Active") for flag in printed.removesuffix(", ").split(", ")]

        assert [reasons[name] for name in _COLUMNS] == flags
        assert len(reasons) == int(supported, 16).bit_count()
