"""The distribution's vmalert, over VictoriaMetrics, tells what Prometheus' engine tells.

vmalert replays the rules over a past that was imported: recording rules first, then alerts, with its own query language
and its own ``for``. In a replay it cannot query for the texts, so these are left out. It has no ``keep_firing_for`` and
the past no staleness markers, so the scenarios are such as keep all their series.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rulebook import RULES
from scenarios.catalogue import HELD_OUT_SEEDS, SCENARIOS
from scenarios.course import LOOK_SECONDS, Course
from scenarios.through_rules import Series, bare_rules, behind_alerts, told_by_rules
from scenarios.told import about
from servers import crew_logs
from straggler.simulate.local_http import read_local
from straggler.simulate.processes import Crew
from straggler.simulate.servers import free_port, wait_until_ready

NAMES = (
    "healthy, jitter 5 %",
    "7 % slow",
    "13 % slow",
    "30 % slow",
    "slow node of two",
    "heavy last stage, known",
    "rotating loader stalls",
    "loader too slow for all",
    "hang in one rank",
)


@contextmanager
def victoria_metrics(directory: Path) -> Iterator[tuple[Crew, str]]:
    """The server, and its address."""
    if not shutil.which("victoria-metrics") or not shutil.which("vmalert"):
        pytest.skip("VictoriaMetrics is not installed; on Debian and Ubuntu: apt-get install victoria-metrics")
    crew, port = Crew(directory), free_port()
    url = f"http://127.0.0.1:{port}"
    try:
        with crew_logs(crew):
            command = [
                "victoria-metrics",
                f"-storageDataPath={directory / 'data'}",
                "-search.latencyOffset=0s",
                "-search.disableCache",
            ]
            server = crew.start("victoria-metrics", [*command, f"-httpListenAddr=127.0.0.1:{port}"])
            wait_until_ready(f"{url}/health", server)
            yield crew, url
    finally:
        crew.stop()


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_vmalert_tells_what_prometheus_tells(tmp_path: Path) -> None:
    """The same runs give the same verdicts about the same ranks, nodes and stages, in the same severities."""
    chosen = [scenario for scenario in SCENARIOS if scenario.name in NAMES]
    series = Series()
    for scenario in chosen:
        course = Course(scenario, HELD_OUT_SEEDS[0])
        for index, look in enumerate(course.looks(), start=1):
            series.add(course.run, index, look)
    by_prometheus = told_by_rules(series, tmp_path)
    end = int(time.time() / LOOK_SECONDS) * LOOK_SECONDS - 300
    begin = end - series.seconds

    with victoria_metrics(tmp_path) as (_, url):
        post(f"{url}/api/v1/import/prometheus", "\n".join(series.lines(begin)))
        rules = bare_rules(tmp_path, (RULES / "vmalert").glob("*.yaml"), recorded=behind_alerts())
        for kind, delay_ms in (("recording", 2500), ("alerts", 100)):
            settle(url)
            with flushing(url):
                replay(url, [path for path in rules if f"-{kind}-" in path.name], begin, end, delay_ms)
        settle(url)
        by_vmalert = firing(url, begin, end)

    assert by_vmalert == {run: {alert.what for alert in told} for run, told in by_prometheus.items()}


def replay(url: str, files: Iterable[Path], begin: float, end: float, delay_ms: int) -> None:
    """Evaluate rules over the past, so long after one another that each finds what the ones before have recorded."""
    moment = "%Y-%m-%dT%H:%M:%SZ"
    subprocess.run(
        [
            "vmalert",
            *(f"-rule={file}" for file in files),
            f"-datasource.url={url}",
            f"-remoteWrite.url={url}",
            "-remoteWrite.flushInterval=100ms",
            f"-replay.rulesDelay={delay_ms}ms",
            f"-replay.timeFrom={time.strftime(moment, time.gmtime(begin))}",
            f"-replay.timeTo={time.strftime(moment, time.gmtime(end))}",
            f"-evaluationInterval={LOOK_SECONDS:.0f}s",
            f"-datasource.queryStep={LOOK_SECONDS:.0f}s",
            "-replay.disableProgressBar",
        ],
        capture_output=True,
        timeout=800,
        check=True,
    )


def firing(url: str, begin: float, end: float) -> dict[str, set[tuple[str, str, str]]]:
    """What fired, by run."""
    query = urllib.parse.urlencode({"match[]": 'ALERTS{alertstate="firing"}', "start": begin, "end": end})
    told: dict[str, set[tuple[str, str, str]]] = {}
    for line in read_local(f"{url}/api/v1/export?{query}").splitlines():
        labels = json.loads(line)["metric"]
        verdict = labels["verdict"]
        told.setdefault(labels["cluster"], set()).add((verdict, labels["severity"], about(verdict, labels)))
    return told


@contextmanager
def flushing(url: str) -> Iterator[None]:
    """Meanwhile, let what is written be found at once: by itself it takes a second, and more on a busy machine."""
    ends = threading.Event()

    def flush() -> None:
        while not ends.wait(0.2):
            read_local(f"{url}/internal/force_flush", 60)

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def settle(url: str) -> None:
    """Let what was written be found."""
    read_local(f"{url}/internal/force_flush")
    time.sleep(1)


def post(url: str, text: str) -> None:
    """Send text."""
    urllib.request.urlopen(urllib.request.Request(url, text.encode(), method="POST"), timeout=60).close()
