"""``straggler demo``: flags, what it shows, what it reports. That it works is tested end to end."""

from __future__ import annotations

import argparse
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from straggler.cli import demo
from straggler.cli.demo_screen import Screen, one_line
from straggler.cli.main import main
from straggler.errors import ConfigError
from straggler.simulate.demonstration import Plan, Report
from straggler.simulate.measure import Pace
from straggler.simulate.outcome import Outcome
from straggler.simulate.scenario import Fault, Scenario
from straggler.simulate.webhook import Notice

SLOW = Scenario(jitter=0, fault=Fault(name="slow-rank", rank=2, factor=1.5, begins_step=228))
NOTICE = Notice(
    status="firing",
    labels={"alertname": "TrainingStraggler", "severity": "warning", "rank": "2"},
    annotations={
        "summary": "demo waits for rank 2",
        "description": "1.38x its\npeers",
        "cause": "Heat: SM clock 1,320 MHz",
        "runbook_url": "https://r/x",
    },
    received_ns=18_500_000_000,
)
PACE = Pace(healthy_step_seconds=0.0444, slow_step_seconds=0.0572, healthy_own_seconds=0.0341, slow_own_seconds=0.0471)


def arguments(*flags: str) -> argparse.Namespace:
    """As the command line gives them."""
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    return parser.parse_args(["--no-prometheus", *flags])


def plan_of(*flags: str) -> Plan:
    """What these flags ask for."""
    return demo.make_plan(arguments(*flags))[0]


def report(problem: str | None = None, plan: Plan | None = None) -> Report:
    """A run that ended so."""
    return Report(
        plan=plan or Plan(scenario=SLOW, rules=Path("rules")),
        outcome=Outcome(problem=problem, notice=NOTICE),
        notices=(NOTICE,),
        onset_ns=10_000_000_000,
        pace=PACE,
        steps=(400,) * 8,
        duration_seconds=21.5,
    )


def shown(*, terminal: bool = False) -> tuple[Screen, io.StringIO]:
    """A screen and what it has shown."""
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=100, highlight=False, color_system=None)
    return Screen(Plan(scenario=SLOW, rules=Path("rules")), console), output


def test_default_plan() -> None:
    """Without flags: eight ranks, rank 2 slower by half after 12 s, a minute of patience."""
    plan = plan_of()

    assert plan.scenario.ranks == 8
    assert plan.scenario.fault == Fault(name="slow-rank", rank=2, factor=1.5, begins_step=1 + round(12 / 0.044))
    assert plan.timeout_seconds == 60
    assert plan.duration_seconds == 0


@pytest.mark.parametrize("flags", [("--slow-factor", "1"), ("--fault", "none")])
def test_healthy_plan_lasts_two_minutes(flags: tuple[str, ...]) -> None:
    """A run in which nobody is slow is watched for two minutes, or as long as one says."""
    assert plan_of(*flags).scenario.healthy
    assert plan_of(*flags).duration_seconds == 120
    assert plan_of(*flags, "--duration", "7").duration_seconds == 7


def test_slow_rank_fits_small_runs() -> None:
    """The default slow rank exists in a run of two as well."""
    assert plan_of("--ranks", "2").scenario.fault.rank == 1


def test_slow_rank_alone_is_refused() -> None:
    """One rank has no peers: no alert can come, so nobody waits for it; a healthy run of one may be watched."""
    with pytest.raises(ConfigError, match="take 2 or more"):
        plan_of("--ranks", "1")
    assert plan_of("--ranks", "1", "--slow-factor", "1").scenario.healthy


@pytest.mark.parametrize("name", ["bad-cable", "socket-fallback", "dcgm-frozen"])
def test_faults_that_a_sidecar_cannot_judge_are_refused(name: str) -> None:
    """Without Prometheus a fault of the network or of the monitoring would be waited for in vain: it is refused."""
    with pytest.raises(ConfigError, match="needs Prometheus"):
        plan_of("--fault", name)


@pytest.mark.parametrize(
    ("name", "ranks", "rank", "factor", "begins"),
    [
        ("thermal", 8, 2, 1980 / 1155, 1 + round(12 / 0.044)),
        ("power-brake", 8, 2, 1530 / 382, 1 + round(12 / 0.044)),
        ("pcie", 8, 2, 4, 1 + round(12 / 0.044)),
        ("slow-loader", 8, 2, 7, 1 + round(12 / 0.044)),
        ("host-cpu", 4, 2, 11, 1 + round(12 / 0.044)),
    ],
)
def test_each_fault_has_its_own_strength(name: str, ranks: int, rank: int, factor: float, begins: int) -> None:
    """A fault comes with the strength that it has in the field, unless another is asked for."""
    scenario = plan_of("--fault", name).scenario

    assert (scenario.ranks, scenario.fault.rank, scenario.fault.begins_step) == (ranks, rank, begins)
    assert scenario.fault.factor == pytest.approx(factor)


@pytest.mark.parametrize(
    ("name", "factor"), [("thermal", "1.3"), ("slow-loader", "3"), ("host-cpu", "3"), ("pcie", "4"), ("pcie", "1")]
)
def test_strength_can_be_chosen(name: str, factor: str) -> None:
    """A clock may fall less, a loader be slower, and fewer threads share the core."""
    assert plan_of("--fault", name, "--slow-factor", factor).scenario.fault.factor == float(factor)


@pytest.mark.parametrize(("name", "factor"), [("host-cpu", "2.5"), ("host-cpu", "0.5"), ("pcie", "2")])
def test_strength_must_fit_what_is_shown(name: str, factor: str) -> None:
    """Four of sixteen lanes are a quarter, and threads are whole: another strength is refused."""
    with pytest.raises(ConfigError) as refused:
        plan_of("--fault", name, "--slow-factor", factor)
    assert refused.value.key == "slow-factor"


def test_help_tells_each_fault() -> None:
    """The help says of each fault what it does and which alert and cause must come."""
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    text = parser.format_help()

    assert "thermal          gets too hot, its SM clock falls to 1,155 MHz: TrainingStraggler, thermal" in text
    assert "host-cpu         shares its core with 10 busy threads: TrainingStraggler, host_cpu" in text
    assert "none             stays well: no alert" in text


@pytest.mark.parametrize("flag", ["--timeout", "--duration", "--slow-after"])
@pytest.mark.parametrize("value", ["-1", "nan", "inf", "1e9"])
def test_impossible_times_are_refused(flag: str, value: str) -> None:
    """A time that is none is refused, and the error names the flag."""
    with pytest.raises(ConfigError) as refused:
        plan_of(flag, value)
    assert refused.value.key == flag.removeprefix("--")


def test_picture_that_cannot_be_drawn_is_refused_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody waits for a run to its end to learn that there is no such directory."""
    code = main(["demo", "--no-prometheus", "--picture", str(tmp_path / "absent" / "demo.svg")])

    assert code == 2
    assert "is in no directory that can be written to" in capsys.readouterr().err


@pytest.mark.slow
def test_program_that_does_not_come_up_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its last words are the problem, in the sentence and in the object, and the code is 1."""
    for name in ("prometheus", "alertmanager"):
        (tmp_path / name).write_text("#!/bin/sh\necho no space left\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    code = main(["demo", "--ranks", "2", "--json"])
    said = capsys.readouterr()
    document = json.loads(said.out)

    assert code == 1
    assert document.keys() == {"ok", "problem"}
    assert document["problem"].endswith("no space left")
    assert document["problem"] in said.err


def test_json_of_a_success() -> None:
    """The object has the keys that the help describes, and it is JSON."""
    result: dict[str, Any] = json.loads(json.dumps(demo.as_json(report())))

    assert result["ok"] is True
    assert result["engine"] == "prometheus"
    assert result["alert"]["rank"] == 2
    assert result["seconds_to_alert"] == pytest.approx(8.5)
    assert result["cause"] == result["expected_cause"] == "thermal"
    assert result["efficiency"]["measured"] == pytest.approx(444 / 572)
    assert result["efficiency"]["expected"] == pytest.approx(44 / 57)
    assert result["fired"] == ["TrainingStraggler"]
    for key in result:
        assert key in demo.JSON_KEYS


def test_json_of_a_healthy_run() -> None:
    """Nothing is expected to be slow, so there is no slow rank, no alert and no efficiency."""
    healthy = Report(
        plan=Plan(scenario=Scenario(), rules=None),
        outcome=Outcome(problem=None),
        notices=(),
        onset_ns=None,
        pace=Pace(healthy_step_seconds=0.044, slow_step_seconds=None, healthy_own_seconds=0.034, slow_own_seconds=None),
        steps=(2700,) * 8,
        duration_seconds=120.2,
    )
    result = demo.as_json(healthy)

    assert result["engine"] == "embedded"
    assert result["slow_rank"] is None
    assert result["alert"] is None
    assert result["seconds_to_alert"] is None
    assert result["cause"] is None
    assert result["expected_cause"] is None
    assert result["efficiency"] == {"measured": None, "expected": None}


def test_alert_is_shown_as_on_call_gets_it() -> None:
    """Name, severity and delay, then summary, description and runbook, each text on lines of its own."""
    screen, output = shown()
    screen.alert(NOTICE, 8.5)
    text = output.getvalue()

    assert "TrainingStraggler · warning, 8.5 s after the onset" in text
    assert "demo waits for rank 2" in text
    assert "1.38x its peers" in text
    assert "https://r/x" in text


def test_result_compares_with_the_expected() -> None:
    """At the end measured and expected figures stand side by side."""
    screen, output = shown()
    screen.result(report())
    lines = output.getvalue().splitlines()

    assert any("step, healthy" in line and "44.4 ms" in line and "44.0 ms" in line for line in lines)
    assert any("step, slow" in line and "57.2 ms" in line and "57.0 ms" in line for line in lines)
    assert any("efficiency left" in line and "77.6%" in line and "77.2%" in line for line in lines)
    assert lines[-1] == "rank 2 named 8.5 s after the onset; cause: thermal"


def test_failure_is_told() -> None:
    """What is not as it should be is the last line."""
    screen, output = shown()
    screen.result(report(problem="no alert within 60 s after the first slow step"))

    assert output.getvalue().splitlines()[-1].endswith("no alert within 60 s after the first slow step")


def test_text_with_brackets_is_shown_as_it_is() -> None:
    """Text from elsewhere is never taken for markup."""
    screen, output = shown()
    screen.say("[bold]no markup[/bold]")
    screen.alert(
        Notice(status="firing", labels={"alertname": "A"}, annotations={"summary": "[red]x"}, received_ns=0), None
    )

    assert "[bold]no markup[/bold]" in output.getvalue()
    assert "[red]x" in output.getvalue()


RANKS = {
    "ranks": [
        {
            "run": "demo",
            "rank": rank,
            "peer_group": "0",
            "state": "running",
            "step": 10,
            "step_seconds": 0.057,
            "own_seconds": 0.047 if rank == 2 else 0.034,
            "slowdown_ratio": 1.38 if rank == 2 else 1.0,
            **({"slow": "critical"} if rank == 2 else {}),
        }
        for rank in range(4)
    ],
    "sources": [],
}


def test_one_line_names_who_stands_out() -> None:
    """Step, own time of the rest, and the longest with its rank."""
    assert one_line(RANKS) == "step 57.0 ms, own 34.0 ms; rank 2 own 47.0 ms, 1.38x, critical"
    assert one_line({"ranks": []}) == "waiting for the first steps"


def test_lines_come_every_few_seconds() -> None:
    """Without a terminal there is a line every four seconds, not one each second."""
    screen, output = shown()
    for second in range(9):
        screen.look(second, RANKS)

    assert len(output.getvalue().splitlines()) == 3


def test_terminal_has_a_table() -> None:
    """On a terminal the ranks are a table that stays when the run ends."""
    screen, output = shown(terminal=True)
    screen.look(1, RANKS)
    screen.end()

    assert "slowdown" in output.getvalue()
    assert "1.38" in output.getvalue()


def test_picture(tmp_path: Path) -> None:
    """--picture draws what was said, the table when the alert came, and the alert; a viewer fetches nothing for it."""
    file = tmp_path / "demo.svg"
    screen = Screen(Plan(scenario=SLOW, rules=None), Console(file=io.StringIO()), file)
    screen.begin()
    screen.look(
        3.0,
        {
            "node": "n",
            "ranks": [{"run": "demo", "rank": 2, "peer_group": "0", "state": "running", "own_seconds": 0.047}],
        },
    )
    screen.alert(NOTICE, 8.5)
    screen.result(report())
    text = file.read_text(encoding="utf-8").replace("&#160;", " ")

    for part in ("8 ranks on this machine", "47.0 ms", "demo waits for rank 2", "efficiency left", "rank 2 named"):
        assert part in text
    assert "@font-face" not in text
    assert "@import" not in text
