"""Accelerate, the real one: two ranks, with the adapter and without."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from framework_jobs import check, finished, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LAUNCH = (
    sys.executable,
    "-m",
    "accelerate.commands.launch",
    "--num_machines=1",
    "--mixed_precision=no",
    "--dynamo_backend=no",
)
JOB = Path(__file__).parent / "accelerate_job.py"


@pytest.mark.parametrize("how", ["adapter", "plain"])
def test_the_slow_rank_is_found(rings: Path, tmp_path: Path, how: str) -> None:
    """By either way into the process; the adapter alone says goodbye where training ends, the process does not."""
    run(rings, tmp_path, sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", JOB, how)

    assert finished(check(rings, batches=2)) == (how == "adapter")


@pytest.mark.parametrize("how", ["adapter", "plain"])
def test_the_slow_rank_is_found_under_its_launcher(rings: Path, tmp_path: Path, how: str) -> None:
    """``accelerate launch`` with two processes, as on two GPUs; the launcher, which imports torch, is no rank."""
    run(rings, tmp_path, *LAUNCH, "--multi_gpu", "--num_processes=2", "--main_process_port=0", JOB, how)

    assert finished(check(rings, batches=2)) == (how == "adapter")


def test_on_a_cpu_its_launcher_starts_one_process(rings: Path, tmp_path: Path) -> None:
    """With ``--cpu`` and without MPI that is one, whatever number was asked for, and so one ring."""
    run(rings, tmp_path, *LAUNCH, "--cpu", "--num_processes=2", JOB, "plain")

    assert len(list(rings.iterdir())) == 1
