"""Looking into a ring after the fact, through the command itself."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ring_files import RingFile, record, trainer
from straggler.cli.main import main
from straggler.wire import layout

JSON_KEYS = {
    "file",
    "state",
    "locked",
    "identity",
    "pid",
    "created_timestamp_seconds",
    "last_sign_timestamp_seconds",
    "arrivals",
    "excluded_phase",
    "records",
    "spoilt_slots",
    "problems",
    "totals",
    "recent",
    "steps",
}
STEP_KEYS = {
    "serial",
    "step",
    "end_timestamp_seconds",
    "step_seconds",
    "own_seconds",
    "wait_seconds",
    "phase_seconds",
    "flags",
    "own_reason",
    "arrivals",
}


@pytest.fixture
def ring(tmp_path: Path) -> RingFile:
    """A ring of rank 3 after 40 steps."""
    made = RingFile(tmp_path / "a.ring", capacity=64, rank=3, pod="trainer-3")
    made.step(40)
    return made


class Ran:
    """What a run of the command left."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        self.code = main(["inspect", *arguments])
        self.out, self.err = capsys.readouterr()

    @property
    def document(self) -> Any:
        """The JSON."""
        return json.loads(self.out)

    @property
    def file(self) -> Any:
        """What the JSON says about the first file."""
        return self.document["files"][0]


def test_table(ring: RingFile, capsys: pytest.CaptureFixture[str]) -> None:
    """A ring is printed with its identity, its state and its last steps, in milliseconds."""
    ran = Ran(capsys, "-n", "2", str(ring.path))

    assert ran.code == 0
    assert ran.err == ""
    assert "run r  rank 3  peer_group 0  node n1" in ran.out
    assert "no goodbye" in ran.out
    assert [line.split() for line in ran.out.splitlines()[-3:]] == [
        ["step", "end", "(UTC)", "ms", "own", "forward", "wait", "remarks"],
        ["39", "2023-11-14", "22:13:21.950", "50.00", "40.00", "40.00", "10.00"],
        ["40", "2023-11-14", "22:13:22.000", "50.00", "40.00", "40.00", "10.00"],
    ]


def test_json_keys_are_stable(ring: RingFile, capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts rely on exactly these keys."""
    ran = Ran(capsys, "--json", "--last", "3", str(ring.path))

    assert ran.document.keys() == {"files", "traces", "collectives", "logs", "refused"}
    assert ran.file.keys() == JSON_KEYS
    assert all(step.keys() == STEP_KEYS for step in ran.file["steps"])
    assert [step["serial"] for step in ran.file["steps"]] == [38, 39, 40]
    assert ran.file["steps"][0]["own_seconds"] == pytest.approx(0.04)


def test_help_names_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    """The help documents all keys of the JSON."""
    ran = Ran(capsys, "--help")

    assert ran.code == 0
    assert [key for key in sorted(JSON_KEYS | STEP_KEYS) if key not in ran.out] == []


def test_unmeasured_own_time_is_absent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Own and wait that were not measured are null and a dash, with the reason; never zero, never the step."""
    ring = RingFile(tmp_path / "a.ring")
    ring.put(record(1, flags=0, own_reason=3, total_own_ns=0, total_wait_ns=0, total_unmeasured_steps=1))
    step = Ran(capsys, "--json", str(ring.path)).file["steps"][0]
    text = Ran(capsys, str(ring.path)).out

    assert (step["own_seconds"], step["wait_seconds"], step["own_reason"]) == (None, None, "hidden_collectives")
    assert text.splitlines()[-1].split()[3:] == ["50.00", "-", "40.00", "10.00", "hidden_collectives"]


def test_flags_are_remarks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A step under a profiler, or ended by an exception, says so."""
    ring = RingFile(tmp_path / "a.ring")
    ring.step(1, flags=layout.FLAG_OWN | layout.FLAG_PROFILED | layout.FLAG_FAILED)

    assert Ran(capsys, str(ring.path)).out.splitlines()[-1].endswith("profiled, failed")


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (layout.STATUS_RUNNING, "no_goodbye"),
        (layout.STATUS_FINISHED, "finished"),
        (layout.STATUS_EXCEPTION, "exception"),
        (layout.STATUS_OFF, "hook_off"),
    ],
)
def test_state_as_far_as_a_file_can_tell(
    ring: RingFile, capsys: pytest.CaptureFixture[str], status: int, state: str
) -> None:
    """Without a lock the state is what the process said last."""
    ring.goodbye(status)

    assert Ran(capsys, "--json", str(ring.path)).file["state"] == state


def test_living_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A ring whose process lives is running."""
    with trainer(tmp_path / "a.ring") as process:
        process.do("step", 5)
        process.do("checkpoint")
        file = Ran(capsys, "--json", str(tmp_path / "a.ring")).file

    assert (file["state"], file["locked"], file["records"], file["excluded_phase"]) == (
        "running",
        True,
        5,
        "checkpoint",
    )


def test_partly_spoilt_copy_gives_what_is_good(
    ring: RingFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Identity, live block and two records are spoilt, the end is cut off: the rest is shown, the losses counted."""
    data = bytearray(ring.path.read_bytes())
    data[layout.LIVE_OFFSET + 3] ^= 1
    data[layout.IDENTITY_OFFSET + 9] ^= 1
    data[ring.offset(10) + 50] ^= 1
    data[ring.offset(20) + 50] ^= 1
    copy = tmp_path / "copy"
    copy.write_bytes(data[: ring.offset(39)])
    ran = Ran(capsys, "--json", "-n", "100", str(copy))

    assert ran.code == 0
    assert [step["serial"] for step in ran.file["steps"]] == [*range(1, 10), *range(11, 20), *range(21, 39)]
    assert ran.file["spoilt_slots"] == 2
    assert (ran.file["state"], ran.file["identity"], ran.file["arrivals"]) == ("unknown", None, None)
    assert {(problem["reason"], problem["count"]) for problem in ran.file["problems"]} == {
        ("bad_checksum", 1),
        ("torn", 2),
        ("truncated", 26),
    }
    assert Ran(capsys, str(copy)).code == 0


def test_record_in_a_foreign_slot_is_spoilt(ring: RingFile, capsys: pytest.CaptureFixture[str]) -> None:
    """A valid record in a slot where it does not belong is counted, not shown."""
    data = ring.path.read_bytes()
    ring.write(ring.offset(41), data[ring.offset(7) : ring.offset(8)])
    file = Ran(capsys, "--json", str(ring.path)).file

    assert (file["records"], file["spoilt_slots"]) == (40, 1)


def test_lapped_ring_is_in_order(ring: RingFile, capsys: pytest.CaptureFixture[str]) -> None:
    """After several laps the last steps come in order."""
    ring.step(100)

    steps = Ran(capsys, "--json", "-n", "64", str(ring.path)).file["steps"]
    assert [step["serial"] for step in steps] == list(range(77, 141))


def test_ring_without_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A process that died before its first step left its identity."""
    RingFile(tmp_path / "a.ring")
    ran = Ran(capsys, str(tmp_path / "a.ring"))

    assert ran.code == 0
    assert ran.out.endswith("no steps\n")


def test_refused_file_is_said_and_the_others_are_shown(
    ring: RingFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 and a reason on standard error for what cannot be read; the rest is printed."""
    (tmp_path / "text").write_text("hello" * 100)
    os.mkfifo(tmp_path / "pipe")
    names = [str(path) for path in (tmp_path / "text", ring.path, tmp_path / "missing", tmp_path / "pipe")]
    ran = Ran(capsys, "--json", *names)

    assert ran.code == 1
    assert [refused["reason"] for refused in ran.document["refused"]] == ["bad_magic", "unreadable", "not_regular"]
    assert [line.split(": ")[1:3] for line in ran.err.splitlines()] == [
        [names[0], "bad_magic"],
        [names[2], "unreadable"],
        [names[3], "not_regular"],
    ]
    assert ran.file["records"] == 40
    assert Ran(capsys, names[0]).out == ""


def test_directory_gives_all_its_rings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A directory stands for its rings, the last to give a sign of life at the end; without any it is refused."""
    for written, name in ((300, "a"), (100, "b"), (200, "c")):
        RingFile(tmp_path / f"{name}.ring", run=name).step()
        os.utime(tmp_path / f"{name}.ring", (written, written))
    (tmp_path / "empty").mkdir()

    ran = Ran(capsys, "--json", str(tmp_path))
    empty = Ran(capsys, "--json", str(tmp_path / "empty"))

    assert [file["identity"]["run"] for file in ran.document["files"]] == ["b", "c", "a"]
    assert [refused["reason"] for refused in empty.document["refused"]] == ["not_regular"]
    assert "a directory without rings" in empty.err


def test_directory_of_all_pods_gives_the_rings_of_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Under Kubernetes rings lie two directories below the one that the sidecar reads."""
    pod = tmp_path / "team-a" / "6f1d"
    pod.mkdir(parents=True)
    RingFile(pod / "a.ring", run="deep").step()
    (pod / "deeper").mkdir()
    RingFile(pod / "deeper" / "b.ring", run="too deep").step()

    ran = Ran(capsys, "--json", str(tmp_path))

    assert [file["identity"]["run"] for file in ran.document["files"]] == ["deep"]


def test_hostile_names_reach_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Escape sequences in names of files, runs and nodes are printed as replacement characters."""
    path = tmp_path / "a\x1b[2J.ring"
    RingFile(path, run="r\x1b]0;owned\x07", node="n\N{RIGHT-TO-LEFT OVERRIDE}").step()
    ran = Ran(capsys, str(path))

    assert ran.code == 0
    assert all(character.isprintable() or character == "\n" for character in ran.out)


def test_number_of_steps_must_be_positive(ring: RingFile, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong use is exit code 2, with what to write instead."""
    ran = Ran(capsys, "-n", "0", str(ring.path))

    assert (ran.code, ran.out) == (2, "")
    assert "write 1 or more" in ran.err


def test_time_out_of_the_calendar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The latest time that the wire allows can be printed."""
    RingFile(tmp_path / "a.ring").step(1, end_realtime_ns=1 << 62)

    assert Ran(capsys, str(tmp_path / "a.ring")).code == 0
