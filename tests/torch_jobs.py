"""Runs ``training_job.py`` under a real torchrun beside a real sidecar, and reads the page when a case has ended.

Each case is a run of its own on the page. When a rank has ended one, it says so in a file and waits; once the page has
every step of all ranks, it is kept and the job goes on. So nothing depends on how fast the machine is.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from demo_command import is_gone
from sidecars import ServedSidecar, served

SHARED_MEMORY = Path("/dev/shm")
RANKS = 4
SLOW_RANK = 2
JOB = Path(__file__).parent / "hook" / "torch" / "training_job.py"
_ROOM = 1 << 29
"""Bytes: more than all rings of the longest job, 1.3 MB for each case and rank."""
_SECONDS = 600
"""Ten times what the longest case takes on a machine of its own, torch's start included."""
_OUTPUT = "output"
"""A file, since a pipe that nobody reads would hold the job up."""
_SERIES = re.compile(r"^(\w+)\{([^}]*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@contextlib.contextmanager
def ring_directory() -> Iterator[Path]:
    """A directory for rings, on tmpfs where there is one with room."""
    has_room = SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > _ROOM
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if has_room else None) as path:
        yield Path(path)


class Page:
    """What a sidecar's page shows of one run.

    Args:
        text: the whole page.
        run: whose series are wanted.
    """

    def __init__(self, text: str, run: str) -> None:
        self.series: dict[str, list[tuple[dict[str, str], float]]] = {}
        """By name: labels and value."""
        for name, labels, value in _SERIES.findall(text):
            known = dict(_LABEL.findall(labels))
            if known.get("run") == run:
                self.series.setdefault(name, []).append((known, float(value)))

    def values(self, name: str) -> list[float]:
        """A metric of each rank; length ``RANKS``, by rank; NaN, which no page has, where the page has nothing."""
        found = {int(labels["rank"]): value for labels, value in self.series.get(name, ())}
        return [found.get(rank, math.nan) for rank in range(RANKS)]

    def labels(self, label: str, name: str = "training_rank_info") -> list[str]:
        """A label of each rank; length ``RANKS``, by rank; empty where the page has none."""
        found = {int(labels["rank"]): labels.get(label, "") for labels, _ in self.series.get(name, ())}
        return [found.get(rank, "") for rank in range(RANKS)]


class Seen(NamedTuple):
    """What was seen of a case."""

    ranks: list[dict[str, Any]]
    """What each rank says of its own ring and of its delays; length ``RANKS``, by rank."""
    page: Page


class Job:
    """A job that was started.

    Args:
        process: torchrun.
        out: where the ranks say what they have, and wait for what they may.
    """

    def __init__(self, process: subprocess.Popen[bytes], out: Path) -> None:
        self.process = process
        self._out = out

    def ended(self, number: int) -> list[dict[str, Any]]:
        """Wait for the end of a case; what each rank says, by rank. The ranks wait until it is ``release``d."""
        files = [self._out / f"{number}.rank{rank}.json" for rank in range(RANKS)]
        self.wait(lambda: all(file.exists() for file in files), f"case {number} to end")
        return [json.loads(file.read_text()) for file in files]

    def release(self, number: int) -> None:
        """Let the job go on after a case."""
        (self._out / f"{number}.seen").touch()

    def wait(self, is_so: Callable[[], bool], what: str, instead: Callable[[], str] = str) -> None:
        """Wait while the job runs; fails with what it printed if that ends, or if it takes too long.

        Args:
            is_so: whether it has come.
            what: we wait for.
            instead: what there is so far, for the failure's text.
        """
        deadline = time.monotonic() + _SECONDS
        while not is_so():
            code = self.process.poll()
            assert code is None, self._story(f"torchrun exited with {code} instead of {what}. {instead()}")
            assert time.monotonic() < deadline, self._story(f"waited {_SECONDS} s for {what}. {instead()}")
            time.sleep(0.05)

    def succeed(self) -> None:
        """Wait for the end of the job, which has to be a good one."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_SECONDS)
        code = self.process.poll()
        assert code == 0, self._story(f"exit code of torchrun after the last case: {code}")

    def _story(self, why: str) -> str:
        return f"{why}\nThe last that the job printed:\n{(self._out / _OUTPUT).read_text(errors='replace')[-8000:]}"


@contextlib.contextmanager
def running(out: Path, rings: Path, cases: Sequence[str], **environment: str) -> Iterator[Job]:
    """A job that has been started, and is gone at the end with all its ranks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    out.mkdir(exist_ok=True)
    with (out / _OUTPUT).open("wb") as output:
        process = subprocess.Popen(
            [*command, str(JOB), str(out), *cases],
            env={
                **{key: value for key, value in os.environ.items() if not key.startswith("STRAGGLER_")},
                "STRAGGLER_DIR": str(rings),
                "STRAGGLER_ALLOW_ANY_FILESYSTEM": "1",
                "OMP_NUM_THREADS": "1",
                "RUNNER": str(os.getpid()),
                **environment,
            },
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Job(process, out)
    finally:
        _end(process)


def _end(torchrun: subprocess.Popen[bytes]) -> None:
    """End a job. Each rank is in a session of its own, so only torchrun, or its list of children, reaches them."""
    children = Path(f"/proc/{torchrun.pid}/task/{torchrun.pid}/children")
    ranks = list(map(int, children.read_text().split())) if torchrun.poll() is None else []
    for process in (torchrun.pid, *ranks):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    torchrun.wait()
    deadline = time.monotonic() + 60
    while not all(map(is_gone, ranks)) and time.monotonic() < deadline:
        time.sleep(0.02)


def results(out: Path, cases: Sequence[str], **environment: str) -> dict[str, Seen]:
    """Run the cases one after the other in one job, and look at each when it has ended."""
    found = {}
    with (
        ring_directory() as rings,
        served("--ring-dir", str(rings)) as sidecar,
        running(out, rings, cases, **environment) as job,
    ):
        for number, case in enumerate(cases):
            ranks = job.ended(number)
            found[case] = Seen(ranks, _page(job, sidecar, case, [rank["all_steps"] for rank in ranks]))
            job.release(number)
        job.succeed()
    return found


def _page(job: Job, sidecar: ServedSidecar, run: str, steps: list[int]) -> Page:
    """The first page that has all the steps of a run.

    Args:
        job: runs, and waits for us.
        sidecar: whose page.
        run: which.
        steps: how many each rank has in its ring; length ``RANKS``, by rank.
    """
    counted = "training_step_seconds_count"
    page = Page("", run)

    def is_whole() -> bool:
        nonlocal page
        page = Page(sidecar.metrics(), run)
        return page.values(counted) == steps

    job.wait(
        is_whole,
        f"{steps} steps of {run!r} on the sidecar's page",
        lambda: f"It has {page.values(counted)}; the sidecar's log:\n{sidecar.log[-2000:]}",
    )
    return page
