"""What one evaluation of all rules costs, in Prometheus and in VictoriaMetrics: real servers, real scrapes.

Each simulated node serves the page that a sidecar with eight ranks and eight GPUs serves; runs have 1,024 ranks each,
one of them slow, so that alerts with all their texts are evaluated too. Prometheus scrapes and evaluates every 15 s;
beside it, single-node VictoriaMetrics scrapes and the distribution's vmalert evaluates the variant without
``keep_firing_for``.

    python tests/bench/rules.py [--ranks 1024 4096 16384] [--servers prometheus victoriametrics] [--seconds 90]

The pages are served by this process, on the same cores. Wall times say little on a machine that others use, so the
processor time is measured too: of the servers with rules, less that of the same servers without.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Protocol

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from facts import gpu_facts, identity, rank_facts, recent, totals
from straggler.join.view import RankView
from straggler.metrics.book import MetricBook
from straggler.metrics.exposition import render
from straggler.metrics.families import add_gpus, add_ranks
from straggler.metrics.self_metrics import ExporterStatus, SourceStatus, add_exporter
from straggler.model.gpu import GpuKey
from straggler.model.reading import SourceState
from straggler.simulate.local_http import read_local
from straggler.simulate.processes import Crew, Process
from straggler.simulate.quick_rules import find_rules, rule_files
from straggler.simulate.servers import free_port, wait_until_ready

INTERVAL_SECONDS = 15
PER_NODE = 8
PER_RUN = 1024
_FIRST_RANK = 70_000_000
"""Stands for a rank's number on the template page: no other text looks like it."""


def template(*, slow: bool) -> str:
    """The page of one node; its first rank may be slow."""
    views = []
    gpus = []
    for local in range(PER_NODE):
        own = 0.047 if slow and local == 0 else 0.034
        gpu = gpu_facts(local, key=GpuKey(f"GPU-{_FIRST_RANK + local}"))
        gpus.append(gpu)
        facts = rank_facts(
            identity=identity(_FIRST_RANK + local, run="RUN", node="NODE", world_size=PER_RUN, local_rank=local),
            recent=recent(own, 0.057),
            totals=totals(arrivals=200),
        )
        views.append(RankView(rank=facts, gpu=gpu, evidence="uuid", unmatched_reason=""))
    book = MetricBook()
    add_ranks(book, views)
    add_gpus(book, gpus)
    sources = tuple(SourceStatus(source=name, state=SourceState.OK) for name in ("rings", "dcgm"))
    add_exporter(book, ExporterStatus(sources=sources, hang_after_seconds=120.0), views)
    return render(book.collect())[0].decode()


class Nodes:
    """Serves the pages of many nodes; counters and steps grow with each scrape."""

    def __init__(self) -> None:
        pages = {slow: template(slow=slow) for slow in (False, True)}
        self.series_per_rank = sum(not line.startswith("#") for line in pages[False].splitlines()) / PER_NODE

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                node = int(self.path.rsplit("/", 1)[1])
                run, place = divmod(node * PER_NODE, PER_RUN)
                page = pages[place == 0].replace("RUN", f"run-{run}").replace("NODE", f"node-{node}")
                for local in range(PER_NODE):
                    token = str(_FIRST_RANK + local)
                    page = page.replace(f"GPU-{token}", f"GPU-{node}-{local}").replace(token, str(place + local))
                steps = int(time.time())
                body = page.replace("} 100.0\n", f"}} {steps}.0\n").encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def handle(self) -> None:
                with suppress(ConnectionError):  # a server that is stopped hangs up
                    super().handle()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"127.0.0.1:{self._server.server_port}"

    def scrape_config(self, directory: Path, count: int) -> Path:
        """Write a configuration that scrapes so many nodes."""
        targets = [
            {"targets": [self.address], "labels": {"__metrics_path__": f"/{node}", "instance": f"node-{node}:10110"}}
            for node in range(count)
        ]
        (directory / "targets.json").write_text(json.dumps(targets), encoding="utf-8")
        config = {
            "global": {"scrape_interval": f"{INTERVAL_SECONDS}s", "scrape_timeout": f"{INTERVAL_SECONDS}s"},
            "scrape_configs": [
                {"job_name": "straggler-exporter", "file_sd_configs": [{"files": [str(directory / "targets.json")]}]}
            ],
        }
        path = directory / "scrape.yml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return path

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


@dataclass
class Figures:
    """What was measured at one size."""

    evaluations: list[float] = field(default_factory=list)
    """Seconds of all groups together, one entry per look."""
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    """Resident, by process."""
    cpu_seconds: float = 0.0
    """Of all servers, per interval."""
    alerts: int = 0


def on_prometheus(nodes: Nodes, count: int, directory: Path, seconds: float, *, with_rules: bool) -> Figures:
    """Measure Prometheus."""
    config = yaml.safe_load(nodes.scrape_config(directory, count).read_text())
    config["global"]["evaluation_interval"] = f"{INTERVAL_SECONDS}s"
    config["rule_files"] = [str(path) for path in rule_files(find_rules())] if with_rules else []
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    crew, port = Crew(directory), free_port()
    try:
        process = crew.start(
            "prometheus",
            [
                "prometheus",
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
        )
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(f"{url}/-/ready", process)

        def look() -> dict[str, float]:
            groups = json.loads(read_local(f"{url}/api/v1/rules"))["data"]["groups"]
            return {group["name"]: float(group["evaluationTime"]) for group in groups}

        figures = _watch(look, seconds, [process])
        figures.memory_bytes = {"prometheus": _resident(process)}
        figures.alerts = len(json.loads(read_local(f"{url}/api/v1/alerts"))["data"]["alerts"])
        return figures
    finally:
        crew.stop()


def on_victoriametrics(nodes: Nodes, count: int, directory: Path, seconds: float, *, with_rules: bool) -> Figures:
    """Measure VictoriaMetrics with vmalert."""
    crew, store_port, alert_port = Crew(directory), free_port(), free_port()
    store, alert = f"http://127.0.0.1:{store_port}", f"http://127.0.0.1:{alert_port}"
    try:
        storage = crew.start(
            "victoria-metrics",
            [
                "victoria-metrics",
                f"-storageDataPath={directory / 'data'}",
                f"-httpListenAddr=127.0.0.1:{store_port}",
                f"-promscrape.config={nodes.scrape_config(directory, count)}",
                "-promscrape.maxScrapeSize=64MB",
                "-search.latencyOffset=5s",
                "-search.maxUniqueTimeseries=2000000",
                "-loggerLevel=WARN",
            ],
        )
        wait_until_ready(f"{store}/health", storage)
        ruler = crew.start(
            "vmalert",
            [
                "vmalert",
                f"-rule={find_rules() / 'vmalert' / '*.yaml' if with_rules else directory / 'none-*.yaml'}",
                f"-datasource.url={store}",
                f"-remoteWrite.url={store}",
                f"-notifier.url=http://{nodes.address}",  # takes alerts and does nothing with them
                f"-evaluationInterval={INTERVAL_SECONDS}s",
                f"-httpListenAddr=127.0.0.1:{alert_port}",
                "-loggerLevel=WARN",
            ],
        )
        wait_until_ready(f"{alert}/health", ruler)

        before: dict[str, tuple[float, float]] = {}

        def look() -> dict[str, float]:
            took = {}
            for group, (total, number) in _iterations(read_local(f"{alert}/metrics")).items():
                old_total, old_number = before.get(group, (0.0, 0.0))
                if number > old_number:
                    took[group] = (total - old_total) / (number - old_number)
                before[group] = (total, number)
            return took

        figures = _watch(look, seconds, [storage, ruler])
        figures.memory_bytes = {"victoria-metrics": _resident(storage), "vmalert": _resident(ruler)}
        groups = json.loads(read_local(f"{alert}/api/v1/alerts"))["data"]["alerts"]
        figures.alerts = len(groups)
        return figures
    finally:
        crew.stop()


def _iterations(page: str) -> dict[str, tuple[float, float]]:
    """Sum and count of vmalert's iterations, by group."""
    found: dict[str, dict[str, float]] = {}
    for line in page.splitlines():
        name, _, rest = line.partition("{")
        if name in {"vmalert_iteration_duration_seconds_sum", "vmalert_iteration_duration_seconds_count"}:
            group = rest.split('group="')[1].split('"')[0]
            found.setdefault(group, {})[name.rsplit("_", 1)[1]] = float(rest.rsplit(" ", 1)[1])
    return {group: (values.get("sum", 0.0), values.get("count", 0.0)) for group, values in found.items()}


def _watch(look: Callable[[], dict[str, float]], seconds: float, servers: Sequence[Process]) -> Figures:
    """Let two intervals pass for all series to be there, then look once per interval."""
    time.sleep(3 * INTERVAL_SECONDS)
    figures = Figures()
    look()
    begin, before = time.monotonic(), sum(map(_cpu_seconds, servers))
    end = begin + seconds
    while time.monotonic() < end:
        time.sleep(INTERVAL_SECONDS)
        took = look()
        figures.evaluations.append(sum(took.values()))
    intervals = (time.monotonic() - begin) / INTERVAL_SECONDS
    figures.cpu_seconds = (sum(map(_cpu_seconds, servers)) - before) / intervals
    return figures


def _program(process: Process) -> Path:
    """Of the program itself: what was started may be its parent."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return Path(f"/proc/{children[0] if children else process.pid}")


def _resident(process: Process) -> int:
    return int((_program(process) / "status").read_text().split("VmRSS:")[1].split()[0]) * 1024


def _cpu_seconds(process: Process) -> float:
    fields = (_program(process) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Measure(Protocol):
    """Starts servers, watches them, stops them."""

    def __call__(self, nodes: Nodes, count: int, directory: Path, seconds: float, *, with_rules: bool) -> Figures:
        """Measure so many nodes for so long."""


MEASURES: Mapping[str, tuple[str, Measure]] = {
    "prometheus": ("prometheus", on_prometheus),
    "victoriametrics": ("vmalert", on_victoriametrics),
}


def _measured(measure: Measure, nodes: Nodes, count: int, seconds: float, *, with_rules: bool) -> Figures:
    with tempfile.TemporaryDirectory() as directory:
        return measure(nodes, count, Path(directory), seconds, with_rules=with_rules)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1024, 4096, 16384])
    parser.add_argument("--servers", nargs="+", default=list(MEASURES), choices=list(MEASURES))
    parser.add_argument("--seconds", type=float, default=90.0)
    options = parser.parse_args()
    nodes = Nodes()
    print(f"{nodes.series_per_rank:.0f} series per rank; scraped and evaluated every {INTERVAL_SECONDS} s\n")
    print(
        "| server | ranks | series | one evaluation: least | median | worst "
        "| processor time | all else | memory | alerts |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for server in options.servers:
        needed, measure = MEASURES[server]
        if shutil.which(needed) is None:
            print(f"| {server} | not installed | | | | | | | |")
            continue
        for ranks in options.ranks:
            figures, bare = (
                _measured(measure, nodes, ranks // PER_NODE, options.seconds, with_rules=rules)
                for rules in (True, False)
            )
            memory = ", ".join(f"{process} {size / 2**20:,.0f} MiB" for process, size in figures.memory_bytes.items())
            print(
                f"| {server} | {ranks:,} | {ranks * nodes.series_per_rank:,.0f} | {min(figures.evaluations):.2f} s "
                f"| {median(figures.evaluations):.2f} s "
                f"| {max(figures.evaluations):.2f} s | {figures.cpu_seconds - bare.cpu_seconds:.2f} s "
                f"| {bare.cpu_seconds:.2f} s | {memory} | {figures.alerts} |",
                flush=True,
            )
    nodes.close()


if __name__ == "__main__":
    main()
