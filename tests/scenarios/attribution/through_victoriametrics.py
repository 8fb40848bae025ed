"""The causes that VictoriaMetrics reckons: each recording rule by a query, in their order, over an imported past.

Its query language is another one: a series that fails a comparison is still there for ``or``, without a value. Once
this made every low clock hot.
"""

from __future__ import annotations

import json
import time
import urllib.parse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from rulebook import RULES
from scenarios.attribution.machine import Case, Machine
from scenarios.course import LOOK_SECONDS
from scenarios.test_vmalert import post, victoria_metrics
from scenarios.through_rules import Series
from straggler.simulate.local_http import read_local

_FILES = ("own.yaml", "cause.yaml")


def causes(cases: Iterable[Case], directory: Path) -> Mapping[str, list[str]]:
    """The causes at the end of each case, by run."""
    series = Series()
    for case in cases:
        for index, look in enumerate(Machine(case).looks(), start=1):
            series.add(case.run, index, look)
    end = int(time.time() / LOOK_SECONDS) * LOOK_SECONDS - 4 * LOOK_SECONDS
    with victoria_metrics(directory) as (_, url):
        _write(url, series.lines(end - series.seconds + LOOK_SECONDS))
        for rule in _rules():
            lines = [
                f"{_named(rule['record'], one['metric'])} {one['value'][1]} {end * 1000:.0f}"
                for one in _ask(url, rule["expr"], end)
            ]
            _write(url, lines)
        found: dict[str, list[str]] = {}
        for one in _ask(url, "run_rank:straggler_cause", end):
            found.setdefault(one["metric"]["cluster"], []).append(one["metric"]["cause"])
    return found


def _rules() -> list[dict[str, Any]]:
    return [
        rule
        for file in _FILES
        for group in yaml.safe_load((RULES / "recording" / file).read_text("utf-8"))["groups"]
        for rule in group["rules"]
    ]


def _ask(url: str, expression: str, end: float) -> list[dict[str, Any]]:
    query = urllib.parse.urlencode({"query": expression, "time": end})
    found: list[dict[str, Any]] = json.loads(read_local(f"{url}/api/v1/query?{query}", 30))["data"]["result"]
    return found


def _write(url: str, lines: Iterable[str]) -> None:
    post(f"{url}/api/v1/import/prometheus", "\n".join(lines))
    read_local(f"{url}/internal/force_flush", 30)


def _named(name: str, labels: Mapping[str, str]) -> str:
    return f"{name}{{{','.join(f'{key}={json.dumps(value)}' for key, value in labels.items() if key != '__name__')}}}"
