"""``straggler demo`` as a user starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

COMMAND = (sys.executable, "-m", "straggler", "demo")
GIVE_UP_SECONDS = 270
KEPT_PACE = 1.2
"""How much longer than planned a healthy step may be before nothing can be said about the rest."""
TOO_BUSY = "others keep this machine too busy: its ranks want for processors before the fault begins"
PATIENT = ("--timeout", "180")
"""For those who wait for an alert: no claim about speed."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How it ended."""

    code: int
    output: str
    errors: str

    @property
    def result(self) -> dict[str, Any]:
        """What ``--json`` printed."""
        return dict(json.loads(self.output))

    def __str__(self) -> str:
        return f"exit code {self.code}\n--- standard output\n{self.output}\n--- standard error\n{self.errors}"


def run_demo(*flags: str, path: str | None = None) -> Finished:
    """Run it to its end.

    Args:
        flags: of the command.
        path: ``PATH``; by default ours.
    """
    environment = {**os.environ, **({"PATH": path} if path is not None else {})}
    done = subprocess.run(
        [*COMMAND, *flags], capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False, env=environment
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def judged_demo(*flags: str) -> Finished:
    """One with ``--json`` on a machine that let the healthy ranks keep their pace; skips the test where none does.

    Where processes wait for processors, all that comes is true of the machine, and nothing of it of the fault.
    """
    for _ in range(3):
        done = run_demo("--json", *flags)
        if done.code == 0:
            return done
        pace = done.result["step_seconds"]
        if kept_pace(pace["healthy"], pace["expected_healthy"]):
            return done
    pytest.skip(TOO_BUSY)


def kept_pace(healthy: float | None, expected: float) -> bool:
    """Whether healthy steps, of which there may have been none, took about as many seconds as they should."""
    return (healthy or 0.0) <= KEPT_PACE * expected


def descendants(pid: int) -> set[int]:
    """Process ids of all that a process started, directly or not."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(stat.parent.name)] = int(fields[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def workspace_of(pids: set[int]) -> Path:
    """The directory of a demonstration, from the command lines of its processes."""
    for pid in pids:
        for part in Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0"):
            for directory in (Path(part), *Path(part).parents):
                if directory.name.startswith("straggler-demo-"):
                    return directory
    raise AssertionError(f"none of {pids} works in a directory of a demonstration")


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has collected yet counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
