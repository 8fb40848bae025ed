"""The sidecar dies or stops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from faults.bench import Figure, memory_limit, memory_mb, sidecar, steps_seen, training, until
from faults.pages import Huge
from straggler.simulate.local_http import LocalServer


def killed(place: Path, _: float) -> Figure:
    """SIGKILL, as from the kernel out of memory, and later a new sidecar: exact, though it saw none of that."""
    rings = _made(place)
    with training(rings) as process:
        with sidecar(rings) as first:
            until(lambda: bool(steps_seen(first.metrics())))
            os.kill(first.pid, signal.SIGKILL)
        time.sleep(3)
        with sidecar(rings) as second:
            done = process.end()
            exact = until(lambda: steps_seen(second.metrics()) == done.steps)
            seen = steps_seen(second.metrics())
    return Figure(done.code == 0 and exact, f"{done.text}; new sidecar counts {seen:.0f}")


def stopped(place: Path, seconds: float) -> Figure:
    """SIGSTOP, as long as the ring holds and longer: nothing is lost from the totals."""
    rings = _made(place)
    with training(rings, pace=0.005) as process, sidecar(rings) as reader:
        until(lambda: bool(steps_seen(reader.metrics())))
        os.kill(reader.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(reader.pid, signal.SIGCONT)
        done = process.end()
        exact = until(lambda: steps_seen(reader.metrics()) == done.steps)
        seen = steps_seen(reader.metrics())
    return Figure(done.code == 0 and exact, f"stopped {seconds:.0f} s; {done.text}; sidecar counts {seen:.0f}")


def out_of_memory(place: Path, _: float) -> Figure:
    """A limit of 96 MB is enough, with a page of 50 MB too; one of 20 MB gets the sidecar killed, and it alone."""
    rings = _made(place)
    server = LocalServer(Huge)
    try:
        with training(rings) as process:
            with memory_limit(96) as prefix:
                if not prefix:
                    return Figure(None, "no control group for memory may be made here")
                flags = ("--dcgm-url", f"{server.url}/metrics", "--nvml-use", "never")
                with sidecar(rings, *flags, prefix=prefix) as reader:
                    pages = [reader.metrics() for _ in range(5)]
                    peak = memory_mb(reader.pid, "VmHWM")
            with memory_limit(20) as prefix:
                command = [sys.executable, "-m", "straggler", "serve", "--listen", "127.0.0.1:0", "--dcgm-url", "none"]
                code = subprocess.run([*prefix, *command, "--ring-dir", str(rings)], check=False, timeout=90).returncode
            done = process.end()
    finally:
        server.close()
    held = done.code == 0 and bool(steps_seen(pages[-1])) and code == -signal.SIGKILL
    return Figure(held, f"{done.text}; lives within 96 MB (peak {peak:.0f}), killed at 20 ({code})")


def _made(place: Path) -> Path:
    rings = place / "rings"
    rings.mkdir()
    return rings
