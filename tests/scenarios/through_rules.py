"""Courses, judged by the shipped rules in Prometheus' own rule engine.

Each node's page goes through the real metric families into series with the target's labels; a page that does not come
ends its series with a staleness marker, as a failed scrape does. ``promtool test rules`` then evaluates all rule groups
in order, every 15 s, with its own ``for`` and ``keep_firing_for``, over many runs at once. It is a checker of
expectations and no reporter, so it is given an empty expectation, and what it says it got instead is read.

Left out of the copy: annotations (their queries cost more than the rules; other tests read them), recording rules that
no alert depends on, and scraped series that no rule asks for.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from rulebook import FILES, rules, selectors
from scenarios.course import LOOK_SECONDS, Look
from scenarios.told import Told, about
from servers import program
from straggler.metrics.book import MetricBook
from straggler.metrics.families import add_gpus, add_network, add_ranks
from straggler.metrics.self_metrics import add_exporter

_FIRING = 'ALERTS{alertstate="firing"}'
# promtool 2.42.0:   {alertname="TrainingHung", run="a / 1", severity="critical"} 1.5E+02
_SAMPLE = re.compile(r'\{((?:[^"{}]|"(?:[^"\\]|\\.)*")*)\} ([0-9.eE+-]+)')
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Series:
    """The scraped series of many runs, as promtool's unit tests take them.

    Args:
        names: of the series that matter; those that rules read, by default.
    """

    def __init__(self, names: Collection[str] | None = None) -> None:
        self._names = asked() if names is None else names
        self._values: dict[str, list[str]] = {}
        self._ticks = 0

    def add(self, run: str, index: int, look: Look) -> None:
        """Take in the pages of one moment.

        Args:
            run: the run's name; each run is alone in a cluster of that name.
            index: of the moment, counted in scrapes.
            look: the pages.
        """
        self._ticks = max(self._ticks, index + 1)
        for page in look.pages:
            target = f'cluster={json.dumps(run)},job="straggler-exporter",instance="{page.node}:10110"'
            if page.listed:
                self._put(index, f"up{{{target}}}", float(page.scraped))
            if not page.scraped:
                continue
            book = MetricBook()
            add_ranks(book, page.views)
            add_gpus(book, [view.gpu for view in page.views if view.gpu])
            add_network(book, next((view.ports for view in page.views if view.ports), ()), page.node)
            add_exporter(book, page.status, page.views)
            for family in book.collect():
                for sample in family.samples:
                    if sample.name in self._names and sample.labels.get("phase", "data") != "wait":
                        labels = "".join(f",{key}={json.dumps(value)}" for key, value in sample.labels.items())
                        self._put(index, f"{sample.name}{{{target}{labels}}}", sample.value)

    def _put(self, index: int, series: str, value: float) -> None:
        values = self._values.setdefault(series, [])
        if len(values) < index:
            gone = [] if not values else ["stale"]
            values += [*gone, *["_"] * (index - len(values) - len(gone))]
        if len(values) == index:
            values.append(f"{value:.10g}")

    def test(self, rule_files: Sequence[Path], expressions: Sequence[str]) -> dict[str, Any]:
        """A test that fails, so that promtool tells what the expressions gave at the end."""
        end = f"{int((self._ticks - 1) * LOOK_SECONDS)}s"
        return {
            "rule_files": [str(path) for path in rule_files],
            "evaluation_interval": f"{LOOK_SECONDS:.0f}s",
            "group_eval_order": [
                group["name"] for path in rule_files for group in yaml.safe_load(path.read_text("utf-8"))["groups"]
            ],
            "tests": [
                {
                    "interval": f"{LOOK_SECONDS:.0f}s",
                    "input_series": [
                        {"series": series, "values": _compressed(values, self._ticks)}
                        for series, values in self._values.items()
                    ],
                    "promql_expr_test": [
                        {"expr": expression, "eval_time": end, "exp_samples": []} for expression in expressions
                    ],
                }
            ],
        }

    def lines(self, begin: float) -> Iterator[str]:
        """The same as text with timestamps in milliseconds, for an import; what ends just ends.

        Args:
            begin: epoch seconds of the scrape with index 0.
        """
        for series, values in self._values.items():
            for index, value in enumerate(values):
                if value not in {"_", "stale"}:
                    yield f"{series} {value} {round((begin + index * LOOK_SECONDS) * 1000)}"

    @property
    def seconds(self) -> float:
        """From the first scrape to the last."""
        return self._ticks * LOOK_SECONDS


@cache
def asked() -> frozenset[str]:
    """The names of all series that rules read."""
    return frozenset(str(found.name) for rule in rules() for found, _ in selectors(rule.tree))


@cache
def behind_alerts() -> frozenset[str]:
    """The names of all series that an alert depends on, recorded or scraped, through however many rules."""
    reads: dict[str, set[str]] = {}
    for rule in rules():
        reads.setdefault("" if rule.is_alert else rule.name, set()).update(
            str(found.name) for found, _ in selectors(rule.tree)
        )
    found: set[str] = set()
    fresh = reads[""]
    while fresh:
        found |= fresh
        fresh = {name for series in fresh for name in reads.get(series, ())} - found
    return frozenset(found)


def bare_rules(directory: Path, files: Iterable[Path] = FILES, recorded: Collection[str] | None = None) -> list[Path]:
    """Write rule files without annotations; recording rules first.

    Args:
        directory: where to.
        files: the rules.
        recorded: names of the recorded series to keep; all by default.
    """
    written = []
    for file in sorted(files, key=lambda path: ("recording" not in f"{path.parent.name}-{path.name}", path.name)):
        document = yaml.safe_load(file.read_text("utf-8"))
        for group in document["groups"]:
            group["rules"] = [
                {key: value for key, value in rule.items() if key != "annotations"}
                for rule in group["rules"]
                if "alert" in rule or recorded is None or rule["record"] in recorded
            ]
        document["groups"] = [group for group in document["groups"] if group["rules"]]
        copy = directory / f"{file.parent.name}-{file.name}"
        copy.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        written.append(copy)
    return written


def told_by_rules(series: Series, directory: Path) -> dict[str, list[Told]]:
    """Evaluate the rules over the series.

    Args:
        series: of any number of runs.
        directory: an empty one, for promtool's files.

    Returns:
        What fired, by run.

    Raises:
        RuntimeError: promtool says something else than samples.
    """
    over = f"{series.seconds:.0f}s:{LOOK_SECONDS:.0f}s"
    expressions = (
        f"min_over_time(timestamp({_FIRING})[{over}])",
        f"max_over_time(timestamp({_FIRING})[{over}])",
    )
    path = directory / "test.json"
    path.write_text(
        json.dumps(series.test(bare_rules(directory, recorded=behind_alerts()), expressions)), encoding="utf-8"
    )
    done = subprocess.run(
        [program("promtool"), "test", "rules", str(path)], capture_output=True, text=True, timeout=900, check=False
    )
    said = done.stdout + done.stderr
    answers = re.findall(r'expr: "(m..)_over_time.*\n\s+exp:.*\n\s+got:(.*)', said)
    if done.returncode != 0 and not answers:
        raise RuntimeError(said[:2000])
    times = {kind: dict(_samples(got)) for kind, got in answers}
    told: dict[str, list[Told]] = {}
    for labels, first in times.get("min", {}).items():
        named = dict(labels)
        verdict = named["verdict"]
        told.setdefault(named["cluster"], []).append(
            Told(verdict, named["severity"], about(verdict, named), first, times["max"][labels])
        )
    return told


def _samples(text: str) -> Iterable[tuple[tuple[tuple[str, str], ...], float]]:
    for labels, value in _SAMPLE.findall(text):
        yield tuple((key, json.loads(f'"{escaped}"')) for key, escaped in _LABEL.findall(labels)), float(value)


def _compressed(values: list[str], ticks: int) -> str:
    """Equal values in a row as promtool abbreviates them."""
    whole = values if len(values) == ticks else [*values, "stale", *["_"] * (ticks - len(values) - 1)]
    parts = []
    for value, same in groupby(whole):
        count = len(list(same))
        if value == "stale" or count == 1:
            parts += [value] * count
        else:
            parts.append(f"_x{count}" if value == "_" else f"{value}+0x{count - 1}")
    return " ".join(parts)
