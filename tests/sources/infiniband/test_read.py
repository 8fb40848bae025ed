"""Whole trees of adapters, and what only several looks can tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Expected
from port_trees import LISTINGS, device, node, ports_of, reasons, unpack, write
from straggler.errors import SourceFailedError
from straggler.metrics.book import MetricBook
from straggler.metrics.exposition import render
from straggler.metrics.families import add_network
from straggler.model.reading import Reading, SourceState
from straggler.simulate.infiniband_tree import SimulatedPort, write_infiniband
from straggler.sources.infiniband.read import InfinibandSource

MACHINES = sorted(path.stem for path in LISTINGS.glob("*.txt"))


@pytest.mark.parametrize("machine", MACHINES)
def test_exposition(machine: str, tmp_path: Path, expected: Expected) -> None:
    """The whole tree of one machine gives exactly this page."""
    reading = InfinibandSource(unpack(machine, tmp_path)).collect()
    book = MetricBook()
    add_network(book, reading.facts, "n1")
    page, _ = render(book.collect())

    assert reading.problems == ()
    assert not book.refused
    expected.check(f"infiniband/{machine}.prom", page.decode())


def test_a_node_without_adapters_has_no_such_source(tmp_path: Path) -> None:
    """Neither a missing directory nor an empty one is a fault."""
    source = InfinibandSource(tmp_path)
    assert source.collect().state is SourceState.ABSENT

    (tmp_path / "class/infiniband").mkdir(parents=True)
    assert source.collect() == Reading(source="infiniband", state=SourceState.ABSENT)


def test_ignored_adapters_are_left_alone(tmp_path: Path) -> None:
    """Patterns are the shell's."""
    node(tmp_path)
    reading = InfinibandSource(tmp_path, ignore=["mlx5_[01]", "hfi*"]).collect()

    assert [port.key.device for port in reading.facts] == ["mlx5_2", "mlx5_3"]


def test_ports_that_were_here_are_missed(tmp_path: Path) -> None:
    """One that is gone is told while others are left; with the last one the source has failed, and recovers."""
    node(tmp_path, 2)
    source = InfinibandSource(tmp_path)
    assert source.collect().blind == ()

    place = tmp_path / "class/infiniband"
    (place / "mlx5_0").rename(tmp_path / "mlx5_0")
    one_left = source.collect()
    (place / "mlx5_1").rename(tmp_path / "mlx5_1")
    with pytest.raises(SourceFailedError, match="gone"):
        source.collect()
    for name in ("mlx5_0", "mlx5_1"):
        (tmp_path / name).rename(place / name)

    assert one_left.state is SourceState.OK
    assert reasons(one_left.blind) == {"port_gone": 1}
    assert "mlx5_0 port 1" in one_left.blind[0].detail
    assert source.collect().blind == ()


def test_virtual_functions_may_come_and_go(tmp_path: Path) -> None:
    """They move into containers and back with each job: nobody misses them."""
    node(tmp_path, 2)
    write(tmp_path / "class/infiniband/mlx5_1/device/physfn/vendor", "0x15b3\n")
    source = InfinibandSource(tmp_path)
    source.collect()
    (tmp_path / "class/infiniband/mlx5_1").rename(tmp_path / "in_a_container")

    assert source.collect().blind == ()


def test_counters_at_their_maximum_are_told(tmp_path: Path) -> None:
    """255 losses of the link may be 255 or a million: from there on silence is not health."""
    reading = InfinibandSource(unpack("ndr_four_adapters", tmp_path)).collect()

    assert device(reading, "mlx5_1").saturated == ("link_downs_total", "link_integrity_errors_total")
    assert device(reading, "mlx5_1").counters["link_downs_total"] == 255
    assert reasons(reading.blind) == {"counter_saturated": 1}
    assert "`perfquery -C mlx5_1 -P 1 -R`" in reading.blind[0].detail


def test_a_counter_of_a_port_that_nobody_uses_blinds_nobody(tmp_path: Path) -> None:
    """A port without a cable may have counted to the end years ago."""
    node(tmp_path, 1)
    write_infiniband(tmp_path, [SimulatedPort(device="mlx5_1", up=False, counters={"counters/link_downed": 255})])

    assert InfinibandSource(tmp_path).collect().blind == ()


def test_ports_without_counters_are_told(tmp_path: Path) -> None:
    """In a container with a network of its own the kernel shows states and hides counters: not zero, not health."""
    for index in range(2):
        port = f"class/infiniband/mlx5_{index}/ports/1"
        for name, text in (("state", "4: ACTIVE"), ("rate", "400 Gb/sec (4X NDR)"), ("link_layer", "InfiniBand")):
            write(tmp_path / port / name, f"{text}\n")
    reading = InfinibandSource(tmp_path).collect()

    assert [port.counters for port in reading.facts] == [{}, {}]
    assert reasons(reading.blind) == {"counters_hidden": 2}


def test_who_counts_nothing_hides_nothing(tmp_path: Path) -> None:
    """Where the driver says that there is nothing to count, nothing could be done about it."""
    assert InfinibandSource(unpack("nobody_counts", tmp_path)).collect().blind == ()


def test_attributes_of_infiniband_are_absent_on_ethernet(tmp_path: Path) -> None:
    """They stand at zero there and count nothing; a zero would say that the link has no errors."""
    counters = ports_of(unpack("roce_bond", tmp_path))["mlx5_bond_0 1"].counters

    assert not {"symbol_errors_total", "link_downs_total", "transmit_waits_total"} & set(counters)
    assert counters["ecn_marked_total"] == 84


def roce_adapter(sysfs: Path, *interfaces: str) -> Path:
    """A RoCE adapter where the kernel has it, beside its network interfaces."""
    unpack("roce_bond", sysfs)
    bus = sysfs / "devices/pci0000:16/0000:17:00.0"
    (bus / "infiniband").mkdir(parents=True)
    (sysfs / "class/infiniband/mlx5_bond_0").rename(bus / "infiniband/mlx5_bond_0")
    (sysfs / "class/infiniband/mlx5_bond_0").symlink_to("../../devices/pci0000:16/0000:17:00.0/infiniband/mlx5_bond_0")
    for index, name in enumerate(interfaces):
        write(bus / "net" / name / "carrier_down_count", f"{index + 6}\n")
    return sysfs


def test_on_ethernet_the_interface_counts_lost_links(tmp_path: Path) -> None:
    """Where there is exactly one: of many nobody knows which one is the port's."""
    one = ports_of(roce_adapter(tmp_path / "one", "ens1np0"))["mlx5_bond_0 1"]
    none = ports_of(roce_adapter(tmp_path / "none"))["mlx5_bond_0 1"]
    many = ports_of(roce_adapter(tmp_path / "many", "ens1np0", "ens1npf0vf0"))["mlx5_bond_0 1"]

    assert one.counters["link_downs_total"] == 6
    assert "link_downs_total" not in none.counters
    assert "link_downs_total" not in many.counters


def test_counters_of_the_adapter_are_those_of_its_only_port(tmp_path: Path) -> None:
    """With two ports nobody knows whose they are."""
    assert ports_of(unpack("omnipath", tmp_path / "one"))["hfi1_0 1"].counters["link_downs_total"] == 3
    two = ports_of(unpack("mlx4_before_4.5", tmp_path / "two"))
    assert not any("out_of_sequence_total" in port.counters for port in two.values())


def test_a_port_is_lost_once_it_was_up(tmp_path: Path) -> None:
    """One that was never up is not; one that comes back is not any more. The best speed so far is kept."""
    source = InfinibandSource(node(tmp_path, 2))
    write_infiniband(tmp_path, [SimulatedPort(device="mlx5_1", up=False)])
    seen = [[port.lost for port in source.collect().facts]]
    write_infiniband(tmp_path, [SimulatedPort(device="mlx5_0", up=False)])
    seen.append([port.lost for port in source.collect().facts])
    write_infiniband(tmp_path, [SimulatedPort(device="mlx5_0", gigabits_per_second=100)])
    back = device(source.collect())

    assert seen == [[False, False], [True, False]]
    assert back.lost is False
    assert (back.rate_bytes_per_second, back.best_rate_bytes_per_second) == (12.5e9, 50e9)


def test_a_port_that_is_down_has_no_speed(tmp_path: Path) -> None:
    """What the driver says then is the slowest that it knows."""
    port = ports_of(unpack("ndr_four_adapters", tmp_path))["mlx5_3 1"]

    assert (port.up, port.rate_bytes_per_second, port.rate_text) == (False, None, "")
    assert port.physical_state == "Polling"
