"""The logs of a node: found by their names, refused if they prove nothing, followed through rotation."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from straggler.errors import SourceFailedError
from straggler.model.reading import SourceState
from straggler.sources.nccl import read as module
from straggler.sources.nccl.files import find
from straggler.sources.nccl.read import LOOKS_BEFORE_SILENT, MAX_LOGS, NcclSource
from straggler.sources.nccl.reasons import NCCL_REASONS

LINE = "n:{}:2 [0] NCCL INFO Using network {}\n"


def write(path: Path, network: str = "IB", pid: int = 1) -> Path:
    """A log that says one thing."""
    path.write_text(LINE.format(pid, network), encoding="utf-8")
    path.chmod(0o644)
    return path


def test_facts_say_where_they_are_from(tmp_path: Path) -> None:
    """The log's owner and time are what a join believes it by."""
    path = write(tmp_path / "nccl.n.1.log")
    (facts,) = NcclSource([str(tmp_path / "*.log")]).collect().facts

    assert (facts.network, facts.path, facts.uid) == ("IB", str(path), os.geteuid())
    assert facts.written == path.stat().st_mtime


def test_a_log_among_the_rings_says_whose_directory_it_is_in(tmp_path: Path) -> None:
    """As a ring does; elsewhere a directory proves nothing."""
    for name in ("rings/team-a/pod-1", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
        write(tmp_path / name / "nccl.log")
    patterns = [str(tmp_path / "rings/*/*/nccl.log"), str(tmp_path / "elsewhere/*.log")]
    facts = NcclSource(patterns, ring_dir=tmp_path / "rings").collect().facts

    assert {each.directory for each in facts} == {"team-a/pod-1", None}


def test_no_file_yet_is_no_failure(tmp_path: Path) -> None:
    """The job that will write it may not have begun."""
    source = NcclSource([str(tmp_path / "*.log")])
    assert (source.collect().state, source.logs) == (SourceState.OK, 0)
    write(tmp_path / "a.log")

    assert len(source.collect().facts) == 1


def test_facts_go_with_their_file(tmp_path: Path) -> None:
    """A log that is removed is forgotten; the others stay."""
    source = NcclSource([str(tmp_path / "*.log")])
    write(tmp_path / "a.log", pid=1)
    write(tmp_path / "b.log", pid=2)
    assert len(source.collect().facts) == 2
    (tmp_path / "a.log").unlink()

    assert [facts.pid for facts in source.collect().facts] == [2]


def test_rotation_by_renaming_loses_nothing(tmp_path: Path) -> None:
    """What was said before stays, and what stood in the old file's end is read."""
    path = tmp_path / "job.out"
    source = NcclSource([str(path)])
    write(path, "IB")
    source.collect()
    with path.open("a", encoding="utf-8") as file:
        file.write("n:1:2 [0] NCCL INFO NET/IB : No device found.\n")
    path.rename(tmp_path / "job.out.1")
    path.write_text("n:1:9 [0] x.cc:1 NCCL WARN Cuda failure 2 'out of memory'\n", encoding="utf-8")
    (facts,) = source.collect().facts

    assert (facts.network, facts.no_rdma_device, facts.warnings) == ("IB", True, {"cuda": 1})


def test_truncation_loses_nothing_that_was_read(tmp_path: Path) -> None:
    """``copytruncate`` empties the file under the writer: what was said before stays."""
    path = write(tmp_path / "job.out")
    source = NcclSource([str(path)])
    source.collect()
    path.write_text("x\n", encoding="utf-8")
    with path.open("a", encoding="utf-8") as file:
        file.write(LINE.format(1, "Socket"))

    assert [facts.network for facts in source.collect().facts] == ["Socket"]


def test_what_is_no_log_is_refused_once(tmp_path: Path) -> None:
    """Links, pipes, second names and what any user may write are counted, not read, and not counted again."""
    good = write(tmp_path / "good.log")
    (tmp_path / "link.log").symlink_to(good)
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "folder.log").mkdir()
    os.link(write(tmp_path / "hard.log"), tmp_path / "hard2.log")
    write(tmp_path / "open.log").chmod(0o666)
    source = NcclSource([str(tmp_path / "*.log")])
    first, second = source.collect(), source.collect()

    assert sorted(problem.reason for problem in first.problems) == sorted(
        ["symlink", "not_regular", "not_regular", "hard_linked", "hard_linked", "writable_by_others"]
    )
    assert [facts.path for facts in first.facts] == [str(good)]
    assert second.problems == ()


def test_nothing_but_refused_logs_is_a_failure(tmp_path: Path) -> None:
    """Logs that are there and cannot be used are not the same as none."""
    write(tmp_path / "a.log").chmod(0o666)
    with pytest.raises(SourceFailedError) as caught:
        NcclSource([str(tmp_path / "*.log")]).collect()

    assert caught.value.reason == "writable_by_others"


def test_logs_of_users_who_are_not_believed_are_refused(tmp_path: Path) -> None:
    """Whoever decides about rings decides about logs."""

    def nobody(status: os.stat_result) -> None:
        raise SourceFailedError("wrong_owner", f"of user {status.st_uid}")

    write(tmp_path / "a.log")
    with pytest.raises(SourceFailedError, match="wrong_owner"):
        NcclSource([str(tmp_path / "*.log")], nobody).collect()


def test_a_wildcard_leads_nowhere_else(tmp_path: Path) -> None:
    """A linked directory below a wildcard is somebody's choice; one that the administrator wrote is his."""
    away = tmp_path / "away"
    away.mkdir()
    write(away / "a.log")
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / "mine").symlink_to(away)

    assert list(find([str(jobs / "*" / "*.log")])) == []
    assert list(find([str(jobs / "mine" / "*.log")])) == [jobs / "mine" / "a.log"]


def test_a_directory_that_cannot_be_read_is_a_failure(tmp_path: Path) -> None:
    """Nothing to be seen is not nothing there: no permission, a broken mount, or links that go round."""
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(SourceFailedError, match="unreadable"):
        NcclSource([str(tmp_path / "loop" / "*.log")]).collect()


def test_a_log_without_nccl_is_told(tmp_path: Path) -> None:
    """After a while, and once: most likely nobody has set NCCL_DEBUG."""
    (tmp_path / "job.out").write_text("step 1 loss 2.3\n", encoding="utf-8")
    source = NcclSource([str(tmp_path / "job.out")])
    told = [problem.reason for _ in range(2 * LOOKS_BEFORE_SILENT) for problem in source.collect().problems]

    assert told == ["no_nccl_lines"]


def test_the_freshest_logs_are_followed(tmp_path: Path) -> None:
    """Of more than are followed, the oldest are left out and counted."""
    for number in range(MAX_LOGS + 3):
        path = write(tmp_path / f"{number}.log", pid=number)
        os.utime(path, (1_000 + number, 1_000 + number))
    source = NcclSource([str(tmp_path / "*.log")])
    reading = source.collect()

    assert min(facts.pid or 0 for facts in reading.facts) == 3
    assert source.logs == MAX_LOGS
    assert [problem.reason for problem in reading.problems] == ["too_many_logs"] * 3


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to several users")
def test_nobody_pushes_out_another_users_log(tmp_path: Path) -> None:
    """A user with more fresh logs than are followed, each full of processes, leaves the other's where it was."""
    mine = write(tmp_path / "mine.log", pid=7)
    os.utime(mine, (1_000, 1_000))
    for number in range(MAX_LOGS + 3):
        flood = tmp_path / f"{number}.log"
        flood.write_text("".join(LINE.format(number * 10 + line, "IB") for line in range(10)), encoding="utf-8")
        os.chown(flood, 12345, -1)
    facts = NcclSource([str(tmp_path / "*.log")]).collect().facts

    assert [each.pid for each in facts if each.path == str(mine)] == [7]
    assert len(facts) == module.MAX_PROCESSES + 1


def test_one_look_is_bounded(tmp_path: Path) -> None:
    """Whatever has been written, a look reads so much; each log comes to its turn."""
    for number in range(6):
        text = LINE.format(number, "IB") * (2 * module.BYTES_PER_LOG // len(LINE))
        (tmp_path / f"{number}.log").write_text(text, encoding="utf-8")
    source = NcclSource([str(tmp_path / "*.log")])
    seen = [{facts.pid for facts in source.collect().facts} for _ in range(2)]

    assert [len(pids) for pids in seen] == [module.BYTES_PER_LOOK // module.BYTES_PER_LOG, 6]


def test_reasons_are_listed() -> None:
    """Each reason stands in the table once."""
    assert len(set(NCCL_REASONS)) == len(NCCL_REASONS)
