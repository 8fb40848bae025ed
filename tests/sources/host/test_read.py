"""The operating system's view: of captured trees, made-up ones, and this very machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from conftest import Expected
from facts import rank_facts
from ring_files import trainer
from straggler.join.view import RankView
from straggler.metrics.book import MetricBook
from straggler.metrics.exposition import render
from straggler.metrics.families import add_node, add_ranks
from straggler.model.host import NodeHost, RankHost, Writer
from straggler.model.rank import RankKey
from straggler.model.reading import SourceState
from straggler.sources.host.read import HostSource
from straggler.sources.rings.lock import ask_lock

CAPTURED = Path(__file__).parents[2] / "captured" / "host"
STAT = (
    "4242 ({}) S 4480 4480 7571 0 -1 4194304 3090 6537 7 0 55 1 3 1 20 0 1 0 581501 17764352 3547 18446744073709551615 "
    "1 1 1 0 0 0 0 16781318 0 1 0 0 17 0 0 0 250 0 0 1 1 1 1 1 1 1 0"
)
KEY = RankKey("r", 0)
WRITER = Writer(4242, 4242)

GROUPS = {
    "": {"cgroup.controllers": "cpu io memory\n"},
    "pods": {"cpu.stat": "usage_usec 9\nnr_periods 50\nnr_throttled 5\nthrottled_usec 700000\n"},
    "pods/a": {
        "cpu.stat": "usage_usec 9\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
        "cpu.pressure": "some avg10=0 avg60=0 avg300=0 total=2000000\nfull avg10=0 avg60=0 avg300=0 total=1000000\n",
        "memory.events": "low 0\nhigh 12\nmax 3\noom 0\noom_kill 0\noom_group_kill 0\n",
    },
}


def _second_version(root: Path, process: Mapping[str, str] | None = None) -> HostSource:
    """A node with the second version of the control groups alone, and one process."""
    files = {"stat": STAT.format("python3"), "status": "NSpid:\t4242\n", "cgroup": "0::/pods/a\n", **(process or {})}
    for name, text in files.items():
        _write(root / "proc" / "4242" / name, text)
    _write(root / "proc" / "stat", "cpu  1 2 3\n")
    _write(root / "proc" / "sys/kernel/task_delayacct", "1\n")
    for group, contents in GROUPS.items():
        for name, text in contents.items():
            _write(root / "sys/fs/cgroup" / group / name, text)
    return HostSource(root, ticks_per_second=100)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _rank(source: HostSource, writer: Writer = WRITER) -> RankHost | None:
    return next((facts for facts in source.collect({KEY: writer}).facts if isinstance(facts, RankHost)), None)


@pytest.mark.parametrize("machine", sorted(path.name for path in CAPTURED.iterdir() if path.is_dir()))
def test_exposition(machine: str, expected: Expected) -> None:
    """The files of one machine give exactly this page."""
    reading = HostSource(CAPTURED / machine, ticks_per_second=100).collect({KEY: WRITER})
    book = MetricBook()
    for facts in reading.facts:
        if isinstance(facts, NodeHost):
            add_node(book, facts)
        else:
            view = RankView(rank=rank_facts(0), gpu=None, evidence="", unmatched_reason="no_gpu_named", host=facts)
            add_ranks(book, [view])
    page, _ = render(book.collect())
    lines = [line for line in page.decode().splitlines(keepends=True) if "host_" in line]

    assert reading.problems == ()
    expected.check(f"host/{machine}.prom", "".join(lines))


def test_limit_above_the_process_counts(tmp_path: Path) -> None:
    """A container without a limit in a pod with one is stopped by the pod's."""
    rank = _rank(_second_version(tmp_path))

    assert rank is not None
    throttled = {name: value for name, value in rank.values.items() if "throttled" in name or "periods" in name}
    assert throttled == pytest.approx(
        {"cpu_periods_total": 50, "cpu_throttled_periods_total": 5, "cpu_throttled_seconds_total": 0.7}
    )


def test_pressure_and_events_are_the_groups_own(tmp_path: Path) -> None:
    """Pressure and memory events are read where the process is; a file that is not there gives nothing."""
    rank = _rank(_second_version(tmp_path))

    assert rank is not None
    assert rank.pressure == {("cpu", "some"): 2.0, ("cpu", "full"): 1.0}
    assert rank.memory_events == {"high": 12, "max": 3, "oom": 0, "oom_kill": 0}


def test_root_groups_pressure_is_the_nodes(tmp_path: Path) -> None:
    """A process in the root group has no pressure of its own; one in a container's, which it calls "/", has."""
    source = _second_version(tmp_path, {"cgroup": "0::/\n"})
    group = tmp_path / "sys/fs/cgroup"
    _write(group / "cpu.pressure", GROUPS["pods/a"]["cpu.pressure"])
    in_root = _rank(source)
    _write(group / "cgroup.type", "domain\n")
    in_container = _rank(source)

    assert in_root is not None
    assert in_root.pressure == {}
    assert in_container is not None
    assert in_container.pressure == {("cpu", "some"): 2.0, ("cpu", "full"): 1.0}


def test_disk_wait_is_absent_where_it_is_not_counted(tmp_path: Path) -> None:
    """A kernel that does not count writes 0, which is not shown; one that does, or has no switch, is believed."""
    source = _second_version(tmp_path)
    switch = tmp_path / "proc/sys/kernel/task_delayacct"
    counted = _rank(source)
    switch.write_text("0\n")
    not_counted = _rank(source)
    switch.unlink()
    old = _rank(source)

    assert counted is not None
    assert counted.values["io_wait_seconds_total"] == 2.5
    assert not_counted is not None
    assert "io_wait_seconds_total" not in not_counted.values
    assert old is not None
    assert old.values["io_wait_seconds_total"] == 2.5


def test_process_of_another_namespace_by_its_inner_pid(tmp_path: Path) -> None:
    """A trainer that knows itself as 17 is found under its pid out here."""
    source = _second_version(tmp_path, {"status": "NSpid:\t4242\t17\n"})

    assert _rank(source, Writer(4242, 17)) is not None


def test_another_process_under_the_pid(tmp_path: Path) -> None:
    """A process that does not call itself what the ring says is not the rank's, and that is counted."""
    source = _second_version(tmp_path, {"status": "NSpid:\t4242\t99\n"})
    reading = source.collect({KEY: Writer(4242, 17)})

    assert [type(facts) for facts in reading.facts] == [NodeHost]
    assert [problem.reason for problem in reading.problems] == ["pid_of_another"]


def test_pid_that_was_used_again(tmp_path: Path) -> None:
    """A process that started later than the one of the first look is another one."""
    source = _second_version(tmp_path)
    assert _rank(source) is not None
    (tmp_path / "proc/4242/stat").write_text(STAT.format("python3").replace(" 581501 ", " 999999 "))

    assert [problem.reason for problem in source.collect({KEY: WRITER}).problems] == ["pid_of_another"]


def test_process_that_has_ended_is_no_problem(tmp_path: Path) -> None:
    """Between the look at its ring and this one a process may end."""
    source = _second_version(tmp_path)
    reading = source.collect({KEY: Writer(1, 1)})

    assert [type(facts) for facts in reading.facts] == [NodeHost]
    assert reading.problems == ()


def test_bad_file_costs_that_file(tmp_path: Path) -> None:
    """What cannot be read is counted, and the rest is there."""
    source = _second_version(tmp_path, {"schedstat": "nonsense"})
    (tmp_path / "sys/fs/cgroup/pods/a/memory.events").write_text("high many\n")
    reading = source.collect({KEY: WRITER})
    (rank,) = (facts for facts in reading.facts if isinstance(facts, RankHost))

    assert [problem.reason for problem in reading.problems] == ["bad_format", "bad_format"]
    assert rank.values["cpu_user_seconds_total"] == 0.55
    assert "run_delay_seconds_total" not in rank.values


def test_kernels_gpus(tmp_path: Path) -> None:
    """The driver's directory names the GPUs by bus id; nothing is opened for that."""
    source = _second_version(tmp_path)
    for name in ("0000:1b:00.0", "0000:43:00.0"):
        _write(tmp_path / "proc/driver/nvidia/gpus" / name / "information", "Model: \t NVIDIA H100 80GB HBM3\n")
    (node,) = (facts for facts in source.collect({}).facts if isinstance(facts, NodeHost))

    assert node.gpu_bus_ids == {"00000000:1B:00.0", "00000000:43:00.0"}


def test_where_there_is_no_proc(tmp_path: Path) -> None:
    """A system without /proc has no such source."""
    assert HostSource(tmp_path, ticks_per_second=100).collect({}).state is SourceState.ABSENT


@pytest.mark.skipif(sys.platform != "linux", reason="the real /proc is Linux's")
def test_lock_leads_to_the_real_process(tmp_path: Path) -> None:
    """The holder of a ring's lock is found by the lock alone, and this machine's own files are about it."""
    path = tmp_path / "a.ring"
    with trainer(path) as process:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            lock = ask_lock(descriptor)
        finally:
            os.close(descriptor)
        assert lock.pid == process.pid
        rank = _rank(HostSource(Path("/")), Writer(process.pid, process.pid))

    assert rank is not None
    assert rank.values["cpu_user_seconds_total"] + rank.values["cpu_system_seconds_total"] >= 0
    assert rank.values["run_delay_seconds_total"] >= 0


@pytest.mark.skipif(sys.platform != "linux", reason="the real /proc is Linux's")
def test_work_is_seen_in_the_real_process() -> None:
    """CPU time of a real process grows as it works."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        source, writer = HostSource(Path("/")), Writer(busy.pid, busy.pid)
        grown = 0.0
        while grown < 0.05:
            rank = _rank(source, writer)
            assert rank is not None
            grown = rank.values["cpu_user_seconds_total"]
    finally:
        busy.kill()
        busy.wait()


def test_ranks_of_one_container_share_its_groups(tmp_path: Path) -> None:
    """Two ranks in a group are told what it says, and a broken file of it is one problem; a third has its own group."""
    source = _second_version(tmp_path)
    for pid, group in ((4243, "pods/a"), (4244, "pods")):
        for name, text in (("stat", STAT.format("python3")), ("cgroup", f"0::/{group}\n")):
            _write(tmp_path / "proc" / str(pid) / name, text)
    _write(tmp_path / "sys/fs/cgroup/pods/a/io.pressure", "no pressure\n")
    reading = source.collect({RankKey("r", rank): Writer(4242 + rank, 4242 + rank) for rank in range(3)})
    first, second, third = (facts for facts in reading.facts if isinstance(facts, RankHost))

    assert first.pressure == second.pressure == {("cpu", "some"): 2.0, ("cpu", "full"): 1.0}
    assert first.memory_events == second.memory_events == {"high": 12, "max": 3, "oom": 0, "oom_kill": 0}
    assert (third.pressure, third.memory_events) == ({}, {})
    assert first.values["cpu_throttled_periods_total"] == third.values["cpu_throttled_periods_total"] == 5
    assert [problem.reason for problem in reading.problems] == ["bad_format"]
