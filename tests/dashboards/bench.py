"""How long the dashboards' queries take with 4,096 ranks in one run.

``PYTHONPATH=tests python tests/dashboards/bench.py``. A simulated run of 1,024 ranks is written four times over, under
other rank numbers, nodes and UUIDs. Each query is asked once over the last ten minutes, as Grafana asks it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from dashboards import courses, server
from dashboards.files import load, queries, variables
from dashboards.grafana import Opened
from dashboards.history import END, Run
from dashboards.served import pages

COPIES = 4
MINUTES = 10


def main() -> None:
    """Print a line for each dashboard."""
    course = courses.giant(MINUTES)
    samples: server.Samples = {}
    run = Run(course)
    for now in run.scrapes():
        for page in pages(run, now):
            for copy in range(COPIES):
                for name, labels, value in page.samples():
                    server.add_line(samples, name, _moved(labels, copy, course.scenario.ranks), value, now)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server.fill(folder, samples, course.begins)
        samples.clear()
        with server.serve(folder) as prometheus:
            for dashboard in ("fleet", "run", "rank"):
                _time(dashboard, prometheus)


def _moved(labels: dict[str, str], copy: int, ranks: int) -> dict[str, str]:
    moved = {**labels, "instance": f"{labels['instance']}-{copy}"}
    if "rank" in labels:
        moved["rank"] = str(int(labels["rank"]) + copy * ranks)
    if "rank_node" in labels:
        moved["rank_node"] = f"{labels['rank_node']}-{copy}"
    if labels.get("UUID"):
        moved["UUID"] = f"{labels['UUID']}-{copy}"
    return moved


def _time(name: str, prometheus: server.Prometheus) -> None:
    dashboard = load(name)
    known = {variable["name"] for variable in variables(dashboard)}
    chosen = {key: value for key, value in courses.GIANT.items() if key in known}
    view = Opened(dashboard, prometheus, END - MINUTES * 60, END, chosen)
    seconds, most = [], 0
    for query in queries(dashboard):
        begins = time.monotonic()
        _, series = view.ask(query)
        seconds.append((time.monotonic() - begins, query.where))
        most = max(most, len(series))
    slowest, where = max(seconds)
    total = sum(taken for taken, _ in seconds)
    sys.stdout.write(
        f"{name}: {len(seconds)} queries {total:.1f} s, slowest {slowest:.1f} s ({where}), at most {most} series\n"
    )


if __name__ == "__main__":
    main()
