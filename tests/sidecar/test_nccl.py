"""NCCL's logs through the whole sidecar."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from facts import gpu_facts, identity, rank_facts
from ring_files import trainer
from scripted import MakeBench, ScriptedSource
from sidecars import ServedSidecar
from straggler.detect.policy import DEFAULT
from straggler.model.nccl import NcclFacts
from straggler.model.rank import RankFacts
from straggler.model.reading import SourceState
from straggler.sidecar.api import ranks_document
from straggler.sidecar.config import log_patterns
from straggler.sidecar.page import build_page
from straggler.sidecar.state import Snapshot

UID = os.geteuid()


def rank(number: int = 0, **changes: Any) -> RankFacts:
    """One rank of this node, with a process."""
    return rank_facts(number, identity=identity(number, **changes), pid=40 + number, uid=UID)


def log(number: int = 0, **changes: Any) -> NcclFacts:
    """What that rank's log says."""
    values: dict[str, Any] = {"host": "n1", "pid": 40 + number, "rank": number, "nranks": 8, "uid": UID}
    return NcclFacts(**(values | {"path": f"/l/{number}"} | changes))


def taken(make_bench: MakeBench, ranks: list[RankFacts], logs: list[NcclFacts]) -> Snapshot:
    """One collection."""
    sources = (ScriptedSource("rings", ranks), ScriptedSource("nccl", logs), ScriptedSource("dcgm", [gpu_facts(1)]))
    return make_bench(*sources).collector.collect(30)


def test_what_the_log_says_is_on_the_page(make_bench: MakeBench) -> None:
    """Version and network in the info, channels by transport, GPUDirect RDMA as a share, warnings by kind."""
    facts = log(
        version="2.21.5",
        network="IB",
        channels={"p2p": 2, "ib": 4},
        gdr_ratio=0.5,
        nvls=False,
        warnings={"net_completion": 3},
    )
    families = {family.name: family for family in build_page(taken(make_bench, [rank()], [facts])).collect()}

    info = families["training_nccl"].samples[0].labels
    assert (info["rank"], info["version"], info["network"], info["nvls"]) == ("0", "2.21.5", "IB", "no")
    channels = {sample.labels["transport"]: sample.value for sample in families["training_nccl_channels"].samples}
    assert channels == {"p2p": 2, "ib": 4}
    assert families["training_nccl_gdr_ratio"].samples[0].value == 0.5
    assert families["training_nccl_warnings"].samples[0].labels["kind"] == "net_completion"


def test_programs_get_it_too(make_bench: MakeBench) -> None:
    """The API has the sentence and the numbers; what the log does not say is not there."""
    (document,) = ranks_document(taken(make_bench, [rank()], [log(channels={"socket": 2})]), DEFAULT)["ranks"]

    assert document["nccl"] == {
        "says": "n1 sends over sockets: NCCL's log does not say why.",
        "channels": {"socket": 2},
        "log": "/l/0",
    }


def test_the_gpu_is_found_by_the_log(make_bench: MakeBench) -> None:
    """A rank that says nothing of its GPU is on the one whose bus id NCCL logged."""
    (view,) = taken(make_bench, [rank()], [log(pci_bus_id=gpu_facts(1).pci_bus_id)]).views

    assert view.gpu is not None
    assert (view.gpu.key, view.evidence) == (gpu_facts(1).key, "nccl_bus_id")


def test_silence_is_told(make_bench: MakeBench) -> None:
    """A rank whose neighbours have a log, and a rank on a GPU, are blind spots without one; a CPU run is none."""
    ranks = [rank(0), rank(1), rank(2, run="on-gpu", clock="cuda"), rank(3, run="on-cpu")]
    status = taken(make_bench, ranks, [log(0)]).status

    assert {source.source: source.blind for source in status.sources}["nccl"] == {"rank_without_log": 2}


def test_nobody_is_blind_for_logs_that_nobody_asked_for(make_bench: MakeBench) -> None:
    """Without the setting there is no source, and a log is not missed."""
    rings = ScriptedSource("rings", [rank(0, clock="cuda")])
    off = ScriptedSource("nccl", state=SourceState.ABSENT)
    status = make_bench(rings, off).collector.collect(30).status

    assert {source.source: source.blind for source in status.sources}["nccl"] == {}


def test_logs_of_nobody_here_are_counted(make_bench: MakeBench) -> None:
    """Another node's, and an earlier process': a number for each reason, and no series of a rank."""
    snapshot = taken(make_bench, [rank()], [log(host="n2"), log(pid=99)])

    assert snapshot.status.nccl_unlinked == {"other_node": 1, "no_such_process": 1}
    assert snapshot.views[0].nccl is None


def test_a_trainer_and_its_log_meet(tmp_path: Path) -> None:
    """A real process with a ring, its log in a file, and the sidecar that reads both."""
    rings, logs = tmp_path / "rings", tmp_path / "logs"
    rings.mkdir(0o700)
    logs.mkdir()
    with trainer(rings / "a.ring") as process:
        said = f"n1:{process.pid}:7 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0\n"
        (logs / "nccl.log").write_text(said, encoding="utf-8")
        flags = ("--dcgm-url", "none", "--nvml-use", "never", "--nccl-logs", f"{logs}/*.log")
        sidecar = ServedSidecar(*flags, "--ring-dir", os.fspath(rings))
        try:
            page = sidecar.metrics()
        finally:
            sidecar.close()

    assert 'straggler_exporter_source_state{source="nccl",state="ok"} 1.0' in page
    assert "straggler_exporter_nccl_logs 1.0" in page
    (series,) = [line for line in page.splitlines() if line.startswith("training_nccl_channels{")]
    assert 'transport="socket"' in series
    assert series.endswith(" 1.0")


@pytest.mark.parametrize("text", ["nccl.log", "/var/log/", "/a.log, b.log"])
def test_paths_must_be_absolute(text: str) -> None:
    """Where a service starts is nobody's business, and a directory is no log."""
    with pytest.raises(ValueError, match="absolute"):
        log_patterns(text)
