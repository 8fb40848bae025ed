"""The sidecar's budgets: processor, memory and scrape, with 8 ranks at 100 steps a second and a page of 8 GPUs.

Beside it, in the same run, what a plain prometheus_client server with as many series takes for a scrape: that is the
part which is not ours. Run with ``make bench`` or ``python tests/bench/sidecar.py [SECONDS]``.
"""

from __future__ import annotations

import http.client
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ring_files import RingFile
from sidecars import served
from straggler.simulate.dcgm_text import FIELDS, Generation, gpu_labels, render
from straggler.simulate.local_http import LocalHandler, LocalServer

RANKS = 8
STEP_SECONDS = 0.01
SCRAPES = 200
SCRAPE_EVERY_SECONDS = 5.0
BUDGET = {"processor": 0.02, "memory": 80e6, "scrape": 0.020}

AS_PROMETHEUS = {
    "Accept": "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "Accept-Encoding": "gzip",
    "X-Prometheus-Scrape-Timeout-Seconds": "10",
}

_PLAIN_SERVER = """
import sys
from prometheus_client import CollectorRegistry, Gauge, start_http_server
registry = CollectorRegistry()
names = ("run", "rank", "peer_group", "rank_node")
for family in range(int(sys.argv[1]) // 8):
    gauge = Gauge(f"training_value_{family}", "As many series, and as many labels", names, registry=registry)
    for rank in range(8):
        gauge.labels("bench", str(rank), "0", "n1").set(family + rank / 10)
server, thread = start_http_server(0, "127.0.0.1", registry)
print(server.server_port, flush=True)
thread.join()
"""


class Times(NamedTuple):
    """Of many scrapes, in seconds."""

    median: float
    p99: float
    processor: float
    """Used by the server for one scrape: the figure that a busy machine does not spoil."""
    body_bytes: int


class DcgmPage(LocalHandler):
    """Eight GPUs whose values move."""

    def do_GET(self) -> None:  # noqa: N802 - http.server calls it so
        """Answer."""
        busy = time.time() % 1
        values = {field.name: 0.5 + busy / 10 if "PROF" in field.name else 50 + int(9 * busy) for field in FIELDS}
        rows = [
            (gpu_labels(gpu, _uuid(gpu), "n1", Generation.SORTED), {**values, "DCGM_FI_DEV_POWER_USAGE": 400 + gpu})
            for gpu in range(RANKS)
        ]
        self.answer(200, render(rows, Generation.SORTED))


def main(seconds: float) -> None:
    """Measure and print."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        page = LocalServer(DcgmPage)
        stack.callback(page.close)
        for rank in range(RANKS):
            stack.enter_context(_process([sys.executable, __file__, "writer", str(directory), str(rank)]))
        sidecar = stack.enter_context(served("--ring-dir", str(directory), "--dcgm-url", page.url))
        _wait_for_ranks(sidecar.port)
        time.sleep(12)  # the window of 10 s is full
        idle = _processor_share(sidecar.pid, seconds, scrape_port=None)
        scraped = _processor_share(sidecar.pid, seconds, scrape_port=sidecar.port)
        ours = _scrape(sidecar.port, sidecar.pid)
        memory = _resident_bytes(sidecar.pid)
        series = sum(not line.startswith("#") for line in sidecar.metrics().splitlines())
        plain_server = stack.enter_context(_process([sys.executable, "-c", _PLAIN_SERVER, str(series)]))
        assert plain_server.stdout is not None
        plain = _scrape(int(plain_server.stdout.readline()), plain_server.pid)
    print(f"{RANKS} ranks at {1 / STEP_SECONDS:.0f} steps/s, {RANKS} GPUs, {series} series, {seconds:.0f} s each\n")
    _line("processor, no scrape", f"{idle:.2%} of a core", idle / BUDGET["processor"])
    often = f"processor, scraped every {SCRAPE_EVERY_SECONDS:.0f} s"
    _line(often, f"{scraped:.2%} of a core", scraped / BUDGET["processor"])
    _line("memory", f"{memory / 1e6:.1f} MB", memory / BUDGET["memory"])
    _line("scrape, median", f"{ours.median * 1e3:.1f} ms", ours.median / BUDGET["scrape"])
    _line("scrape, p99", f"{ours.p99 * 1e3:.1f} ms", ours.p99 / BUDGET["scrape"])
    _line("scrape, processor", f"{ours.processor * 1e3:.1f} ms", None)
    print("\nplain prometheus_client server with as many series, asked in the same way:")
    _line("scrape, median", f"{plain.median * 1e3:.1f} ms", None)
    _line("scrape, p99", f"{plain.p99 * 1e3:.1f} ms", None)
    _line("scrape, processor", f"{plain.processor * 1e3:.1f} ms", None)
    print(
        f"\nsidecar / plain: {ours.median / plain.median:.2f} (median), {ours.p99 / plain.p99:.2f} (p99), "
        f"{ours.processor / plain.processor:.2f} (processor); pages of {ours.body_bytes} and {plain.body_bytes} bytes"
    )


def _line(what: str, value: str, budget_share: float | None) -> None:
    print(f"{what:36} {value:>18}" + ("" if budget_share is None else f"   {budget_share:6.1%} of the budget"))


def _uuid(gpu: int) -> str:
    return f"GPU-5bd2b1c6-0000-4000-8000-00000000000{gpu}"


def _write(directory: Path, rank: int) -> None:
    """A rank that steps at a fixed pace, in a process of its own."""
    ring = RingFile(directory / f"{rank}.ring", run="bench", rank=rank, capacity=4096, lock=True, gpu_uuid=_uuid(rank))
    due = time.monotonic()
    while True:
        ring.step(1, step_ns=int(STEP_SECONDS * 1e9), wait_ns=2_000_000 + 100_000 * rank)
        due += STEP_SECONDS
        time.sleep(max(0.0, due - time.monotonic()))


@contextmanager
def _process(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _wait_for_ranks(port: int) -> None:
    for _ in range(100):
        if _get(http.client.HTTPConnection("127.0.0.1", port), "/api/v1/ranks").count(b'"run"') == RANKS:
            return
        time.sleep(0.2)
    raise SystemExit("the ranks do not appear")


def _get(client: http.client.HTTPConnection, path: str, headers: dict[str, str] | None = None) -> bytes:
    client.request("GET", path, headers=headers or {})
    return client.getresponse().read()


def _processor_share(pid: int, seconds: float, scrape_port: int | None) -> float:
    """Processor time over wall time; scraped as Prometheus does it, or left alone."""
    client = http.client.HTTPConnection("127.0.0.1", scrape_port) if scrape_port else None
    used, began = _processor_seconds(pid), time.monotonic()
    while (elapsed := time.monotonic() - began) < seconds:
        if client:
            _get(client, "/metrics", AS_PROMETHEUS)
        time.sleep(min(SCRAPE_EVERY_SECONDS, max(0.0, seconds - elapsed)))
    return (_processor_seconds(pid) - used) / (time.monotonic() - began)


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("no VmRSS")


def _scrape(port: int, pid: int) -> Times:
    client = http.client.HTTPConnection("127.0.0.1", port)
    times = []
    size = 0
    used = _processor_seconds(pid)
    for _ in range(SCRAPES):
        began = time.perf_counter()
        size = len(_get(client, "/metrics", AS_PROMETHEUS))
        times.append(time.perf_counter() - began)
        time.sleep(0.02)
    processor = (_processor_seconds(pid) - used) / SCRAPES
    return Times(statistics.median(times), statistics.quantiles(times, n=100)[98], processor, size)


if __name__ == "__main__":
    if sys.argv[1:2] == ["writer"]:
        _write(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main(float(sys.argv[1]) if sys.argv[1:] else 30.0)
