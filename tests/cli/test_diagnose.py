"""``straggler diagnose``: what is said, from a server and a node; ``tests/e2e/test_diagnose.py`` asks real ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from facts import gpu_facts, recent, view
from straggler.cli.main import main
from straggler.detect.cause import CAUSES
from straggler.detect.policy import DEFAULT
from straggler.model.rank import RankState
from straggler.sidecar.api import ranks_document
from straggler.sidecar.diagnosis.finding import RunState, SlowRank, document, lines, next_command
from straggler.sidecar.diagnosis.from_sidecar import diagnose_node
from straggler.sidecar.state import Snapshot
from straggler.simulate.local_http import LocalHandler, LocalServer

SLOW = SlowRank(
    run="llama",
    rank=2,
    node="node-a",
    gpu="2",
    gpu_uuid="GPU-2",
    pod="llama-a",
    slowdown_ratio=1.38,
    own_seconds=0.047,
    peers_own_seconds=0.034,
    since=1_700_000_000.0,
    lost_share=0.23,
    cause="thermal",
    cause_text="Heat: SM clock 1,155 MHz, peers 1,980 MHz",
)


def told(*views: Any) -> dict[str, Any]:
    """What a sidecar says of these ranks."""
    return ranks_document(Snapshot(taken=1.0, taken_monotonic=1.0, views=views), DEFAULT)


def test_lines_of_a_slow_rank() -> None:
    """Ten lines at most, the numbers beside the peers'."""
    state = RunState(
        run="llama",
        ranks=8,
        step_seconds=0.057,
        slow=(SLOW,),
        lost_gpu_hours_an_hour=1.84,
        lost_gpu_hours=0.51,
        alerts=("TrainingGpuThrottled (warning): rank 2, node node-a",),
    )

    assert lines(state, now=1_700_002_100.0) == [
        "run     llama: 8 ranks seen, a step takes 57.0 ms; 1 rank is slow",
        "slow    rank 2: 1.38 x its peers, 47.0 ms of own time a step against 34.0 ms; 23 % of each step is lost",
        "where   node node-a, GPU 2, GPU-2, pod llama-a",
        "since   2023-11-14 22:13 UTC, 35.0 min ago",
        "cause   Heat: SM clock 1,155 MHz, peers 1,980 MHz",
        "next    nvidia-smi -q -d PERFORMANCE,TEMPERATURE -i 2",
        "cost    1.8 GPU-hours an hour, 0.5 so far",
        "alert   TrainingGpuThrottled (warning): rank 2, node node-a",
    ]


def test_many_slow_ranks_stay_readable() -> None:
    """Three are told, the others counted."""
    slow = tuple(SlowRank(run="r", rank=rank, slowdown_ratio=1.5) for rank in range(6))
    said = lines(RunState(run="r", slow=slow), now=0.0)

    assert said[-1] == "also    3 more slow ranks: ranks 3, 4, 5"
    assert len(said) == 14


def test_many_alerts_stay_readable() -> None:
    """A whole rack that is hot does not push the slow rank off the screen."""
    alerts = tuple(f"TrainingGpuThrottled (warning): rank {rank}" for rank in range(9))

    assert lines(RunState(run="r", alerts=alerts), now=0.0)[-1] == "also    5 more alerts"


def test_numbers_that_are_none_are_left_out() -> None:
    """A division by nothing in a recorded series makes no invalid JSON."""
    state = RunState(run="r", step_seconds=float("nan"), slow=(replace(SLOW, lost_share=float("inf")),))
    found = document(state)

    assert json.dumps(found, allow_nan=False)
    assert "step_seconds" not in found
    assert "lost_share" not in found["slow"][0]


def test_well_run() -> None:
    """Nobody is slow: one line, and all is well."""
    state = RunState(run="r", ranks=8, step_seconds=1.0)

    assert state.is_well
    assert lines(state, now=0.0) == ["run     r: 8 ranks seen, a step takes 1.00 s; nobody is slow"]


@pytest.mark.parametrize("cause", CAUSES)
def test_each_cause_has_a_next_command(cause: str) -> None:
    """Nobody is left alone with a cause; a hostile name of a run stays one word of the shell."""
    slow = SlowRank(run="a; rm -rf /", rank=1, slowdown_ratio=2.0, cause=cause)

    assert "; rm" not in next_command(slow).replace("'a; rm -rf /'", "")


def test_node_alone() -> None:
    """The slowest first; ranks that have ended are nobody's peers."""
    ranks = [view(rank, gpu=gpu_facts(rank), recent=recent(0.047 if rank == 2 else 0.034, 0.057)) for rank in range(7)]
    gone = view(7, state=RankState.CRASHED, recent=None)
    (state,) = diagnose_node(told(*ranks, gone), None)

    assert (state.run, state.ranks, [slow.rank for slow in state.slow]) == ("r", 7, [2])
    assert state.slow[0].lost_share == pytest.approx(0.013 / 0.057)
    assert state.slow[0].cause == "unknown"


class Site(LocalHandler):
    """A healthy sidecar below ``/well``, and a Prometheus below ``/prometheus`` that knows nothing."""

    def do_GET(self) -> None:  # noqa: N802 - http.server calls it so
        """Answer the ranks; of queries, none has a result."""
        parts = urlsplit(self.path)
        if parts.path == "/well/api/v1/ranks":
            self.answer(200, json.dumps(told(*(view(rank, recent=recent()) for rank in range(8)))))
        elif parts.path == "/prometheus/api/v1/query" and parse_qs(parts.query)["query"]:
            self.answer(200, json.dumps({"status": "success", "data": {"resultType": "vector", "result": []}}))
        else:
            self.answer(200, '{"status": "success"}')


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Its address."""
    server = LocalServer(Site)
    yield server.url
    server.close()


def test_well_node_gives_zero(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0 means that nobody is slow."""
    assert main(["diagnose", "--local", f"{site}/well"]) == 0
    assert "nobody is slow" in capsys.readouterr().out
    assert main(["diagnose", "--local", f"{site}/well", "--run", "r", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (("--local", "{}/well", "--run", "other"), 1, "no living rank of that run"),
        (("--local", "{}/text"), 1, "straggler:"),
        (("--prometheus", "{}/prometheus"), 1, "it scrapes no sidecar"),
        (("--prometheus", "{}/other"), 1, "does not answer as Prometheus does"),
        (("--prometheus", "localhost:9090"), 2, "write a URL like"),
        (("--prometheus", "http://me:secret@localhost"), 2, "without user or password"),
        ((), 2, "one of the arguments --prometheus --local is required"),
    ],
)
def test_what_cannot_be_asked_is_said(
    site: str, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], code: int, said: str
) -> None:
    """Not to know is not to be well: the exit code is never 0."""
    assert main(["diagnose", *(flag.format(site) for flag in flags)]) == code
    captured = capsys.readouterr()
    assert said in captured.err
    assert "secret" not in captured.err + captured.out
