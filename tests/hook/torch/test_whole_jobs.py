"""Whole jobs that end, well or badly: as they would without us, and the ring tells how."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from straggler.wire import layout
from straggler.wire.decode import decode_live
from torch_jobs import ring_directory, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

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
    with ring_directory() as rings, running(tmp_path, rings, ["ddp:plain:none"]) as job:
        job.ended(0)
        pid = job.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(int(children[1]), signal.SIGKILL)
        assert job.process.wait(600) == 1
