"""What is named as the cause: by the embedded policy, and by the rules in Prometheus' own evaluator."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from rulebook import RULES
from scenarios.attribution.faults import NETWORK_FAULTS
from scenarios.attribution.machine import END_SECONDS, LOOK_SECONDS, Case, Machine, accepted, views_of
from scenarios.through_rules import Series, bare_rules
from servers import program
from straggler.detect.history import History
from straggler.detect.policy import DEFAULT
from straggler.detect.verdict import Verdict
from straggler.detect.verdicts import judge

SILENT = ""
"""The rank is not slow enough to be named, so nobody asks why."""
_FILES = (RULES / "recording" / "own.yaml", RULES / "recording" / "cause.yaml")
_CAUSE = "run_rank:straggler_cause"
# promtool 2.42.0:   {__name__="run_rank:straggler_cause", cause="thermal", cluster="a", …} 1
_SAMPLE = re.compile(r'\{__name__="' + _CAUSE + r'", ((?:[^"{}]|"(?:[^"\\]|\\.)*")*)\} ')
# promtool 2.42.0:   Labels:{alertname="TrainingStraggler", cluster="a", …}\n  Annotations:{cause="Heat: …", …
_ALERT = re.compile(r'Labels:\{[^\n]*cluster="((?:[^"\\]|\\.)*)"[^\n]*\n\s*Annotations:\{cause="((?:[^"\\]|\\.)*)"')
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Judged(NamedTuple):
    """One case, and what was named as the cause of its slow rank."""

    case: Case
    right: frozenset[str]
    """What may be named."""
    policy: str
    text: str
    """The policy's sentence."""
    rules: tuple[str, ...]
    """What the rules recorded; one, unless it is ``()`` for a case that is not slow, or was not asked."""

    @property
    def outcome(self) -> str:
        """``right``, ``unknown``, ``wrong`` or ``silent``, by the policy."""
        if self.policy == SILENT:
            return "silent"
        if self.policy in self.right:
            return "right"
        return "unknown" if self.policy == "unknown" else "wrong"


def judged(cases: Iterable[Case], directory: Path | None = None) -> list[Judged]:
    """Play cases to their end.

    Args:
        cases: each is a run of its own.
        directory: an empty one for promtool's files; without it only the policy is asked.
    """
    series = Series()
    played = []
    for case in cases:
        machine, history = Machine(case), History(DEFAULT)
        samples = []
        for index, look in enumerate(machine.looks(), start=1):
            samples = history.observe(look.at, views_of(look))
            if directory is not None:
                series.add(case.run, index, look)
        named, text = _named(judge(samples), machine.afflicted)
        is_network = case.faults[0] in NETWORK_FAULTS
        right = frozenset(case.faults) if is_network else accepted(machine.excess)
        played.append(Judged(case, right, named, text, ()))
    if directory is None:
        return played
    recorded = _recorded(series, directory)
    return [one._replace(rules=tuple(recorded.get(one.case.run, ()))) for one in played]


def _named(verdicts: Iterable[Verdict], rank: int) -> tuple[str, str]:
    """The cause that somebody is told, and its sentence. Where no rank is slow, the verdict on the network is one."""
    slow = [one for one in verdicts if one.verdict == "straggling_rank"]
    ports = [one for one in verdicts if one.verdict == "degraded_link" and one.rank is None]
    sockets = [one for one in verdicts if one.verdict == "slow_transport" and one.reason]
    if slow:
        mine = [one for one in slow if one.rank == rank]
        return (mine[0].cause, mine[0].cause_text) if mine else ("another rank", slow[0].cause_text)
    if ports:
        return "link", ports[0].evidence
    return ("transport", sockets[0].evidence) if sockets else (SILENT, "")


def _recorded(series: Series, directory: Path) -> Mapping[str, list[str]]:
    """The causes that the rules record at the end, by run.

    Raises:
        RuntimeError: promtool says something else than samples.
    """
    path = directory / "test.json"
    path.write_text(json.dumps(series.test(bare_rules(directory, _FILES), (_CAUSE,))), encoding="utf-8")
    done = subprocess.run(
        [program("promtool"), "test", "rules", str(path)], capture_output=True, text=True, timeout=900, check=False
    )
    said = done.stdout + done.stderr
    if "got:" not in said and done.returncode != 0:
        raise RuntimeError(said[:2000])
    causes: dict[str, list[str]] = {}
    for labels in _SAMPLE.findall(said):
        named = {key: json.loads(f'"{value}"') for key, value in _LABEL.findall(labels)}
        causes.setdefault(named["cluster"], []).append(named["cause"])
    return causes


def texts_by_rules(cases: Iterable[Case], directory: Path) -> Mapping[str, str]:
    """What the alert on the slow rank says of the cause at the end of each case, by run; as Prometheus renders it.

    Args:
        cases: each is a run of its own.
        directory: an empty one for promtool's files.

    Raises:
        RuntimeError: promtool says something else than alerts.
    """
    series = Series()
    for case in cases:
        for index, look in enumerate(Machine(case).looks(), start=1):
            series.add(case.run, index, look)
    files = (*_FILES, RULES / "recording" / "state.yaml", RULES / "alerts" / "straggler.yaml")
    test = series.test(files, ())
    test["tests"][0]["alert_rule_test"] = [
        {"eval_time": f"{END_SECONDS - LOOK_SECONDS:.0f}s", "alertname": "TrainingStraggler", "exp_alerts": []}
    ]
    path = directory / "texts.json"
    path.write_text(json.dumps(test), encoding="utf-8")
    done = subprocess.run(
        [program("promtool"), "test", "rules", str(path)], capture_output=True, text=True, timeout=900, check=False
    )
    said = done.stdout + done.stderr
    found = {json.loads(f'"{run}"'): json.loads(f'"{cause}"') for run, cause in _ALERT.findall(said)}
    if not found:
        raise RuntimeError(said[:2000])
    return found
