"""Every fault with what came of it, as a table. Exit code 1 if something did not hold.

``make faults``, or ``python tests/faults/table.py [NAME ...]``.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from faults import crowd, fuzz, logs, pages, passing, processes, storage
from faults.bench import Figure

MEMORY = Path("/dev/shm")


class Fault(NamedTuple):
    """One row."""

    name: str
    cause: Callable[[Path, float], Figure]
    """Takes an empty directory in memory, and how long the fault lasts."""
    seconds: float = 0.0
    quick_seconds: float | None = 0.0
    """The same for the tests; ``None``: only in the table."""


FAULTS = (
    Fault("ring directory full", storage.full),
    Fault("ring directory read-only", storage.read_only),
    Fault("ring directory removed", storage.removed),
    Fault("sidecar SIGKILL", processes.killed),
    Fault("sidecar SIGSTOP for a minute", processes.stopped, 60.0, 3.0),
    Fault("sidecar out of memory", processes.out_of_memory),
    Fault("dcgm-exporter hung", pages.hung),
    Fault("dcgm-exporter slow", pages.slow, quick_seconds=None),
    Fault("dcgm-exporter 500", pages.failing),
    Fault("dcgm-exporter garbage", pages.garbage, quick_seconds=None),
    Fault("dcgm-exporter 50 MB", pages.huge),
    Fault("Prometheus gone for an hour", passing.prometheus_gone, 3600.0, 30.0),
    Fault("clock jump", passing.clock_jump),
    Fault("10,000 stale rings", crowd.stale_rings, quick_seconds=None),
    Fault("fuzz: ring files", fuzz.rings, 30.0, 1.0),
    Fault("fuzz: push bodies", fuzz.pushes, 30.0, 1.0),
    Fault("fuzz: DCGM pages", fuzz.pages, 30.0, 1.0),
    Fault("fuzz: NCCL logs", logs.logs, 30.0, 1.0),
    Fault("fuzz: HTTP", fuzz.requests, 30.0, 1.0),
)


def play(fault: Fault, seconds: float) -> Figure:
    """Let one happen."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        return fault.cause(Path(name), seconds)


def main(names: list[str]) -> int:
    """Print the table."""
    failed = 0
    for fault in FAULTS:
        if names and fault.name not in names:
            continue
        began = time.monotonic()
        try:
            figure = play(fault, fault.seconds)
        except Exception as error:  # noqa: BLE001 - the other faults are tried all the same
            figure = Figure(False, f"{type(error).__name__}: {error}")
        word = {True: "held", False: "FAILED", None: "skipped"}[figure.held]
        failed += figure.held is False
        print(f"{word:<8}{fault.name:<31}{figure.text}  [{time.monotonic() - began:.0f} s]", flush=True)  # noqa: T201 - a table is printed
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
