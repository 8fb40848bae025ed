"""A real Prometheus that holds the past of some runs, as if it had scraped, recorded and alerted all along.

Samples are backfilled as OpenMetrics by promtool. The shipped recording rules are then evaluated over that past, also
by promtool: what a rule needs must be in the database before, so rules are taken level by level. The alerts are then
asked over the same past, and ``ALERTS`` and ``ALERTS_FOR_STATE`` are written as Prometheus writes them.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
import yaml

from dashboards.history import END, Course, Run
from dashboards.promql import selectors
from dashboards.served import pages
from straggler.simulate.servers import free_port

ROOT = Path(__file__).resolve().parents[2]
EVALUATION_SECONDS = 30

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_CONFIG = "global: {scrape_interval: 30s}\n"

Samples = dict[str, list[str]]
"""OpenMetrics lines by metric name: a family must stand together."""


class Prometheus:
    """Its HTTP interface."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **parameters: Any) -> Any:
        """The ``data`` of an answer.

        Raises:
            ValueError: Prometheus refuses, e.g. a query that it cannot evaluate.
        """
        answer = requests.post if path.startswith("query") else requests.get
        body = answer(f"{self.url}/api/v1/{path}", timeout=60, **_arguments(path, parameters)).json()
        if body["status"] != "success":
            raise ValueError(body["error"])
        return body["data"]


def _arguments(path: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"data" if path.startswith("query") else "params": parameters}


def build(folder: Path, courses: Iterable[Course]) -> None:
    """Make a database of these runs.

    Args:
        folder: an empty folder; the database is its ``data``.
        courses: the runs, each with another name.
    """
    chosen = list(courses)
    samples: Samples = {}
    for course in chosen:
        run = Run(course)
        for now in run.scrapes():
            for page in pages(run, now):
                for name, labels, value in page.samples():
                    add_line(samples, name, labels, value, now)
    fill(folder, samples, min(course.begins for course in chosen))


def fill(folder: Path, samples: Samples, begins: float) -> None:
    """Make a database of samples, and of what the shipped rules make of them.

    Args:
        folder: an empty folder; the database is its ``data``.
        samples: from ``add_line``.
        begins: Unix time of the first sample.
    """
    _backfill(folder, samples)
    for level in rule_levels():
        _record(folder, level, begins)
    _alert(folder, begins)


@contextmanager
def serve(folder: Path) -> Iterator[Prometheus]:
    """Run Prometheus on the database of ``folder``; it is asked at ``history.END``."""
    port = free_port()
    config = folder / "prometheus.yml"
    config.write_text(_CONFIG, encoding="utf-8")
    with (folder / "prometheus.log").open("ab") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--storage.tsdb.retention.time=100y",
                "--query.max-samples=100000000",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_ready(url, process)
            yield Prometheus(url)
        finally:
            process.terminate()
            process.wait(60)


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(900):
        try:
            if requests.get(f"{url}/-/ready", timeout=5).ok:
                return
        except requests.RequestException:
            pass
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError("Prometheus did not start: see prometheus.log beside its data")


def rules(kind: str) -> list[dict[str, Any]]:
    """All shipped rules of a kind.

    Args:
        kind: ``recording`` or ``alerts``.
    """
    files = sorted((ROOT / "rules" / kind).glob("*.yaml"))
    documents = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in files]
    return [rule for document in documents for group in document["groups"] for rule in group["rules"]]


TEAMS_OWN_RULES = (
    {
        "record": "run:training_tokens:baseline_per_gpu_second",
        "expr": "5850 + 0 * run:training_tokens:per_second",
        "labels": {"model": "ten-billion"},
    },
)
"""What only a team can know: see ``rules/examples/baseline.yaml``."""


def rule_levels() -> list[list[dict[str, Any]]]:
    """Recording rules in the order in which they can be computed: a level needs only the levels before it."""
    waiting = [*rules("recording"), *TEAMS_OWN_RULES]
    levels: list[list[dict[str, Any]]] = []
    while waiting:
        missing = {rule["record"] for rule in waiting}
        level = [rule for rule in waiting if not missing & {found.name for found in selectors(rule["expr"])}]
        if not level:
            raise ValueError(f"rules that need each other: {sorted(missing)}")
        levels.append(level)
        waiting = [rule for rule in waiting if rule not in level]
    return levels


def _record(folder: Path, level: list[dict[str, Any]], begins: float) -> None:
    """Evaluate rules over the past and add what they record."""
    path = folder / "level.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "level", "rules": level}]}), encoding="utf-8")
    with serve(folder) as prometheus:
        _promtool(
            "tsdb",
            "create-blocks-from",
            "rules",
            f"--url={prometheus.url}",
            f"--start={begins:.0f}",
            f"--end={END:.0f}",
            f"--eval-interval={EVALUATION_SECONDS}s",
            f"--output-dir={folder / 'data'}",
            str(path),
        )


def _alert(folder: Path, begins: float) -> None:
    """Ask the alerts over the past and add what Prometheus would have written about them."""
    samples: Samples = {}
    with serve(folder) as prometheus:
        for rule in rules("alerts"):
            answer = prometheus.get("query_range", query=rule["expr"], start=begins, end=END, step=EVALUATION_SECONDS)
            for series in answer["result"]:
                times = [float(at) for at, _ in series["values"]]
                labels = {**series["metric"], **rule.get("labels", {}), "alertname": rule["alert"]}
                labels.pop("__name__", None)
                _add_alert(samples, labels, times, seconds(rule.get("for", "0s")))
    if samples:
        _backfill(folder, samples)


def _add_alert(samples: Samples, labels: dict[str, str], times: list[float], wait: float) -> None:
    """Pending from the first time, firing after ``for``; a missed evaluation begins anew."""
    since = last = 0.0
    for now in times:
        if now - last > EVALUATION_SECONDS * 1.5:
            since = now
        last = now
        state = "firing" if now - since >= wait else "pending"
        add_line(samples, "ALERTS", {**labels, "alertstate": state}, 1, now)
        add_line(samples, "ALERTS_FOR_STATE", labels, since, now)


def seconds(duration: str) -> float:
    """A Prometheus duration, e.g. ``1h30m``."""
    return float(sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)([smhd])", duration)))


def add_line(samples: Samples, name: str, labels: dict[str, str], value: float, now: float) -> None:
    """Add one sample at a Unix time."""
    # A scrape drops empty labels; promtool would store them.
    text = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items() if text)
    samples.setdefault(name, []).append(f"{name}{{{text}}} {value!r} {now:.0f}\n")


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _backfill(folder: Path, samples: Samples) -> None:
    path = folder / "samples.om"
    with path.open("w", encoding="utf-8") as file:
        for lines in samples.values():
            file.writelines(lines)
        file.write("# EOF\n")
    _promtool("tsdb", "create-blocks-from", "openmetrics", str(path), str(folder / "data"))
    path.unlink()


def _promtool(*arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"promtool {' '.join(arguments[:3])}: {done.stdout[-500:]}{done.stderr[-2000:]}")
