"""``straggler demo``: a straggler from the training step to the alert, on this machine, without a GPU.

Exit code 0: the alert came and named the right rank and cause, or a healthy run stayed quiet. 1: it did not. 2: wrong
use. 130: ended by Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from straggler.cli.demo_screen import make_screen
from straggler.errors import ConfigError, SourceAbsentError
from straggler.simulate.demonstration import Demonstration, Plan, Report
from straggler.simulate.faults import KINDS, Hits
from straggler.simulate.outcome import named_cause
from straggler.simulate.quick_rules import find_rules
from straggler.simulate.scenario import Fault, Scenario
from straggler.simulate.servers import find_program
from straggler.simulate.workspace import Workspace

_HEALTHY_SECONDS = 120.0

JSON_KEYS = """\
--json prints one object on standard output at the end (progress goes to standard error):
  ok                  whether all was as it should be
  problem             why not, in one sentence; null if ok
  engine              "prometheus" or "embedded"
  ranks, fault, slow_rank, slow_factor   as asked for; slow_rank is null if no rank is slower than the others
  alert               the alert that decided: name, severity, rank (number or null), labels, annotations; or null
  cause, expected_cause   the cause that the alert names, and the one of the fault: see docs/demo.md; or null
  seconds_to_alert    from the onset, the start of the first step under the fault, to the webhook; or null
  step_seconds        healthy, slow: median step before and under the fault; expected_healthy, expected_slow
  own_seconds         healthy, slow: the same for the own time of the afflicted rank
  efficiency          measured, expected: healthy step over slow step
  fired               names of all alerts that fired, in order
  steps               finished steps of each rank
  duration_seconds    from the first step to the end
If a program does not come up, only ok and problem are there.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the flags."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"what --fault does, and which alert must come with which cause:\n{_faults()}\n{JSON_KEYS}"
    run = parser.add_argument_group("what happens")
    run.add_argument("--ranks", type=int, metavar="N", help="training processes (default 8; 4 for host-cpu)")
    run.add_argument("--slow-rank", type=int, metavar="R", help="the one with the fault (default 2)")
    run.add_argument(
        "--slow-factor",
        type=float,
        metavar="F",
        help="what the fault makes longer takes so many times as long (default 1.5 for slow-rank, for others as in the "
        "field); 1: nobody is slow, nothing may fire",
    )
    run.add_argument(
        "--slow-after", type=float, default=12.0, metavar="S", help="seconds of healthy training before (default 12)"
    )
    run.add_argument(
        "--fault", choices=[*KINDS], metavar="NAME", default="slow-rank", help="one of those below (default slow-rank)"
    )
    run.add_argument("--jitter", type=float, default=0.005, help=argparse.SUPPRESS)
    run.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    how = parser.add_argument_group("how it is watched")
    how.add_argument(
        "--no-prometheus",
        action="store_true",
        help="let the sidecar judge by itself; also chosen where Prometheus or Alertmanager is not installed",
    )
    how.add_argument("--rules", type=Path, metavar="DIR", help="rules to load (default: those of this project)")
    how.add_argument("--timeout", type=float, default=60.0, metavar="S", help="seconds after the onset (default 60)")
    how.add_argument(
        "--duration",
        type=float,
        metavar="S",
        help="let the run last so long at least (default: up to the alert; 120 in a healthy run)",
    )
    how.add_argument("--json", action="store_true", help="print the result as JSON; see below")
    how.add_argument("--picture", type=Path, metavar="FILE", help="also draw what was shown into this SVG file")
    how.add_argument("--keep", action="store_true", help="keep rings, logs and databases, and say where they are")


def _faults() -> str:
    """A line for each."""
    lines = []
    for name, kind in KINDS.items():
        told = ", ".join(part for part in (kind.alert, kind.cause) if part)
        lines.append(f"  {name:<16} {kind.says(kind.factor)}: {told or 'no alert'}\n")
    return "".join(lines)


def run(arguments: argparse.Namespace) -> int:
    """Do it; gives the exit code.

    Raises:
        ConfigError: wrong use.
        StragglerError: a program does not come up.
    """
    plan, notes = make_plan(arguments)
    if arguments.picture is not None and not os.access(arguments.picture.absolute().parent, os.W_OK):
        raise ConfigError("picture", f"{arguments.picture} is in no directory that can be written to")
    screen = make_screen(plan, json_mode=arguments.json, picture=arguments.picture)
    with ExitStack() as stack:
        _end_on_signals(stack)
        screen.begin()
        stack.callback(screen.end)
        for note in notes:
            screen.say(note)
        workspace = Workspace()
        stack.callback(workspace.close, keep=arguments.keep)
        if arguments.keep:
            screen.say(f"files are kept in {workspace.directory}")
        report = Demonstration(plan, workspace.directory, screen).run()
    screen.result(report)
    if arguments.json:
        print(json.dumps(as_json(report)))
    return 1 if report.outcome.problem else 0


def make_plan(arguments: argparse.Namespace) -> tuple[Plan, list[str]]:
    """Turn flags into a plan, and what is to be said about it before it begins.

    Raises:
        ConfigError: a value cannot be used; its key is the flag without dashes.
    """
    for name in ("timeout", "slow_after", "duration"):
        value = getattr(arguments, name)
        if value is not None and not 0 <= value <= 86_400:
            raise ConfigError(name.replace("_", "-"), f"{value} s is not in 0 … 86400")
    kind = KINDS[arguments.fault]
    factor = kind.factor if arguments.slow_factor is None else arguments.slow_factor
    ranks = kind.ranks if arguments.ranks is None else arguments.ranks
    if ranks == 1 and factor != 1 and kind.hits is Hits.RANK:
        raise ConfigError("ranks", "a rank alone has no peers to be slower than: take 2 or more, or --slow-factor 1")
    if factor not in (1, kind.factor) and not kind.has_strength:
        raise ConfigError("slow-factor", f"is {kind.factor:g} for {arguments.fault}, or 1 for nothing")
    if kind.competes and factor != 1 and (factor < 2 or factor != round(factor)):
        raise ConfigError("slow-factor", f"{factor:g} is no number of threads on the core, the rank's own included")
    if kind.competes and len(os.sched_getaffinity(0)) < 2:
        raise ConfigError("fault", f"{arguments.fault} needs two processors: one to be busy, one for all others")
    healthy = Scenario(ranks=ranks, jitter=arguments.jitter, seed=arguments.seed, nodes=kind.nodes, work=kind.work)
    rank = arguments.slow_rank if arguments.slow_rank is not None else _usual_rank(healthy)
    begins = 1 if kind.from_start else healthy.step_after(arguments.slow_after)
    scenario = replace(healthy, fault=Fault(name=arguments.fault, rank=rank, factor=factor, begins_step=begins))
    rules, notes = _choose_engine(arguments)
    if rules is None and kind.by_rules_alone:
        raise ConfigError(
            "fault",
            f"{arguments.fault} needs Prometheus and Alertmanager: a sidecar alone judges the ranks of its own node, "
            f"and not itself{''.join(f'; {note}' for note in notes[:1])}",
        )
    duration = arguments.duration if arguments.duration is not None else _HEALTHY_SECONDS * scenario.healthy
    return Plan(scenario=scenario, rules=rules, timeout_seconds=arguments.timeout, duration_seconds=duration), notes


def _usual_rank(scenario: Scenario) -> int:
    """Rank 2 of the last node; in small runs the last rank."""
    return min(scenario.ranks_on(scenario.nodes - 1).start + 2, scenario.ranks - 1)


def _choose_engine(arguments: argparse.Namespace) -> tuple[Path | None, list[str]]:
    if arguments.no_prometheus:
        return None, []
    rules = find_rules(arguments.rules)
    try:
        find_program("prometheus")
        find_program("alertmanager")
    except SourceAbsentError as absent:
        return None, [
            f"{absent}",
            "going on without Prometheus: the sidecar judges by itself (as with --no-prometheus)",
        ]
    return rules, []


def as_json(report: Report) -> dict[str, Any]:
    """The object that ``--json`` prints."""
    scenario, pace, notice = report.plan.scenario, report.pace, report.outcome.notice
    kind, slows = scenario.fault.kind, scenario.fault.slows
    rank = notice.labels.get("rank", "") if notice else ""
    return {
        "ok": report.outcome.problem is None,
        "problem": report.outcome.problem,
        "engine": "prometheus" if report.plan.rules else "embedded",
        "ranks": scenario.ranks,
        "fault": scenario.fault.name,
        "slow_rank": scenario.fault.rank if not scenario.healthy and kind.hits is Hits.RANK else None,
        "slow_factor": scenario.fault.factor,
        "alert": notice
        and {
            "name": notice.name,
            "severity": notice.labels.get("severity"),
            "rank": int(rank) if rank.isdigit() else None,
            "labels": dict(notice.labels),
            "annotations": dict(notice.annotations),
        },
        "cause": (named_cause(notice) if notice else "") or None,
        "expected_cause": (kind.cause if not scenario.healthy else "") or None,
        "seconds_to_alert": report.seconds_to_alert,
        "step_seconds": {
            "healthy": pace.healthy_step_seconds,
            "slow": pace.slow_step_seconds,
            "expected_healthy": scenario.expected_step_seconds(0),
            "expected_slow": scenario.expected_step_seconds(scenario.fault.begins_step) if slows else None,
        },
        "own_seconds": {"healthy": pace.healthy_own_seconds, "slow": pace.slow_own_seconds},
        "efficiency": {
            "measured": pace.efficiency,
            "expected": scenario.expected_efficiency if slows else None,
        },
        "fired": [notice.name for notice in report.notices if notice.status == "firing"],
        "steps": list(report.steps),
        "duration_seconds": report.duration_seconds,
    }


def _end_on_signals(stack: ExitStack) -> None:
    """Let SIGTERM and a closed terminal end everything as Ctrl-C does. The end itself is not interrupted again.

    A signal that is ignored stays so: ``nohup`` and shells' background jobs mean it.
    """
    heard = [
        each for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) != signal.SIG_IGN
    ]

    def interrupt(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - signal's signature
        for each in heard:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    for each in heard:
        stack.callback(signal.signal, each, signal.signal(each, interrupt))
