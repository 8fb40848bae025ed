"""What the operating system says, through the whole sidecar."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from facts import gpu_facts, identity, rank_facts
from ring_files import trainer
from scripted import MakeBench, ScriptedSource
from sidecars import ServedSidecar
from straggler.model.gpu import GpuFacts
from straggler.model.host import NodeHost, RankHost
from straggler.model.rank import RankKey
from straggler.model.reading import Problem
from straggler.sidecar.page import build_page


@pytest.mark.skipif(sys.platform != "linux", reason="the real /proc is Linux's")
def test_process_of_a_rank_is_on_the_page(tmp_path: Path) -> None:
    """A trainer in the same PID namespace is found by its ring's lock, and its CPU time is on the page."""
    rings = tmp_path / "rings"
    rings.mkdir(0o700)
    with trainer(rings / "a.ring"):
        sidecar = ServedSidecar("--dcgm-url", "none", "--nvml-use", "never", "--ring-dir", os.fspath(rings))
        try:
            sidecar.metrics()  # the rings and the host are asked at the same time: the second look knows the process
            page = sidecar.metrics()
        finally:
            sidecar.close()

    assert 'straggler_exporter_source_state{source="host",state="ok"} 1.0' in page
    assert "\ntraining_rank_host_cpu_user_seconds_total{" in page


def test_host_facts_belong_to_ranks_with_a_ring_here(make_bench: MakeBench) -> None:
    """A pushed rank of the same name has its process elsewhere."""
    host = RankHost(key=RankKey("r", 0), values={"major_faults_total": 3.0})
    local = make_bench(ScriptedSource("rings", [rank_facts(0)]), ScriptedSource("host", [host]))
    pushed = make_bench(ScriptedSource("push", [rank_facts(0, source="push")]), ScriptedSource("host", [host]))

    assert local.collector.collect(30).views[0].host == host
    assert pushed.collector.collect(30).views[0].host is None


def test_gpus_that_the_kernel_has_and_the_page_has_not(make_bench: MakeBench) -> None:
    """The kernel's list of GPUs, which opens none, shows what a page lacks."""
    node = NodeHost(pressure={("cpu", "some"): 1.5}, gpu_bus_ids=frozenset({"00000000:10:00.0", "00000000:99:00.0"}))
    bench = make_bench(ScriptedSource("dcgm", [gpu_facts(0)]), ScriptedSource("host", [node]))
    families = {family.name: family for family in build_page(bench.collector.collect(30)).collect()}

    blind = [(sample.labels, sample.value) for sample in families["straggler_exporter_blind"].samples]
    assert blind == [({"source": "dcgm", "reason": "gpu_not_on_page"}, 1.0)]
    assert families["host_pressure_seconds"].samples[0].value == 1.5


def test_activity_from_nvml_is_sight(make_bench: MakeBench) -> None:
    """A page without SM activity blinds nobody where NVML has it; without NVML it does."""
    page = ScriptedSource(
        "dcgm",
        [gpu_facts(0, values={"utilization_ratio": 0.9})],
        blind=[Problem(reason="sm_active_absent")],
    )
    alone = make_bench(page).collector.collect(30).status
    helped = make_bench(page, ScriptedSource("nvml", [gpu_facts(0, source="nvml")])).collector.collect(30).status

    assert alone.sources[0].blind == {"sm_active_absent": 1}
    assert helped.sources[0].blind == {}


@pytest.mark.parametrize(
    ("page", "source"),
    [([], "nvml"), ([gpu_facts(0, values={"sm_active_ratio": 0.3})], "dcgm+nvml"), ([gpu_facts(0)], "dcgm")],
)
def test_info_says_who_spoke(make_bench: MakeBench, page: list[GpuFacts], source: str) -> None:
    """The rank's info names the sources of its GPU's values: both only where one completed the other."""
    nvml = gpu_facts(0, source="nvml")
    rank = rank_facts(0, identity=identity(0, gpu_uuid=nvml.key.uuid))
    sources = (ScriptedSource("rings", [rank]), ScriptedSource("dcgm", page), ScriptedSource("nvml", [nvml]))
    book = build_page(make_bench(*sources).collector.collect(30))
    (info,) = (family for family in book.collect() if family.name == "training_rank")

    assert info.samples[0].labels["gpu_source"] == source


def test_nvml_proves_the_page(make_bench: MakeBench) -> None:
    """A rank that knows only its bus id is not matched with the page of another node, but with NVML's GPU."""
    other, own = gpu_facts(0), gpu_facts(1, pci_bus_id=gpu_facts(0).pci_bus_id, source="nvml")
    rank = rank_facts(0, identity=identity(0, pci_bus_id=other.pci_bus_id, clock="cuda"))
    sources = (ScriptedSource("rings", [rank]), ScriptedSource("dcgm", [other]), ScriptedSource("nvml", [own]))
    (view,) = make_bench(*sources, node_proven=False).collector.collect(30).views

    assert view.gpu is not None
    assert (view.gpu.key, view.evidence) == (own.key, "pci_bus_id")
