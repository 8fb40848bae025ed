"""NVML through the whole sidecar, as a process."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from sidecars import ServedSidecar
from stubbed import UUIDS


def test_page_of_a_node_without_dcgm(new_driver: Path, tmp_path: Path) -> None:
    """Where only NVML speaks, its GPUs are on the page, and the source is well."""
    (tmp_path / "state").write_text("reasons 1 0x80")
    environment = {"LD_LIBRARY_PATH": str(new_driver), "STUB_NVML": str(tmp_path / "state")}
    flags = ("--nvml-use", "always", "--dcgm-url", "none", "--ring-dir", str(tmp_path / "rings"))
    sidecar = ServedSidecar(*flags, environment=environment)
    try:
        with urllib.request.urlopen(f"{sidecar.url}/metrics", timeout=30) as answer:
            page = answer.read().decode()
    finally:
        sidecar.close()

    assert f'gpu_power_watts{{GPU_I_ID="",UUID="{UUIDS[0]}"}} 650.5' in page
    assert f'gpu_clocks_event_reason{{GPU_I_ID="",UUID="{UUIDS[1]}",reason="hw_power_brake"}} 1.0' in page
    assert f'gpu_xid_events_total{{GPU_I_ID="",UUID="{UUIDS[0]}"}} 0.0' in page
    assert 'straggler_exporter_source_state{source="nvml",state="ok"} 1.0' in page


def test_node_without_ranks_is_left_alone(new_driver: Path, tmp_path: Path) -> None:
    """Without a rank nobody opens the GPUs: they can be reset."""
    (tmp_path / "state").write_text("")
    environment = {"LD_LIBRARY_PATH": str(new_driver), "STUB_NVML": str(tmp_path / "state")}
    sidecar = ServedSidecar("--dcgm-url", "none", "--ring-dir", str(tmp_path / "rings"), environment=environment)
    try:
        with urllib.request.urlopen(f"{sidecar.url}/metrics", timeout=30) as answer:
            page = answer.read().decode()
    finally:
        sidecar.close()

    assert 'straggler_exporter_source_state{source="nvml",state="absent"} 1.0' in page
    assert "gpu_power_watts" not in page
