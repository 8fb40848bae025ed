"""Pages of thousands of simulated nodes, served from one port: what a Prometheus of a large cluster scrapes."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from facts import gpu_facts, identity, rank_facts, recent, totals
from straggler.join.view import RankView
from straggler.metrics.book import MetricBook
from straggler.metrics.exposition import render
from straggler.metrics.families import add_gpus, add_ranks
from straggler.metrics.self_metrics import ExporterStatus, SourceStatus, add_exporter
from straggler.model.gpu import GpuKey
from straggler.model.reading import SourceState

SCRAPE_SECONDS = 15
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
                self._answer(page.replace("} 100.0\n", f"}} {steps}.0\n").encode())

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
