"""Files that are missing, broken, odd or somebody's trick: each costs its own value, and is counted."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from port_trees import device, node, reasons, unpack, write
from straggler.errors import SourceFailedError
from straggler.metrics.book import MetricBook
from straggler.metrics.exposition import render
from straggler.metrics.families import add_network
from straggler.sources.infiniband.files import is_absence, opened, read_text
from straggler.sources.infiniband.read import MOST_PORTS, InfinibandSource

COUNTERS = "class/infiniband/mlx5_0/ports/1/counters"


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


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from(
            ["state", "rate", "link_layer", "phys_state", "counters/symbol_error", "hw_counters/out_of_buffer"]
        ),
        st.one_of(st.binary(max_size=40), st.integers().map(lambda number: str(number).encode())),
    )
)
def test_any_bytes_give_facts_or_a_reason(contents: dict[str, bytes]) -> None:
    """Whatever a driver writes: the page can be read, and what is not on it is counted under a listed reason."""
    with TemporaryDirectory() as directory:
        sysfs = node(Path(directory), 2)
        for name, content in contents.items():
            (sysfs / "class/infiniband/mlx5_0/ports/1" / name).write_bytes(content)
        reading = InfinibandSource(sysfs).collect()
    book = MetricBook()
    add_network(book, reading.facts, "n1")
    page, _ = render(book.collect())

    assert set(reasons(reading.problems)) <= {"bad_format"}
    assert device(reading, "mlx5_1").counters["symbol_errors_total"] == 0
    assert len(list(text_string_to_metric_families(page.decode()))) > 0
    assert not book.refused


def test_no_tree_makes_a_page_without_end(tmp_path: Path) -> None:
    """Ports beyond what any server has are left out, and that is said."""
    for port in range(1, MOST_PORTS + 3):
        write(tmp_path / f"class/infiniband/mlx5_0/ports/{port}/state", "4: ACTIVE\n")
    reading = InfinibandSource(tmp_path).collect()

    assert len(reading.facts) == MOST_PORTS
    assert reasons(reading.problems) == {"too_many_ports": 1}
