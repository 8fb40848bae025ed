"""Whole trees of adapters, and what becomes of single files."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from conftest import Expected
from port_trees import LISTINGS, ports_of, unpack, write
from straggler.errors import SourceFailedError
from straggler.metrics.book import MetricBook
from straggler.metrics.exposition import render
from straggler.metrics.families import add_network
from straggler.model.network import PortFacts
from straggler.model.reading import Problem, Reading, SourceState
from straggler.simulate.infiniband_tree import SimulatedPort, write_infiniband
from straggler.sources.infiniband.files import is_absence, opened, read_text
from straggler.sources.infiniband.read import MOST_PORTS, InfinibandSource
from straggler.sources.infiniband.reasons import INFINIBAND_BLIND_REASONS, INFINIBAND_REASONS

MACHINES = sorted(path.stem for path in LISTINGS.glob("*.txt"))
COUNTERS = "class/infiniband/mlx5_0/ports/1/counters"


def node(sysfs: Path, count: int = 4, **changes: object) -> Path:
    """A node with so many healthy adapters."""
    write_infiniband(sysfs, [SimulatedPort(device=f"mlx5_{index}", **changes) for index in range(count)])  # type: ignore[arg-type]  # the port's own fields
    return sysfs


def reasons(problems: tuple[Problem, ...]) -> dict[str, int]:
    """How many of each."""
    found = Counter[str]()
    for problem in problems:
        assert problem.reason in INFINIBAND_REASONS + INFINIBAND_BLIND_REASONS
        assert problem.detail
        found[problem.reason] += problem.count
    return dict(found)


def device(reading: Reading[PortFacts], name: str = "mlx5_0") -> PortFacts:
    """One adapter's only port."""
    return next(port for port in reading.facts if port.key.device == name)


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


def test_a_missing_file_costs_its_value_alone(tmp_path: Path) -> None:
    """What a driver does not have is absent, not zero, and no trouble."""
    (node(tmp_path) / COUNTERS / "symbol_error").unlink()
    reading = InfinibandSource(tmp_path).collect()

    assert "symbol_errors_total" not in device(reading).counters
    assert device(reading).counters["link_downs_total"] == 0
    assert "symbol_errors_total" in device(reading, "mlx5_1").counters
    assert reading.problems == ()


@pytest.mark.parametrize("text", ["", "-1\n", "garbage\n", "1.5\n", "\xff\xfe", "7\n" * 9000])
def test_a_value_that_is_no_count_is_refused(text: str, tmp_path: Path) -> None:
    """It is counted with its reason, told with its file, and costs that value alone."""
    write(node(tmp_path) / COUNTERS / "symbol_error", text)
    reading = InfinibandSource(tmp_path).collect()

    assert "symbol_errors_total" not in device(reading).counters
    assert device(reading).counters["link_downs_total"] == 0
    assert reasons(reading.problems) == {"bad_format": 1}
    assert "mlx5_0 port 1, counters/symbol_error" in reading.problems[0].detail


def test_a_refused_file_has_no_stand_in(tmp_path: Path) -> None:
    """The file of 32 bits beside it stands at its maximum: it would be another count, and look like a reset."""
    write(unpack("mlx4_before_4.5", tmp_path) / "class/infiniband/mlx4_0/ports/1/counters_ext/port_xmit_data_64", "?\n")
    reading = InfinibandSource(tmp_path).collect()

    assert "transmit_bytes_total" not in reading.facts[0].counters
    assert "receive_bytes_total" in reading.facts[0].counters
    assert reasons(reading.problems) == {"bad_format": 1}


def test_a_state_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    """It is neither up nor down."""
    write(node(tmp_path) / "class/infiniband/mlx5_0/ports/1/state", "blue\n")
    reading = InfinibandSource(tmp_path).collect()

    assert device(reading).up is None
    assert device(reading).lost is None
    assert reasons(reading.problems) == {"bad_format": 1}


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP, errno.ENODATA, errno.ENOENT, errno.ENODEV])
def test_errors_that_mean_that_there_is_nothing(number: int) -> None:
    """Firmware refuses single attributes, drivers lack some, and adapters go away: each is absence."""
    assert is_absence(OSError(number, "as the kernel says it"))


def test_an_attribute_that_a_driver_refuses_is_absence() -> None:
    """A real one: the kernel answers ``EINVAL`` to whoever asks the loopback interface for its speed."""
    loopback = Path("/sys/devices/virtual/net/lo")
    if not (loopback / "speed").exists():
        pytest.skip("no sysfs here")
    with opened(str(loopback)) as directory, pytest.raises(OSError, match="Invalid argument") as refused:
        read_text("speed", directory)

    assert is_absence(refused.value)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EIO, errno.ETIMEDOUT, errno.EMFILE])
def test_errors_that_mean_that_something_is_wrong(number: int) -> None:
    """Not allowed, and failing, are no absence."""
    assert not is_absence(OSError(number, "as the kernel says it"))


@contextmanager
def unprivileged() -> Iterator[None]:
    """Root may read everything: be somebody else for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_that_may_not_be_read_is_told() -> None:
    """No permission is counted, and costs that value alone; a directory of counters is one such thing, not twenty."""
    with TemporaryDirectory() as directory:
        sysfs = node(Path(directory))
        sysfs.chmod(0o755)
        (sysfs / COUNTERS / "symbol_error").chmod(0)
        (sysfs / "class/infiniband/mlx5_1/ports/1/counters").chmod(0)
        with unprivileged():
            reading = InfinibandSource(sysfs).collect()

    assert "symbol_errors_total" not in device(reading).counters
    assert device(reading).counters["link_downs_total"] == 0
    assert device(reading, "mlx5_1").up
    assert reasons(reading.problems) == {"unreadable": 2}


def test_a_class_that_may_not_be_listed_is_a_failed_source() -> None:
    """Nobody knows whether there are adapters: that is not the same as none."""
    with TemporaryDirectory() as directory:
        sysfs = node(Path(directory))
        sysfs.chmod(0o755)
        (sysfs / "class/infiniband").chmod(0)
        with unprivileged(), pytest.raises(SourceFailedError, match="unreadable"):
            InfinibandSource(sysfs).collect()


def test_links_of_the_class_are_followed_within_sysfs(tmp_path: Path) -> None:
    """That is where the kernel has the adapters; a link that leads elsewhere is refused."""
    sysfs, elsewhere = tmp_path / "sys", tmp_path / "elsewhere"
    node(sysfs, 2)
    node(elsewhere, 1)
    (sysfs / "devices").mkdir()
    (sysfs / "class/infiniband/mlx5_0").rename(sysfs / "devices/mlx5_0")
    (sysfs / "class/infiniband/mlx5_0").symlink_to("../../devices/mlx5_0")
    (sysfs / "class/infiniband/mlx5_7").symlink_to(elsewhere / "class/infiniband/mlx5_0")
    reading = InfinibandSource(sysfs).collect()

    assert [port.key.device for port in reading.facts] == ["mlx5_0", "mlx5_1"]
    assert reasons(reading.problems) == {"outside": 1}


def test_odd_files_are_not_opened(tmp_path: Path) -> None:
    """A link, a directory and a pipe in place of a counter cost that value, block nobody and lead nowhere."""
    counters = node(tmp_path) / COUNTERS
    secret = tmp_path / "secret"
    secret.write_text("7\n")
    for name in ("symbol_error", "link_downed", "port_rcv_errors"):
        (counters / name).unlink()
    (counters / "symbol_error").symlink_to(secret)
    (counters / "link_downed").mkdir()
    os.mkfifo(counters / "port_rcv_errors")
    reading = InfinibandSource(tmp_path).collect()

    assert not {"symbol_errors_total", "link_downs_total", "receive_errors_total"} & set(device(reading).counters)
    assert reasons(reading.problems) == {"odd_file": 3}


def test_a_directory_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """Counters of another port would be this one's."""
    ports = node(tmp_path) / "class/infiniband/mlx5_0/ports/1"
    (ports / "counters").rename(tmp_path / "moved")
    (ports / "counters").symlink_to(tmp_path / "moved")
    reading = InfinibandSource(tmp_path).collect()

    assert "symbol_errors_total" not in device(reading).counters
    assert "out_of_sequence_total" in device(reading).counters


def test_an_adapter_that_goes_away_meanwhile_is_not_there(tmp_path: Path) -> None:
    """The kernel takes its files away one after the other: nothing of that is trouble, nor is it a port."""
    node(tmp_path)
    (tmp_path / "class/infiniband/mlx5_8").symlink_to("../../devices/gone")
    (tmp_path / "class/infiniband/mlx5_9/ports/1").mkdir(parents=True)
    reading = InfinibandSource(tmp_path).collect()

    assert len(reading.facts) == 4
    assert reading.problems == ()
    assert reading.blind == ()


def test_names_from_outside_are_cleaned(tmp_path: Path) -> None:
    """A name that is none is refused, and a text with odd bytes is printable and bounded."""
    node(tmp_path, 1, board="bad\x07board" + "x" * 500)
    (tmp_path / "class/infiniband" / "mlx5 0;rm").mkdir()
    reading = InfinibandSource(tmp_path).collect()

    assert reasons(reading.problems) == {"bad_name": 1}
    assert device(reading).board.isprintable()
    assert len(device(reading).board) <= 128


def test_no_tree_makes_a_page_without_end(tmp_path: Path) -> None:
    """Ports beyond what any server has are left out, and that is said."""
    for port in range(1, MOST_PORTS + 3):
        write(tmp_path / f"class/infiniband/mlx5_0/ports/{port}/state", "4: ACTIVE\n")
    reading = InfinibandSource(tmp_path).collect()

    assert len(reading.facts) == MOST_PORTS
    assert reasons(reading.problems) == {"too_many_ports": 1}


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
