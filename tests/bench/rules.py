"""What the rules cost in Prometheus and in VictoriaMetrics: real servers, real scrapes, every group of rules.

Each simulated node serves the page that a sidecar with eight ranks and eight GPUs serves; runs have 1,024 ranks each,
one of them slow, so that alerts with all their texts are evaluated too. Prometheus scrapes and evaluates every 15 s;
beside it, single-node VictoriaMetrics scrapes and the distribution's vmalert evaluates the variant without
``keep_firing_for``.

    python tests/bench/rules.py [--ranks 1024 4096 16384] [--servers prometheus victoriametrics] [--write]

A server is first filled, then watched for one interval without rules, then with them. Less than two minutes each, less
than twelve for all six. The pages are served by this process, on the same cores, and wall times say little on a machine
that others use: so the processor time of the servers is measured too, with rules and without.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.many_nodes import PER_NODE, SCRAPE_SECONDS, Nodes
from straggler.simulate.local_http import read_local
from straggler.simulate.processes import Crew, Process
from straggler.simulate.quick_rules import find_rules, rule_files
from straggler.simulate.servers import free_port, wait_until_ready

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
_TABLES = re.compile(r"(?<=<!-- begin: make bench-rules -->\n).*?(?=<!-- end -->)", re.DOTALL)
_FILL_SECONDS = 25.0
"""Until each node has been scraped."""
_LOOK_SECONDS = 5.0

Looks = dict[str, dict[str, float]]
"""What was seen of each group: seconds of one evaluation, by what tells it from another one."""


@dataclass
class Figures:
    """What was measured at one size."""

    groups: Mapping[str, float] = field(default_factory=dict)
    """Median seconds of one evaluation."""
    rules: Mapping[str, float] = field(default_factory=dict)
    """The same of single rules, where the server says it."""
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    """Resident, by process."""
    idle_seconds: float = 0.0
    """Processor time of all servers per interval, without rules."""
    busy_seconds: float = 0.0
    """With them."""
    alerts: int = 0


def on_prometheus(nodes: Nodes, count: int, directory: Path, seconds: float) -> Figures:
    """Measure Prometheus."""
    config = nodes.scrape_config(directory, count)
    config["global"]["evaluation_interval"] = f"{SCRAPE_SECONDS}s"
    path = _written(config, directory / "prometheus.yml")
    crew, port = Crew(directory), free_port()
    url = f"http://127.0.0.1:{port}"
    try:
        process = crew.start(
            "prometheus",
            [
                "prometheus",
                f"--config.file={path}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--web.enable-lifecycle",
                "--log.level=warn",
            ],
        )
        wait_until_ready(f"{url}/-/ready", process)
        figures = Figures(idle_seconds=_idle([process]))
        _written(config | {"rule_files": [str(file) for file in rule_files(find_rules())]}, path)
        urllib.request.urlopen(urllib.request.Request(f"{url}/-/reload", method="POST")).close()
        seen: Looks = {}
        rules: Looks = {}

        def look() -> None:
            for group in json.loads(read_local(f"{url}/api/v1/rules", 60))["data"]["groups"]:
                seen.setdefault(group["name"], {})[group["lastEvaluation"]] = float(group["evaluationTime"])
                for rule in group["rules"]:
                    name = f"{rule['name']} {rule.get('labels', {}).get('severity', '')}".strip()
                    rules.setdefault(name, {})[rule["lastEvaluation"]] = float(rule["evaluationTime"])

        figures.busy_seconds = _watch(look, seconds, [process])
        figures.groups, figures.rules = _medians(seen), _medians(rules)
        figures.memory_bytes = {"Prometheus": _resident(process)}
        figures.alerts = len(json.loads(read_local(f"{url}/api/v1/alerts", 60))["data"]["alerts"])
        return figures
    finally:
        crew.stop()


def on_victoriametrics(nodes: Nodes, count: int, directory: Path, seconds: float) -> Figures:
    """Measure VictoriaMetrics with vmalert."""
    path = _written(nodes.scrape_config(directory, count), directory / "scrape.yml")
    crew, store_port, alert_port = Crew(directory), free_port(), free_port()
    store, alert = f"http://127.0.0.1:{store_port}", f"http://127.0.0.1:{alert_port}"
    try:
        storage = crew.start(
            "victoria-metrics",
            [
                "victoria-metrics",
                f"-storageDataPath={directory / 'data'}",
                f"-httpListenAddr=127.0.0.1:{store_port}",
                f"-promscrape.config={path}",
                "-promscrape.maxScrapeSize=64MB",
                "-search.latencyOffset=5s",
                "-search.maxUniqueTimeseries=2000000",
                "-loggerLevel=WARN",
            ],
        )
        wait_until_ready(f"{store}/health", storage)
        figures = Figures(idle_seconds=_idle([storage]))
        ruler = crew.start(
            "vmalert",
            [
                "vmalert",
                f"-rule={find_rules() / 'vmalert' / '*.yaml'}",
                f"-datasource.url={store}",
                "-datasource.queryStep=1m",
                f"-remoteWrite.url={store}",
                "-remoteWrite.flushInterval=1s",
                f"-notifier.url=http://{nodes.address}",  # takes alerts and does nothing with them
                f"-evaluationInterval={SCRAPE_SECONDS}s",
                f"-httpListenAddr=127.0.0.1:{alert_port}",
                "-loggerLevel=WARN",
            ],
        )
        wait_until_ready(f"{alert}/health", ruler)
        seen: Looks = {}
        before: dict[str, tuple[float, float]] = {}

        def look() -> None:
            for group, (total, number) in _iterations(read_local(f"{alert}/metrics", 60)).items():
                old_total, old_number = before.get(group, (0.0, 0.0))
                if number > old_number:
                    seen.setdefault(group, {})[str(number)] = (total - old_total) / (number - old_number)
                before[group] = (total, number)

        figures.busy_seconds = _watch(look, seconds, [storage, ruler])
        figures.groups = _medians(seen)
        figures.memory_bytes = {"VictoriaMetrics": _resident(storage), "vmalert": _resident(ruler)}
        figures.alerts = len(json.loads(read_local(f"{alert}/api/v1/alerts", 60))["data"]["alerts"])
        return figures
    finally:
        crew.stop()


def _written(config: Mapping[str, Any], path: Path) -> Path:
    path.write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
    return path


def _iterations(page: str) -> dict[str, tuple[float, float]]:
    """Sum and count of vmalert's iterations, by group."""
    found: dict[str, dict[str, float]] = {}
    for line in page.splitlines():
        name, _, rest = line.partition("{")
        if name in {"vmalert_iteration_duration_seconds_sum", "vmalert_iteration_duration_seconds_count"}:
            group = rest.split('group="')[1].split('"')[0]
            found.setdefault(group, {})[name.rsplit("_", 1)[1]] = float(rest.rsplit(" ", 1)[1])
    return {group: (values.get("sum", 0.0), values.get("count", 0.0)) for group, values in found.items()}


def _idle(servers: Sequence[Process]) -> float:
    """Fill the servers; their processor time in one interval after that."""
    time.sleep(_FILL_SECONDS)
    before = sum(map(_cpu_seconds, servers))
    time.sleep(SCRAPE_SECONDS)
    return sum(map(_cpu_seconds, servers)) - before


def _watch(look: Callable[[], None], seconds: float, servers: Sequence[Process]) -> float:
    """Look again and again; the servers' processor time per interval meanwhile."""
    begin, before = time.monotonic(), sum(map(_cpu_seconds, servers))
    while time.monotonic() < begin + seconds:
        time.sleep(_LOOK_SECONDS)
        look()
    used = sum(map(_cpu_seconds, servers)) - before
    return used * SCRAPE_SECONDS / (time.monotonic() - begin)


def _medians(seen: Looks) -> dict[str, float]:
    """Of evaluations that took place: a group that has not been evaluated yet shows none."""
    medians = {name: [took for took in times.values() if took > 0] for name, times in seen.items()}
    return {name: median(times) for name, times in medians.items() if times}


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

    def __call__(self, nodes: Nodes, count: int, directory: Path, seconds: float) -> Figures:
        """Measure so many nodes for so long."""


MEASURES: Mapping[str, tuple[str, Measure]] = {
    "prometheus": ("prometheus", on_prometheus),
    "victoriametrics": ("vmalert", on_victoriametrics),
}


def tables(measured: Mapping[tuple[str, int], Figures], series_per_rank: float) -> Iterator[str]:
    """The tables of ``docs/scale.md``."""
    yield f"{series_per_rank:.0f} series per rank, scraped every {SCRAPE_SECONDS} s; median seconds of one evaluation."
    yield ""
    yield "| server | ranks | series | slowest group | all groups | processor time in 15 s | without rules | memory |"
    yield "|---|---|---|---|---|---|---|---|"
    for (server, ranks), figures in measured.items():
        memory = ", ".join(f"{process} {size / 2**20:,.0f} MiB" for process, size in figures.memory_bytes.items())
        yield (
            f"| {server} | {ranks:,} | {ranks * series_per_rank:,.0f} | {max(figures.groups.values()):.2f} s "
            f"| {sum(figures.groups.values()):.2f} s | {figures.busy_seconds:.2f} s | {figures.idle_seconds:.2f} s "
            f"| {memory} |"
        )
    yield ""
    yield "| group | every | " + " | ".join(f"{server} {ranks:,}" for server, ranks in measured) + " |"
    yield "|---|---" + "|---" * len(measured) + "|"
    for name, interval in _intervals().items():
        cells = [figures.groups.get(name) for figures in measured.values()]
        if any(cell is not None and cell >= 0.005 for cell in cells):
            times = " | ".join("-" if cell is None else f"{cell:.2f}" for cell in cells)
            yield f"| {name.removeprefix('straggler-')} | {interval} | {times} |"


def _intervals() -> dict[str, str]:
    groups = (group for file in rule_files(find_rules()) for group in yaml.safe_load(file.read_text("utf-8"))["groups"])
    return {group["name"]: group.get("interval", f"{SCRAPE_SECONDS}s") for group in groups}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1024, 4096, 16384])
    parser.add_argument("--servers", nargs="+", default=list(MEASURES), choices=list(MEASURES))
    parser.add_argument("--seconds", type=float, default=70.0, help="with rules; the rarest group needs 60 or more")
    parser.add_argument("--heaviest", type=int, default=0, metavar="N", help="also list so many rules of Prometheus")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    options = parser.parse_args()
    nodes = Nodes()
    measured: dict[tuple[str, int], Figures] = {}
    for server in options.servers:
        needed, measure = MEASURES[server]
        if shutil.which(needed) is None:
            print(f"{server} is not installed", file=sys.stderr)
            continue
        for ranks in options.ranks:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
                figures = measure(nodes, ranks // PER_NODE, Path(directory), options.seconds)
            measured[server, ranks] = figures
            print(f"{server}, {ranks:,} ranks: {figures.alerts} alerts", file=sys.stderr, flush=True)
            for name, took in sorted(figures.rules.items(), key=lambda rule: -rule[1])[: options.heaviest]:
                print(f"{took:8.3f} s  {name}", file=sys.stderr)
    nodes.close()
    text = "\n".join(tables(measured, nodes.series_per_rank)) + "\n"
    print(text)
    if options.write:
        PAGE.write_text(_TABLES.sub(lambda _: text, PAGE.read_text("utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
