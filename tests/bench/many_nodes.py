"""Pages of thousands of simulated nodes, served from one port: what a Prometheus of a large cluster scrapes."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from facts import gpu_facts, identity, rank_facts, recent, totals
from straggler.join.view import RankView
from straggler.metrics.book import MetricBook
from straggler.metrics.exposition import render
from straggler.metrics.families import add_gpus, add_network, add_ranks
from straggler.metrics.self_metrics import ExporterStatus, SourceStatus, add_exporter
from straggler.model.gpu import GpuFacts, GpuKey
from straggler.model.host import RankHost
from straggler.model.nccl import NcclFacts
from straggler.model.network import PortFacts, PortKey
from straggler.model.rank import RankKey
from straggler.model.reading import SourceState
from straggler.wire.layout import PHASES

SCRAPE_SECONDS = 15
PER_NODE = 8
PER_RUN = 1024
_FIRST_RANK = 70_000_000
"""Stands for a rank's number on the template page: no other text looks like it."""
PORTS = 4
_HOST = ("cpu_user_seconds_total", "cpu_system_seconds_total", "run_delay_seconds_total", "io_wait_seconds_total")
_ERRORS = ("symbol_errors_total", "link_downs_total", "link_recoveries_total", "transmit_discards_total")
_GPU_VALUES = {
    **dict.fromkeys(("tensor_active_ratio", "sm_occupancy_ratio", "dram_active_ratio"), 0.4),
    **dict.fromkeys(("temperature_celsius", "power_watts", "energy_joules_total"), 60.0),
    **dict.fromkeys(("memory_used_bytes", "memory_free_bytes", "nvlink_bytes_per_second"), 4e10),
    **dict.fromkeys(("ecc_double_bit_errors_total", "xid_last", "row_remap_failed", "row_remap_pending"), 0.0),
    **dict.fromkeys(("pcie_receive_bytes_per_second", "pcie_transmit_bytes_per_second"), 2e9),
    "utilization_ratio": 0.97,
    "sm_active_ratio": 0.6,
    "pcie_link_generation": 5.0,
    "pcie_link_width": 16.0,
    "pcie_link_width_max": 16.0,
}


def template(*, slow: bool) -> str:
    """The page of one node with all that it can have; its first rank may be slow, for heat.

    Counters that read 100 will grow by a second a second, those that read 200 twice as fast.
    """
    views, gpus = [], []
    ports = tuple(_port(number) for number in range(PORTS))
    for local in range(PER_NODE):
        afflicted = slow and local == 0
        gpu = _gpu(local, hot=afflicted)
        gpus.append(gpu)
        rank = identity(_FIRST_RANK + local, run="RUN", node="NODE", world_size=PER_RUN, local_rank=local)
        facts = rank_facts(
            identity=rank,
            recent=recent(0.047 if afflicted else 0.034, 0.057),
            totals=totals(
                step_seconds=100.0,
                own_seconds=200.0 if afflicted else 100.0,
                wait_seconds=100.0,
                phase_seconds=dict.fromkeys(PHASES, 100.0) | {"data": 0.0, "h2d": 0.0},
                arrivals=200,
                tokens=100,
                samples=100,
                flops=100.0,
            ),
        )
        host = RankHost(
            key=RankKey("RUN", rank.rank),
            values=dict.fromkeys(_HOST, 0.0),
            pressure={(what, share): 0.0 for what in ("cpu", "memory", "io") for share in ("some", "full")},
        )
        nccl = NcclFacts(host="NODE", pid=local, version="2.27.5", channels={"ib": 16, "p2p": 32}, gdr_ratio=1.0)
        views.append(
            RankView(rank=facts, gpu=gpu, evidence="uuid", unmatched_reason="", host=host, nccl=nccl, ports=ports)
        )
    book = MetricBook()
    add_ranks(book, views)
    add_gpus(book, gpus)
    add_network(book, ports, "NODE")
    sources = tuple(SourceStatus(source=name, state=SourceState.OK) for name in ("rings", "dcgm", "nvml", "infiniband"))
    add_exporter(book, ExporterStatus(sources=sources, hang_after_seconds=120.0), views)
    return render(book.collect())[0].decode()


def _gpu(local: int, *, hot: bool) -> GpuFacts:
    held = dict.fromkeys(("sw_power_cap", "sw_thermal", "hw_thermal", "hw_power_brake"), 0.0)
    return gpu_facts(
        local,
        key=GpuKey(f"GPU-{_FIRST_RANK + local}"),
        values=_GPU_VALUES | {"sm_clock_hertz": 1.2e9 if hot else 1.9e9},
        clocks_event_seconds=held | {"hw_thermal": 100.0 if hot else 0.0},
        clocks_event_reasons={reason: float(hot and reason == "hw_thermal") for reason in held},
    )


def _port(number: int) -> PortFacts:
    return PortFacts(
        key=PortKey(f"mlx5_{number}", 1),
        up=True,
        lost=False,
        rate_bytes_per_second=50e9,
        best_rate_bytes_per_second=50e9,
        counters=dict.fromkeys(("transmit_bytes_total", "receive_bytes_total"), 100.0) | dict.fromkeys(_ERRORS, 0.0),
        state="ACTIVE",
        physical_state="LinkUp",
    )


class Nodes:
    """Serves the pages of many nodes; counters and steps grow with each scrape."""

    def __init__(self) -> None:
        pages = {slow: template(slow=slow) for slow in (False, True)}
        self.series_per_rank = sum(not line.startswith("#") for line in pages[False].splitlines()) / PER_NODE

        @cache
        def page_of(node: int) -> str:
            run, place = divmod(node * PER_NODE, PER_RUN)
            page = pages[place == 0].replace("RUN", f"run-{run}").replace("NODE", f"node-{node}")
            for local in range(PER_NODE):
                token = str(_FIRST_RANK + local)
                page = page.replace(f"GPU-{token}", f"GPU-{node}-{local}").replace(token, str(place + local))
            return page

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                now = int(time.time())
                page = page_of(int(self.path.rsplit("/", 1)[1]))
                page = page.replace("} 100.0\n", f"}} {now}.0\n").replace("} 200.0\n", f"}} {2 * now}.0\n")
                self._answer(page.encode())

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self._answer(b"")

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def handle(self) -> None:
                with suppress(ConnectionError):  # a server that is stopped hangs up
                    super().handle()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"127.0.0.1:{self._server.server_port}"

    def scrape_config(self, directory: Path, count: int) -> dict[str, Any]:
        """A configuration that scrapes so many nodes, with the list of them as a file in the directory."""
        targets = [
            {"targets": [self.address], "labels": {"__metrics_path__": f"/{node}", "instance": f"node-{node}:10110"}}
            for node in range(count)
        ]
        (directory / "targets.json").write_text(json.dumps(targets), encoding="utf-8")
        return {
            "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "scrape_timeout": f"{SCRAPE_SECONDS}s"},
            "scrape_configs": [
                {"job_name": "straggler-exporter", "file_sd_configs": [{"files": [str(directory / "targets.json")]}]}
            ],
        }

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
