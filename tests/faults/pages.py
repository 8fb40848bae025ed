"""dcgm-exporter fails, each way it can."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from faults.bench import Figure, memory_mb, sidecar, steps_seen, training, until
from straggler.simulate.local_http import LocalHandler, LocalServer

_TIMEOUT = {"timeout": 2.0}
"""Of a scrape, in seconds, where running out of it is the fault."""
_LONG_ENOUGH = 50.0


class _Page(LocalHandler):
    length: ClassVar[int | None] = None

    def do_GET(self) -> None:  # noqa: N802 - http.server calls it so
        """Answer."""
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        if self.length is not None:
            self.send_header("Content-Length", str(self.length))
        self.end_headers()
        try:
            self.write()
        except OSError:
            self.close_connection = True

    def write(self) -> None:
        """The body."""


class Hung(_Page):
    """Accepts and never answers."""

    def do_GET(self) -> None:  # noqa: N802 - http.server calls it so
        """Wait."""
        time.sleep(30)


class Dripping(_Page):
    """A byte now and then."""

    def write(self) -> None:
        """A hundred seconds for a line."""
        for _ in range(60):
            self.wfile.write(b"#")
            time.sleep(0.5)


class Failing(_Page):
    """500."""

    def do_GET(self) -> None:  # noqa: N802 - http.server calls it so
        """Fail."""
        self.answer(500, "panic: runtime error")


class Garbage(_Page):
    """Bytes."""

    def write(self) -> None:
        """64 KB of them."""
        self.wfile.write(random.Random(1).randbytes(65_536))


class Huge(_Page):
    """50 MB of well-formed lines."""

    def write(self) -> None:
        """About a million series."""
        line = b'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",Hostname="n"} 50\n' * 1000
        for _ in range(50_000_000 // len(line)):
            self.wfile.write(line)


def _fault(handler: type[LocalHandler], reason: str) -> Callable[[Path, float], Figure]:
    announced = str(_TIMEOUT.get(reason, _LONG_ENOUGH))

    def fault(place: Path, _: float) -> Figure:
        rings = place / "rings"
        rings.mkdir()
        server = LocalServer(handler)
        try:
            with (
                training(rings) as process,
                sidecar(rings, "--dcgm-url", f"{server.url}/metrics", "--nvml-use", "never") as reader,
            ):
                until(lambda: bool(steps_seen(reader.metrics(X_Prometheus_Scrape_Timeout_Seconds=announced))))
                times, page = [], ""
                for _ in range(5):
                    began = time.monotonic()
                    page = reader.metrics(X_Prometheus_Scrape_Timeout_Seconds=announced)
                    times.append(time.monotonic() - began)
                failed = 'straggler_exporter_source_state{source="dcgm",state="failed"} 1.0' in page
                told = re.findall(r'refused_total\{reason="(\w+)",source="dcgm"\}', page)
                ranks = steps_seen(page)
                invented = "training_gpu_" in page or "\ngpu_" in page
                peak = memory_mb(reader.pid, "VmHWM")
                done = process.end()
        finally:
            server.close()
        held = failed and bool(ranks) and not invented and done.code == 0 and reason in told
        text = f"ranks on the page after at most {max(times):.2f} s; dcgm failed ({', '.join(told)}); {peak:.0f} MB"
        return Figure(held, text)

    return fault


hung = _fault(Hung, "timeout")
slow = _fault(Dripping, "timeout")
failing = _fault(Failing, "http_status")
garbage = _fault(Garbage, "not_metrics")
huge = _fault(Huge, "too_large")
