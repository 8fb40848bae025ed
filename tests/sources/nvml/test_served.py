"""NVML through the whole sidecar, as a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes import FakeClock
from sidecars import ServedSidecar
from straggler.detect.policy import DEFAULT
from straggler.errors import SourceAbsentError
from straggler.sidecar.config import Config, DcgmConfig
from straggler.sidecar.scrape import Request
from straggler.sidecar.sources import Node
from straggler.simulate.dcgm_text import Generation, gpu_labels, render
from straggler.simulate.local_http import LocalHandler, LocalServer
from stubbed import UUIDS


class Page(LocalHandler):
    """A page of dcgm-exporter."""

    text = ""

    def do_GET(self) -> None:  # noqa: N802 - the base class calls it by this name
        """Any path."""
        self.answer(200, type(self).text)


@pytest.fixture
def dcgm() -> Iterator[LocalServer]:
    """Serves ``Page.text``."""
    server = LocalServer(Page)
    yield server
    server.close()


def _page(**values: float) -> str:
    labels = gpu_labels(0, UUIDS[0], "n1", Generation.TEMPLATE)
    return render([(labels, {f"DCGM_FI_{name}": value for name, value in values.items()})], Generation.TEMPLATE)


def test_nvml_helps_where_dcgm_is_blind(
    new_driver: Path, tmp_path: Path, dcgm: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVML is asked when the page turns out to lack SM activity, and let go as soon as the page has it."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(new_driver))
    config = Config(dcgm=DcgmConfig(url=f"{dcgm.url}/metrics"), ring_dir=tmp_path)
    looks = {source.name: source.look for source in Node(config, DEFAULT, FakeClock()).sources}
    request = Request(30.0, stepping=True, occupied=True)

    with pytest.raises(SourceAbsentError):
        looks["nvml"](request)  # nobody knows yet what the page says
    Page.text = _page(DEV_GPU_UTIL=90)
    looks["dcgm"](request)
    helped = looks["nvml"](request)
    Page.text = _page(DEV_GPU_UTIL=90, PROF_SM_ACTIVE=0.5)
    looks["dcgm"](request)

    assert {gpu.key.uuid for gpu in helped.facts} == set(UUIDS)
    with pytest.raises(SourceAbsentError):
        looks["nvml"](request)


def test_page_of_a_node_without_dcgm(new_driver: Path, tmp_path: Path) -> None:
    """Where only NVML speaks, its GPUs are on the page, and the source is well."""
    (tmp_path / "state").write_text("reasons 1 0x80")
    environment = {"LD_LIBRARY_PATH": str(new_driver), "STUB_NVML": str(tmp_path / "state")}
    flags = ("--nvml-use", "always", "--dcgm-url", "none", "--ring-dir", str(tmp_path / "rings"))
    sidecar = ServedSidecar(*flags, environment=environment)
    try:
        page = sidecar.metrics()
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
        page = sidecar.metrics()
    finally:
        sidecar.close()

    assert 'straggler_exporter_source_state{source="nvml",state="absent"} 1.0' in page
    assert "gpu_power_watts" not in page
