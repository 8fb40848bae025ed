"""Runs small training scripts with the real hook, each in a process of its own, and reads what they left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from straggler.errors import WireError
from straggler.sources.rings.snapshot import Snapshot, read_snapshot

PACKAGE_ROOT = Path(__file__).resolve().parents[1] / "exporter"

PRELUDE = """
import logging, os, sys, time
from straggler import StepTimer

timer = StepTimer(run="r", rank=0, world_size=2, allow_any_filesystem=True)

def steps(count, timer=timer):
    for _ in range(count):
        with timer.step(tokens=10):
            with timer.phase("forward"):
                pass
            with timer.phase("wait"):
                pass
"""


@dataclass(frozen=True)
class Trained:
    """What a training script did."""

    code: int
    """Exit code; negative for a signal."""
    out: str
    err: str
    rings: tuple[Snapshot, ...]
    """What can be read in the ring directory, oldest first; a file that is no ring (any more) is left out."""

    @property
    def reports(self) -> list[str]:
        """Lines that were logged: by the hook, since these scripts log nothing."""
        return self.err.splitlines()


def train(
    body: str,
    directory: Path,
    *,
    prelude: str = PRELUDE,
    environment: Mapping[str, str] | None = None,
    flags: tuple[str, ...] = ("-W", "error"),
    python: str = sys.executable,
    timeout: float = 100.0,
) -> Trained:
    """Run a script to its end.

    Args:
        body: what comes after the prelude.
        directory: becomes ``STRAGGLER_DIR``.
        prelude: what comes before it.
        environment: more variables.
        flags: for the interpreter.
        python: the interpreter.
        timeout: seconds.
    """
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("STRAGGLER", "PYTHON"))}
    done = subprocess.run(
        [python, *flags, "-c", prelude + body],
        env={**keep, "PYTHONPATH": str(PACKAGE_ROOT), "STRAGGLER_DIR": str(directory), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    found = (
        sorted(directory.rglob("*.ring"), key=lambda path: path.stat().st_mtime_ns) if os.path.isdir(directory) else []  # noqa: PTH112 - pathlib raises on a name that is too long
    )
    return Trained(done.returncode, done.stdout, done.stderr, tuple(ring for path in found if (ring := _ring(path))))


def _ring(path: Path) -> Snapshot | None:
    try:
        return read_snapshot(path)
    except WireError:
        return None
