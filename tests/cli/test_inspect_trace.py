"""Looking into traces of torch.profiler, through the command itself."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from ring_files import RingFile
from straggler.cli.main import main
from trace_files import gpu_step, trace

TRACE_KEYS = {"file", "rank", "world_size", "backend", "clock", "events", "refused_events", "steps"}
STEP_KEYS = {
    "number",
    "step_seconds",
    "loading_seconds",
    "forward_seconds",
    "backward_seconds",
    "optimizer_seconds",
    "compute_seconds",
    "copy_seconds",
    "communication_seconds",
    "exposed_seconds",
    "overlapped_seconds",
}
BANDWIDTH_KEYS = {
    "group",
    "name",
    "group_size",
    "size_bytes",
    "calls",
    "ranks",
    "last_rank",
    "last_share",
    "seconds",
    "algbw_bytes_per_second",
    "busbw_bytes_per_second",
}


def written(path: Path, **made: Any) -> str:
    """A trace file, gzipped."""
    path.write_bytes(gzip.compress(json.dumps(made).encode()))
    return str(path)


@pytest.fixture
def two(tmp_path: Path) -> list[str]:
    """Rank 1 comes late to the all-reduce of step 7, in which rank 0 waits for 600 us."""
    return [
        written(tmp_path / "a.json.gz", **trace(gpu_step(7, 9000, waits=600), rank=0)),
        written(tmp_path / "b.json.gz", **trace(gpu_step(7, 0), rank=1)),
    ]


def test_table(two: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Each trace has a row for each step, in milliseconds; several have a table of their collectives."""
    assert main(["inspect", *two]) == 0
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines()]

    assert ["trace", "rank", "1", "of", "2", "backend", "nccl"] in rows
    assert ["7", "1.00", "0.10", "0.20", "0.40", "0.05", "0.65", "0.00", "0.25", "0.10", "0.15"] in rows
    assert rows[-1] == ["0", "allreduce", "2/2", "4.00", "1", "1", "(100%)", "0.25", "16.00", "16.00"]


def test_json_keys_are_stable(two: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts rely on exactly these keys, and the help names them all."""
    assert main(["inspect", "--json", *two]) == 0
    document = json.loads(capsys.readouterr().out)
    main(["inspect", "--help"])
    help_text = capsys.readouterr().out

    assert [one.keys() for one in document["traces"]] == [TRACE_KEYS] * 2
    assert document["traces"][0]["steps"][0].keys() == STEP_KEYS
    assert document["collectives"]["bandwidths"][0].keys() == BANDWIDTH_KEYS
    assert [key for key in sorted(TRACE_KEYS | STEP_KEYS | BANDWIDTH_KEYS) if key not in help_text] == []


def test_what_a_trace_does_not_show_is_a_dash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A trace without operators has no forward; that is not 0.00."""
    events = [one for one in gpu_step(1, 0) if one["cat"] not in ("cpu_op", "user_annotation")]
    assert main(["inspect", written(tmp_path / "t", **trace(events, rank=None))]) == 0
    out = capsys.readouterr().out

    assert "rank unknown" in out
    assert out.splitlines()[-1].split()[2:6] == ["-", "-", "-", "-"]


def test_a_ring_and_a_damaged_trace_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be read is said on standard error with its reason; the rest is shown, and the exit code is 1."""
    RingFile(tmp_path / "a.ring").step(3)
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(gzip.compress(json.dumps(trace(gpu_step(1, 0))).encode())[:-20])

    assert main(["inspect", "--json", str(tmp_path / "a.ring"), str(cut)]) == 1
    out, err = capsys.readouterr()
    document = json.loads(out)

    assert len(document["files"]) == 1
    assert [one["reason"] for one in document["refused"]] == ["corrupt"]
    assert "damaged or cut off" in err


def test_hostile_texts_reach_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Escape sequences in what the trace says of itself are not printed."""
    made = trace(gpu_step(1, 0))
    made["distributedInfo"]["backend"] = "nccl\x1b[2J"
    main(["inspect", written(tmp_path / "t", **made)])

    assert "\x1b" not in capsys.readouterr().out
