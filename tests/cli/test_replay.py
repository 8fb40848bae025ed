"""``straggler replay`` as it is typed."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from recordings import bad_worker, healthy, heavy_last_stage, job, slow_rank, uneven_sequences, write_csv
from servers import promtool
from straggler.cli.main import main


@pytest.fixture
def ar(corpus: Path) -> Path:
    """The recorded job with one bad worker."""
    path = corpus.parent / "traces" / "AR.csv"
    if not path.exists():
        pytest.skip("no recorded traces beside this checkout")
    return path


def replay_json(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The document that the command prints; it must succeed."""
    assert main(["replay", *arguments, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_recorded_bad_worker(ar: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rank 0 of the real job is named and nobody else, and the cost is within 15 % of the simulated repair's 49.3 %."""
    document = replay_json([str(ar), "--columns", "own=own,peer_group=stage"], capsys)
    (verdict,) = document["verdicts"]

    assert (verdict["verdict"], verdict["rank"], verdict["peer_group"]) == ("straggling_rank", 0, "0")
    assert verdict["slowdown_ratio"] == pytest.approx(2.357, abs=0.002)
    assert verdict["since_step"] == 16
    assert document["pending"] == []
    assert document["lost_share"] == pytest.approx(0.493, rel=0.15)
    assert document["lost_share_is_upper_bound"] is True


def test_recorded_job_without_its_straggler_blames_nobody(
    ar: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the bad worker's rows no other is blamed for it: all that is told is that even the least waits much."""
    rows = [line for line in ar.read_text().splitlines() if line.split(",")[1] != "0"]
    rest = tmp_path / "rest.csv"
    rest.write_text("\n".join(rows))

    verdicts = replay_json([str(rest), "--columns", "peer_group=stage"], capsys)["verdicts"]

    assert [(verdict["verdict"], verdict["severity"], verdict["rank"]) for verdict in verdicts] == [
        ("slow_transport", "info", None)
    ]


@pytest.mark.parametrize("make", [uneven_sequences, heavy_last_stage], ids=["uneven sequences", "heavy stage"])
def test_shape_of_the_job_is_nobodys_fault(make: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither uneven sequences nor a heavy stage has a rank in any verdict."""
    path = write_csv(tmp_path / "job.csv", make(seed=5))
    document = replay_json([str(path), "--columns", "peer_group=stage,node=host"], capsys)

    assert document["verdicts"]
    assert {verdict["rank"] for verdict in document["verdicts"]} == {None}


def test_json_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All fields, numbers as numbers, unknown as null, times as ISO 8601."""
    rows = job(8, 200, slow_rank(2, 1.5, since=100, jitter=0.0), began=1_700_000_000.0)
    path = write_csv(tmp_path / "llama.csv", rows)
    document = replay_json([str(path), "--columns", "node=host"], capsys)

    assert document == {
        "run": "llama",
        "verdicts": [
            {
                "verdict": "straggling_rank",
                "severity": "critical",
                "rank": 2,
                "node": "n0",
                "peer_group": "0",
                "slowdown_ratio": 1.5,
                "since_step": 100,
                "until_step": None,
                "since": "2023-11-14T22:15:21Z",
                "confirmed": True,
                "lost_share": pytest.approx(0.5 / 1.7, rel=1e-5),
                "evidence": "own time 1.50 s a step (1.50 x), median 1.50 s, against 1.00 s of its 7 peers, over 32 "
                "steps; it waits 200.0 ms a step, they 700.0 ms",
                "impact": "7 GPUs wait for it, 29 % of each step is lost",
            }
        ],
        "pending": [],
        "lost_share": pytest.approx(100 * 0.5 / (100 * 1.7 + 100 * 1.2), rel=1e-5),
        "lost_share_is_upper_bound": False,
        "lost_gpu_seconds": 400.0,
        "gpu_seconds": 2320.0,
        "ranks": 8,
        "steps": 200,
        "first_step": 0,
        "last_step": 199,
        "enough_steps": True,
        "has_peers": True,
        "missing_rows": 0,
        "refused": [],
    }


def test_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """People get the same in sentences."""
    path = write_csv(tmp_path / "llama.csv", job(8, 200, slow_rank(2, 1.5, since=100, jitter=0.0)))

    assert main(["replay", str(path), "--columns", "node=host"]) == 0
    text = capsys.readouterr().out
    assert "llama: 8 ranks, 200 steps (0 to 199)" in text
    assert "CRITICAL straggling_rank: rank 2 on n0, 1.50 x" in text
    assert "since step 100, still at the end" in text


def test_healthy_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing to say is said."""
    path = write_csv(tmp_path / "f.csv", job(8, 64, healthy()))

    assert main(["replay", str(path), "--fail-on-verdict"]) == 0
    assert "nobody is slow" in capsys.readouterr().out


def test_too_few_steps_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With 31 steps the exit code is 0 and the reason is printed."""
    path = write_csv(tmp_path / "f.csv", job(4, 31, slow_rank(1, 3.0)))

    assert main(["replay", str(path)]) == 0
    assert "no verdict is possible: no rank has 32 steps" in capsys.readouterr().out
    assert replay_json([str(path)], capsys)["enough_steps"] is False


@pytest.mark.parametrize("groups", [["0"], ["0", "1", "2"]], ids=["one rank", "one rank a stage"])
def test_nobody_to_compare_with_says_why(groups: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ranks without a peer are not told to be well: there was nobody to compare them with."""
    path = write_csv(tmp_path / "f.csv", job(len(groups), 40, healthy(), groups=groups))

    assert main(["replay", str(path), "--columns", "peer_group=stage"]) == 0
    said = capsys.readouterr().out
    assert "no straggler can be found: no rank has a peer in its group" in said
    assert "nobody is slow" not in said
    assert replay_json([str(path), "--columns", "peer_group=stage"], capsys)["has_peers"] is False


def test_fail_on_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Finding something is no failure unless asked for."""
    path = write_csv(tmp_path / "f.csv", bad_worker())

    assert main(["replay", str(path), "--columns", "peer_group=stage"]) == 0
    assert main(["replay", str(path), "--columns", "peer_group=stage", "--fail-on-verdict"]) == 1
    assert "straggling_rank" in capsys.readouterr().out


def test_what_is_pending_is_no_verdict_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A rank that became slow just before the end would not have been told live, and fails nothing."""
    path = write_csv(tmp_path / "f.csv", job(8, 400, slow_rank(2, 1.5, since=365, jitter=0.0)))

    assert main(["replay", str(path), "--fail-on-verdict"]) == 0
    said = capsys.readouterr().out
    assert "pending, not long enough for an alert:" in said
    assert "straggling_rank: rank 2" in said


def test_refused_rows_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is refused is on standard error with reason and line, and in the JSON; the rest is judged."""
    path = write_csv(tmp_path / "f.csv", bad_worker())
    with path.open("a") as stream:
        stream.write("1,2,three,4,0,,\n1,2\n")

    assert main(["replay", str(path), "--columns", "peer_group=stage", "--json"]) == 0
    captured = capsys.readouterr()
    assert "refused 1 (not_a_number): line 706: wall is 'three'" in captured.err
    assert "refused 1 (too_few_fields): line 707: 2 fields under 7 column names" in captured.err
    assert {refused["reason"]: refused["count"] for refused in json.loads(captured.out)["refused"]} == {
        "not_a_number": 1,
        "too_few_fields": 1,
    }


@pytest.mark.parametrize(
    ("content", "arguments", "said"),
    [
        ("", [], "empty file"),
        ("step,rank,wall,own\n", [], "column names but no rows"),
        ("step,rank,wall,own\n1,0,x,1\n", [], "no row that can be used (1 not_a_number)"),
        ("step;rank;wall;own\n1;0;46,6;1\n", [], "a decimal comma: write 46.6"),
        ("step,rank,wall,own\n1,0,1,1\n", ["--columns", "ownn=x"], "columns: 'ownn' is none of our columns"),
        ("step,rank,wall,own\n1,0,1,1\n", ["--columns", "own=owm"], "it has step, rank, wall, own"),
        ("step,rank,time,own\n1,0,1,1\n", [], "wall: the file has no column wall"),
        ("step,rank,wall,own\n1,0,1,1\n", ["--openmetrics", "/nonexistent/x"], "openmetrics: cannot write"),
        (None, [], "there is no file"),
    ],
)
def test_wrong_use(
    content: str | None, arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file or flag that cannot be used is exit code 2 and one line that says why."""
    path = tmp_path / "f.csv"
    if content is not None:
        path.write_text(content)

    assert main(["replay", str(path), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A dash reads standard input."""
    content = write_csv(tmp_path / "f.csv", bad_worker()).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    document = replay_json(["-", "--columns", "peer_group=stage"], capsys)

    assert document["run"] == "stdin"
    assert [verdict["rank"] for verdict in document["verdicts"]] == [0]


def test_milliseconds_are_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same job in milliseconds gives the same document."""
    seconds, milliseconds = tmp_path / "s" / "f.csv", tmp_path / "ms" / "f.csv"
    rows = bad_worker()
    for path in (seconds, milliseconds):
        path.parent.mkdir()
        write_csv(path, rows)
    header, *lines = milliseconds.read_text().splitlines()
    scaled = [header]
    for line in lines:
        step, rank, wall, own, *rest = line.split(",")
        scaled.append(",".join([step, rank, repr(float(wall) * 1e3), repr(float(own) * 1e3), *rest]))
    milliseconds.write_text("\n".join(scaled))

    assert replay_json([str(milliseconds), "--unit", "ms"], capsys) == replay_json([str(seconds)], capsys)


@pytest.mark.servers
def test_backfill(tmp_path: Path) -> None:
    """The OpenMetrics file is taken by promtool, and its blocks hold the gauges that the rules compare."""
    rows = job(4, 100, slow_rank(2, 1.5, jitter=0.0), began=1_700_000_000.0)
    path = write_csv(tmp_path / "f.csv", rows)
    page, blocks = tmp_path / "f.om", tmp_path / "blocks"

    assert main(["replay", str(path), "--columns", "node=host", "--run", 'a "run"', "--openmetrics", str(page)]) == 0
    assert "1700" in promtool("tsdb", "create-blocks-from", "openmetrics", str(page), str(blocks))
    (blocks / "wal").mkdir()  # promtool 2.42 opens no directory of blocks without one
    dump = promtool("tsdb", "dump", "--match", '{__name__="training_recent_own_seconds",rank="2"}', str(blocks))
    times = [int(line.split()[-1]) for line in dump.splitlines()]

    assert times
    assert 1_700_000_000_000 < times[0] < times[-1] <= 1_700_000_180_000
    assert all(line.split()[-2] == "1.5" for line in dump.splitlines())


def test_needs_only_the_standard_library(tmp_path: Path) -> None:
    """Replay runs where only the hook is installed; the metrics alone need the extra, and it is said which."""
    path = write_csv(tmp_path / "f.csv", job(4, 40, healthy()))
    code = (
        "import sys\n"
        "for name in ('prometheus_client', 'pydantic', 'requests', 'yaml', 'rich'): sys.modules[name] = None\n"
        "from straggler.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, "replay", str(path), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert run("--json").returncode == 0
    refused = run("--openmetrics", str(tmp_path / "out"))
    assert refused.returncode == 2
    assert "openmetrics: needs prometheus_client" in refused.stderr


def test_backfill_page_has_catalogue_names_only(tmp_path: Path) -> None:
    """What a recording cannot know is not on the page: no arrivals, no world size, no GPU."""
    path, page = write_csv(tmp_path / "f.csv", job(4, 40, healthy())), tmp_path / "f.om"

    assert main(["replay", str(path), "--openmetrics", str(page)]) == 0
    names = {line.split()[2] for line in page.read_text().splitlines() if line.startswith("# TYPE")}
    assert "training_recent_own_seconds" in names
    assert not {"training_rank_arrivals", "training_world_size", "training_gpu_sm_active_ratio"} & names
    assert page.read_text().endswith("# EOF\n")
