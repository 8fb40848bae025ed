"""RDMA ports on their way through the sidecar: from the tree to the page, to ranks, and to doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.samples import Sample

from facts import identity, rank_facts
from fakes import FakeClock
from port_trees import unpack
from scripted import Bench, MakeBench, ScriptedSource
from straggler.detect.policy import DEFAULT
from straggler.model.reading import SourceState
from straggler.sidecar.config import Config, DcgmConfig, InfinibandConfig, NvmlConfig
from straggler.sidecar.doctor.finding import Finding, Health
from straggler.sidecar.doctor.origins import examine_source
from straggler.sidecar.page import build_page
from straggler.sidecar.scrape import Request, Source
from straggler.sidecar.sources import Node
from straggler.sources.infiniband.read import InfinibandSource
from straggler.sources.infiniband.reasons import INFINIBAND_BLIND_REASONS

ROOT = Path(__file__).parents[2]
REQUEST = Request(1.0, stepping=False)


def adapters(sysfs: Path) -> ScriptedSource:
    """The ports of a tree."""
    return ScriptedSource("infiniband", InfinibandSource(sysfs).collect().facts)


def ranks(*nodes: str, **changes: Any) -> ScriptedSource:
    """Living ranks that call their node so."""
    facts = [rank_facts(rank, identity=identity(rank, node=node), **changes) for rank, node in enumerate(nodes)]
    return ScriptedSource("rings", facts)


def samples(bench: Bench, name: str) -> list[Sample]:
    """One family of the page."""
    families = build_page(bench.collector.collect(30)).collect()
    return [sample for family in families for sample in family.samples if sample.name == name]


def configured(sysfs: Path, **changes: Any) -> Source:
    """The source as the settings make it."""
    config = Config(
        ring_dir=sysfs,
        dcgm=DcgmConfig(url="none"),
        nvml=NvmlConfig(use="never"),
        infiniband=InfinibandConfig(sys_dir=sysfs, **changes),
    )
    return next(source for source in Node(config, DEFAULT, FakeClock()).sources if source.name == "infiniband")


def test_ports_are_under_the_name_that_ranks_give_their_node(make_bench: MakeBench, tmp_path: Path) -> None:
    """Before the first rank it is the host's; then, and after the last, the ranks'."""
    rings = ranks()
    bench = make_bench(rings, adapters(unpack("efa", tmp_path)))
    names = []
    for facts in ((), ranks("node-a").facts, ()):
        rings.facts = facts
        names.append([sample.labels["rank_node"] for sample in samples(bench, "network_port_up")])

    assert names == [["n1"], ["node-a"], ["node-a"]]


def test_ranks_have_the_ports_of_their_node(make_bench: MakeBench, tmp_path: Path) -> None:
    """Those that call it by another name have none, and that is told."""
    bench = make_bench(ranks("a", "a", "pod-7"), adapters(unpack("efa", tmp_path)))
    snapshot = bench.collector.collect(30)

    assert [len(view.ports) for view in snapshot.views] == [1, 1, 0]
    (blind,) = samples(bench, "straggler_exporter_blind")
    assert blind.labels == {"source": "infiniband", "reason": "node_names_differ"}
    assert blind.value == 1


def test_names_matter_to_nobody_without_ports(make_bench: MakeBench) -> None:
    """A node without adapters joins nothing by its name."""
    bench = make_bench(ranks("a", "pod-7"), ScriptedSource("infiniband", state=SourceState.ABSENT))

    assert samples(bench, "straggler_exporter_blind") == []


def test_the_settings_say_where_and_whom_to_ask(tmp_path: Path) -> None:
    """Another place than /sys, adapters that are left alone, and nobody at all."""
    unpack("ndr_four_adapters", tmp_path)

    def names(source: Source) -> list[str]:
        return [port.key.device for port in source.look(REQUEST).facts]

    assert len(names(configured(tmp_path))) == 4
    assert names(configured(tmp_path, ignore=" mlx5_[0-1], mlx5_3 ,")) == ["mlx5_2"]
    (finding,) = examine_source(configured(tmp_path, enabled=False))
    assert (finding.health, finding.text) == (Health.ABSENT, "switched off")


@pytest.mark.parametrize(
    ("machine", "first", "others"),
    [
        ("roce_bond", Finding("infiniband", Health.OK, "1 of 1 ports are up"), []),
        ("ndr_four_adapters", Finding("infiniband", Health.OK, "3 of 4 ports are up"), ["counter_saturated"]),
    ],
)
def test_doctor_tells_of_the_ports(machine: str, first: Finding, others: list[str], tmp_path: Path) -> None:
    """How many are up, and what stands in the way of knowing more."""
    found = list(examine_source(configured(unpack(machine, tmp_path))))

    assert found[0] == first
    assert [finding.text.partition(":")[0] for finding in found[1:]] == others
    assert {finding.health for finding in found[1:]} <= {Health.BROKEN}


def test_doctor_knows_the_way_out_of_a_container(tmp_path: Path) -> None:
    """Ports without counters: the kernel hides them there, and a mount helps."""
    unpack("ndr_four_adapters", tmp_path)
    for directory in tmp_path.glob("class/infiniband/*/ports/1/*counters*"):
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()
    _, hidden = examine_source(configured(tmp_path))

    assert hidden.text.startswith("counters_hidden (4 times)")
    assert hidden.fix == "infiniband.sys_dir: /host/sys, with the host's /sys mounted there"


def test_doctor_is_content_with_a_node_without_adapters(tmp_path: Path) -> None:
    """Most nodes that have one GPU have none."""
    (finding,) = examine_source(configured(tmp_path))

    assert finding == Finding("infiniband", Health.ABSENT, "not on this node")


@pytest.mark.parametrize("reason", INFINIBAND_BLIND_REASONS)
def test_the_runbook_knows_each_way_of_being_blind(reason: str) -> None:
    """The alert sends on-call there with the reason."""
    page = (ROOT / "docs/runbooks/StragglerExporterBlind.md").read_text("utf-8")

    assert f"| `infiniband` | `{reason}` |" in page
