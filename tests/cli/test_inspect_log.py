"""``straggler inspect`` on logs: the sentence, the ranks, the laggard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from straggler.cli.main import main

SOCKETS = """\
[rank0]:n1:41:52 [0] NCCL INFO Bootstrap : Using eth0:192.0.2.1<0>
[rank0]:n1:41:52 [0] NCCL INFO NET/IB : No device found.
[rank0]:n1:41:52 [0] NCCL INFO Using network Socket
[rank0]:n1:41:52 [0] NCCL INFO ncclCommInitRank comm 0xa rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 - Init START
[rank0]:n1:41:52 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0
[rank0]:n1:41:52 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via N
NCCL version 2.21.5+cuda12.4
[rank0]:n1:41:60 [0] misc/socket.cc:58 NCCL WARN Net : Connection closed by remote peer n2<41000>
"""
TIMEOUT = (
    "[rank{0}]:[E321 x ProcessGroupNCCL.cpp:607] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=78, OpType=BROADCAST, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600060 milliseconds\n"
    "[rank{0}]:[E321 x ProcessGroupNCCL.cpp:1664] [PG 0 Rank {0}] Exception detected by watchdog at work: 78, last "
    "enqueued NCCL work: {1}, last completed NCCL work: 77.\n"
)


def inspect(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What it prints."""
    assert main(["inspect", *arguments]) == 0
    return capsys.readouterr().out


def test_a_log_of_nccl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sentence about the node, a line for the rank, what was refused, and that silence is no health."""
    path = tmp_path / "nccl.log"
    path.write_text(SOCKETS, encoding="utf-8")
    lines = inspect(capsys, str(path)).splitlines()

    assert lines[1].startswith("  n1 sends over sockets: NCCL found no adapter; ")
    assert lines[2].startswith("  rank 0 of 2, n1:41, GPU 00000000:1B:00.0, NCCL 2.21.5, network Socket, ")
    assert lines[2].endswith("channels: socket 1, warnings: remote_closed 1")
    assert [lines[0], *lines[3:]] == [
        f"{path}: a log of 1 rank by NCCL's lines",
        "  refused: cut_line 1",
        "  Who is stuck often writes nothing: no warning is no proof of health.",
    ]


def test_the_watchdogs_laggard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of all ranks' output, the one that had given the fewest collectives."""
    path = tmp_path / "job.out"
    path.write_text("".join(TIMEOUT.format(rank, 77 if rank == 4 else 79) for rank in range(8)), encoding="utf-8")
    text = inspect(capsys, str(path))

    assert "rank 0 gave BROADCAST 78 up after 10.0 min (limit 10.0 min)" in text
    assert "behind in process group 0: rank 4, at collective 77 given and 77 completed, others at 79; 8 ranks" in text


def test_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same for programs, beside rings and traces."""
    path = tmp_path / "nccl.log"
    path.write_text(SOCKETS + TIMEOUT.format(3, 79), encoding="utf-8")
    document = json.loads(inspect(capsys, "--json", str(path)))
    (log,) = document["logs"]

    assert (document["files"], document["traces"], document["refused"]) == ([], [], [])
    assert log["nodes"][0]["node"] == "n1"
    assert (log["ranks"][0]["channels"], log["ranks"][0]["no_rdma_device"]) == ({"socket": 1}, True)
    assert log["timeouts"] == [
        {"rank": 3, "operation": "BROADCAST", "sequence": 78, "timeout_seconds": 600.0, "ran_seconds": 600.06}
    ]
    assert (log["laggards"], log["refused"]) == ([], {"cut_line": 1})


def test_a_line_without_end_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A megabyte in one line is counted, and what follows is read."""
    path = tmp_path / "job.out"
    path.write_text(f"{'x' * 1_000_000}\n{SOCKETS}", encoding="utf-8")

    assert "long_line 1" in inspect(capsys, str(path))


def test_other_text_is_still_refused_as_a_ring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file without a word of NCCL is none of the three."""
    path = tmp_path / "notes.txt"
    path.write_text("NCCL is mentioned here, and that is all\n", encoding="utf-8")

    assert main(["inspect", str(path)]) == 1
    assert "straggler inspect:" in capsys.readouterr().err


def test_the_log_of_a_cluster_fits_on_some_screens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of hundreds of nodes some are told, and how many are left."""
    path = tmp_path / "job.out"
    path.write_text("".join(f"n{node}:1:2 [0] NCCL INFO Using network IB\n" for node in range(300)), encoding="utf-8")
    text = inspect(capsys, str(path))

    assert "and 236 more nodes, see --json" in text
    assert "and 236 more ranks, see --json" in text
