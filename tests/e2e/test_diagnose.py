"""``straggler diagnose`` beside a run with a hot GPU: the same answer from Prometheus and from the node alone."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import pytest

from servers import crew_logs, monitoring, program
from straggler.cli.main import main
from straggler.simulate.demonstration import EVALUATION_SECONDS, HURRY, HURRY_FLAGS
from straggler.simulate.faults import KINDS
from straggler.simulate.quick_rules import find_rules, write_quick_rules
from straggler.simulate.rehearsal import Rehearsal
from straggler.simulate.scenario import Fault, Scenario
from straggler.simulate.workspace import Workspace

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(300)]

PATIENCE_SECONDS = 200
RUN = 'hot "run" {1}'
"""A name that has to be quoted wherever it goes."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where to ask."""

    prometheus: str
    sidecar: str
    run: Rehearsal


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """Four ranks on one node; the GPU of the last is hot from the first step on."""
    program("prometheus"), program("alertmanager")
    healthy = Scenario(run=RUN, ranks=4)
    scenario = replace(healthy, fault=Fault(name="thermal", rank=3, factor=KINDS["thermal"].factor))
    with ExitStack() as stack:
        workspace = Workspace()
        stack.callback(workspace.close)
        run = Rehearsal(scenario, workspace.directory, sidecar_flags=HURRY_FLAGS)
        stack.callback(run.close)
        stack.enter_context(crew_logs(run.crew))
        servers = workspace.directory / "servers"
        servers.mkdir()
        rules = write_quick_rules(find_rules(), servers, divide_by=HURRY, windows=True)
        watch = stack.enter_context(
            monitoring(servers, {"straggler": [run.address]}, rules, evaluation_seconds=EVALUATION_SECONDS)
        )
        run.start_sidecars()
        run.start_ranks()
        yield Place(watch.prometheus.url, f"http://{run.address}", run)


def asked(place: Place, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, dict[str, Any]]:
    """Ask until the cause is known, and give exit code and document."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        assert not place.run.tend(), place.run.crew.logs()
        code = main(["diagnose", *flags, "--json"])
        output = capsys.readouterr().out
        document: dict[str, Any] = json.loads(output)
        causes = [slow["cause"] for run in document.get("runs", ()) for slow in run["slow"]]  # not yet: only an error
        if causes == ["thermal"] or time.monotonic() > deadline:
            return code, document
        time.sleep(1)


def test_prometheus_is_asked(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """Who, where, since when, what it costs, why with the peers' numbers, and what to type."""
    code, document = asked(place, capsys, "--prometheus", place.prometheus, "--run", RUN)

    assert code == 1
    (run,) = document["runs"]
    (slow,) = run["slow"]
    assert (run["run"], slow["rank"], slow["cause"], document["ok"]) == (RUN, 3, "thermal", False)
    assert "SM clock 1,155 MHz, peers 1,980 MHz" in slow["cause_text"]
    assert slow["gpu"] == "3"
    assert slow["since"] <= time.time()
    assert run["lost_gpu_hours_an_hour"] > 0
    assert slow["next_command"] == "nvidia-smi -q -d PERFORMANCE,TEMPERATURE -i 3"


def test_it_takes_about_ten_lines(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """One screen, and the cause on a line of its own."""
    asked(place, capsys, "--prometheus", place.prometheus)
    main(["diagnose", "--prometheus", place.prometheus])
    lines = capsys.readouterr().out.splitlines()

    assert len(lines) <= 12
    assert [line.split()[0] for line in lines][:6] == ["run", "slow", "where", "since", "cause", "next"]


def test_sidecar_alone_is_asked(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """The node knows the same cause without any server."""
    code, document = asked(place, capsys, "--local", place.sidecar)

    (slow,) = document["runs"][0]["slow"]
    assert (code, slow["rank"], slow["cause"]) == (1, 3, "thermal")
    assert "since" not in slow


def test_unknown_run(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt run is said, and is no healthy one."""
    asked(place, capsys, "--prometheus", place.prometheus)

    assert main(["diagnose", "--prometheus", place.prometheus, "--run", "llama"]) == 1
    assert "knows no run 'llama'" in capsys.readouterr().err
