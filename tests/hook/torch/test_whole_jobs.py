"""Whole jobs: from four training processes to the sidecar's page, and jobs that end badly."""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from sidecars import ServedSidecar, served
from straggler.wire import layout
from straggler.wire.decode import decode_live
from torch_cases import DELAYS, lacks
from torch_jobs import RANKS, SLOW_RANK, ring_directory, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

FSDP2 = "fsdp2:plain:last_backward"
_VALUE = re.compile(r'^(training_\w+)\{([^}]*rank="(\d)"[^}]*)\} (\S+)$', re.MULTILINE)
ENDS = {
    "returns": "",
    "exits with 3": "import sys; sys.exit(3)",
    "leaves by os._exit": "import os; os._exit(4)",
    "raises": "raise RuntimeError('the user')",
    "is killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
}
TRAINING = """
import torch
from torch import nn
if {instrumented}:
    import straggler.torch
    straggler.torch.instrument()
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
{end}
"""


def _pages(sidecar: ServedSidecar, job: subprocess.Popen[str]) -> Iterator[str]:
    """Pages while the job runs, once each rank has a window of 32 steps, which the slowest have too; at least one."""
    deadline = time.monotonic() + 600
    enough = False
    while job.poll() is None and time.monotonic() < deadline:
        page = sidecar.metrics()
        counts = [float(value) for name, _, _, value in _VALUE.findall(page) if name == "training_recent_steps"]
        if len(counts) == RANKS and min(counts) >= 32:
            enough = True
            yield page
        time.sleep(0.2)
    assert enough, "the job ended, or time was up, before there were enough steps"


def values(page: str, name: str) -> list[float]:
    """A metric's value on each rank; length ``RANKS``, by rank."""
    found = {int(rank): float(value) for metric, _, rank, value in _VALUE.findall(page) if metric == name}
    return [found[rank] for rank in range(RANKS)]


def own_gap(page: str) -> float:
    """By how much the slow rank's median own time exceeds that of the others."""
    own = values(page, "training_recent_own_median_seconds")
    return own[SLOW_RANK] - statistics.median(own[:SLOW_RANK] + own[SLOW_RANK + 1 :])


def wall_gap(page: str) -> float:
    """By how much the ranks' mean steps differ."""
    steps = values(page, "training_recent_step_seconds")
    return max(steps) - min(steps)


def _is_right(page: str, delay: float) -> bool:
    return own_gap(page) == pytest.approx(delay, rel=0.1) and wall_gap(page) < delay / 5


def _first_right_page(out: Path, case: str, delay: float) -> str:
    """The last page of a job if none is right."""
    page = ""
    with (
        ring_directory() as rings,
        served("--ring-dir", str(rings)) as sidecar,
        running(out, rings, [case] * 12, DELAY=str(delay)) as job,
    ):
        for page in _pages(sidecar, job):
            if _is_right(page, delay):
                break
    return page


@pytest.mark.parametrize(
    "case",
    [
        "ddp:plain:forward",
        "ddp:batchnorm:data",
        "pipeline:plain:forward",
        pytest.param(FSDP2, marks=pytest.mark.skipif(bool(lacks(FSDP2)), reason=lacks(FSDP2))),
    ],
)
def test_the_page_shows_who_is_slow(tmp_path: Path, case: str) -> None:
    """Torchrun, hook, ring, sidecar, page: own time exceeds the peers' by the delay, and the step shows nothing.

    The window slides; on a shared machine it is given the time of the job to be right, and then longer delays.
    """
    page, delay = "", 0.0
    for delay in DELAYS:
        page = _first_right_page(tmp_path, case, delay)
        if _is_right(page, delay):
            break

    assert own_gap(page) == pytest.approx(delay, rel=0.1)
    assert wall_gap(page) < delay / 5
    groups = {int(rank): labels for metric, labels, rank, _ in _VALUE.findall(page) if metric == "training_world_size"}
    has_stages = case.startswith("pipeline") and hasattr(torch.distributed, "device_mesh")  # torch 2.1 has no meshes
    assert ('peer_group="1"' in groups[3]) == has_stages


@pytest.mark.parametrize("end", ENDS)
def test_a_job_ends_as_it_would_without_us(end: str) -> None:
    """The exit code is the job's own, and the ring tells a finished rank from one that raised or vanished."""
    with ring_directory() as rings:
        environment = {
            **os.environ,
            "STRAGGLER_DIR": str(rings),
            "STRAGGLER_ALLOW_ANY_FILESYSTEM": "1",
            "OMP_NUM_THREADS": "1",
        }
        codes = [
            subprocess.run(
                [sys.executable, "-c", TRAINING.format(instrumented=instrumented, end=ENDS[end])],
                env=environment,
                capture_output=True,
                check=False,
            ).returncode
            for instrumented in (False, True)
        ]
        ring = next(rings.iterdir()).read_bytes()

    assert codes[0] == codes[1]
    status = decode_live(ring[layout.LIVE_OFFSET : layout.LIVE_OFFSET + layout.LIVE_BYTES]).status
    assert status == {
        "returns": layout.STATUS_FINISHED,
        "exits with 3": layout.STATUS_FINISHED,
        "raises": layout.STATUS_EXCEPTION,
    }.get(end, layout.STATUS_RUNNING)


def test_a_killed_rank_ends_the_job_as_torchrun_ends_it(tmp_path: Path) -> None:
    """SIGKILL of one rank: torchrun ends the others and fails, with us in all of them."""
    release = tmp_path / "never"
    with ring_directory() as rings, running(tmp_path, rings, ["ddp:plain:none"], HOLD=str(release)) as job:
        deadline = time.monotonic() + 600
        while not (tmp_path / "rank1.json").exists():
            assert job.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        os.kill(int(children[1]), signal.SIGKILL)
        assert job.wait(600) == 1
