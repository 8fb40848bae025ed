"""What the faults are tried on: a training process with the real hook, and a real sidecar."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sidecars import ServedSidecar, served

_TRAINING = """
import json, select, sys, time
from straggler import StepTimer
pace = float(sys.argv[1])
timer = StepTimer(run="run", rank=int(sys.argv[2]), world_size=8, allow_any_filesystem=True)
costs = []
print("ready", flush=True)
while not (costs and len(costs) % 10 == 0 and select.select([sys.stdin], [], [], 0)[0]):
    began = time.perf_counter_ns()
    with timer.step():
        with timer.phase("forward"):
            pass
    costs.append(time.perf_counter_ns() - began)
    time.sleep(pace)
timer.close()
costs.sort()
print(json.dumps({"steps": len(costs), "median_us": costs[len(costs) // 2] / 1e3, "worst_us": costs[-1] / 1e3}))
"""


class Figure(NamedTuple):
    """What came of a fault."""

    held: bool | None
    """Whether everything was as it must be; ``None``: could not be tried here."""
    text: str


class Trained(NamedTuple):
    """What a training process says at its end."""

    code: int
    steps: int
    median_us: float
    """What the hook cost in the middle step."""
    worst_us: float
    reports: int
    """Lines that the hook logged."""

    @property
    def text(self) -> str:
        """For a figure."""
        return f"{self.steps} steps, hook {self.median_us:.1f} us (median)"


class Training:
    """One rank that steps until it is told to end, and ten times at least."""

    def __init__(self, rings: Path, *, rank: int = 0, pace: float = 0.01) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _TRAINING, str(pace), str(rank)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "STRAGGLER_DIR": str(rings)},
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", self._process.communicate()[1]

    def end(self) -> Trained:
        """Let it finish."""
        out, err = self._process.communicate("end\n", timeout=60)
        said: dict[str, Any] = json.loads(out or '{"steps": 0, "median_us": 0, "worst_us": 0}')
        return Trained(self._process.returncode, **said, reports=len(err.splitlines()))

    def close(self) -> None:
        """Make sure that it is gone."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@contextlib.contextmanager
def training(rings: Path, **arguments: Any) -> Iterator[Training]:
    """A rank that is gone afterwards."""
    process = Training(rings, **arguments)
    try:
        yield process
    finally:
        process.close()


def sidecar(rings: Path, *flags: str, prefix: Sequence[str] = ()) -> contextlib.AbstractContextManager[ServedSidecar]:
    """A sidecar over these rings."""
    flags = flags if "--dcgm-url" in flags else ("--dcgm-url", "none", *flags)
    return served("--ring-dir", str(rings), *flags, prefix=prefix)


def value(page: str, series: str) -> float | None:
    """The value of the first series that begins so; ``None`` if there is none."""
    found = re.search(rf"^{re.escape(series)}\S* (\S+)$", page, re.MULTILINE)
    return float(found[1]) if found else None


def steps_seen(page: str) -> float | None:
    """The count of steps of the first rank."""
    return value(page, "training_step_seconds_count")


def until(ask: Callable[[], bool], seconds: float = 100.0) -> bool:
    """Ask until it is so, and tell whether it became so in time."""
    deadline = time.monotonic() + seconds
    while not ask():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def memory_mb(pid: int, key: str = "VmRSS") -> float:
    """Of a process, in MB; ``VmHWM``: the most that it ever had."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found = re.search(rf"^{key}:\s+(\d+) kB$", text, re.MULTILINE)
    assert found
    return int(found[1]) / 1024


def descriptors(pid: int) -> int:
    """How many it has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@contextlib.contextmanager
def tmpfs(directory: Path, options: str) -> Iterator[bool]:
    """Mount a tmpfs there; gives whether that is allowed."""
    directory.mkdir(exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", directory], capture_output=True, check=False)
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "-l", directory], check=False)


@contextlib.contextmanager
def memory_limit(megabytes: int) -> Iterator[tuple[str, ...]]:
    """Words before a command that may then have so much memory, by a control group; none where that is not allowed."""
    for base, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(base) / f"straggler-faults-{os.getpid()}"
        if not (Path(base) / "cgroup.procs").exists():
            continue
        try:
            group.mkdir()
            (group / limit).write_text(str(megabytes << 20), encoding="utf-8")
        except OSError:
            with contextlib.suppress(OSError):
                group.rmdir()
            continue
        try:
            yield ("sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "sh")
        finally:
            _remove_group(group)
        return
    yield ()


def _remove_group(group: Path) -> None:
    """Wait until the last process has left, and remove it."""
    until(lambda: not (group / "cgroup.procs").read_text(encoding="utf-8"), 5)
    group.rmdir()
