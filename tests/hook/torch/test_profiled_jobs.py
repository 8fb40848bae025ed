"""A profile of a real job: two ranks under torchrun, asked by the command, looked at by inspect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from straggler.cli.main import main
from straggler.sources.rings.living import read_living
from torch_jobs import ring_directory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

JOB = """
import os, sys, time
from pathlib import Path
import straggler.torch
straggler.torch.instrument()
import torch, torch.distributed as dist
from torch import nn

class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)
    def forward(self, x):
        time.sleep(0.03 if dist.get_rank() == 1 else 0.01)
        return self.linear(x)

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(Slow())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(65536, 64)), batch_size=8)
goes_on = torch.ones(1)
for (batch,) in batches:
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    goes_on.fill_(not Path(sys.argv[1]).exists())
    dist.all_reduce(goes_on, op=dist.ReduceOp.MIN)
    if not goes_on:
        break
dist.barrier()
os._exit(0)  # gloo's threads may abort an interpreter that ends in order
"""


def test_profile_of_a_real_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both ranks trace the same steps, whose all-reduce inspect finds; the job goes on and ends as it would have."""
    stop, output = tmp_path / "stop", tmp_path / "traces"
    output.mkdir()
    (tmp_path / "job.py").write_text(JOB)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    with ring_directory() as rings:
        environment = {
            **os.environ,
            "STRAGGLER_DIR": str(rings),
            "STRAGGLER_ALLOW_ANY_FILESYSTEM": "1",
            "STRAGGLER_RUN": "profiled",
            "OMP_NUM_THREADS": "1",
        }
        job = subprocess.Popen(
            [*command, str(tmp_path / "job.py"), str(stop)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            deadline = time.monotonic() + 120
            while len([one for one in read_living(rings) if len(one.snapshot.records) > 5]) < 2:
                assert job.poll() is None, job.communicate()[0]
                assert time.monotonic() < deadline
                time.sleep(0.2)
            code = main(
                ["profile", "profiled", "--rank", "1", "--ring-dir", str(rings), "--output", str(output), "--json"]
            )
            ranks = json.loads(capsys.readouterr().out)["ranks"]
        finally:
            stop.touch()
            output_of_job, _ = job.communicate(timeout=120)

    assert code == 0, ranks
    assert [(rank["rank"], rank["peer"], rank["steps"]) for rank in ranks] == [(1, False, 3), (0, True, 3)]
    assert ranks[0]["first_step"] == ranks[1]["first_step"]
    assert job.returncode == 0, output_of_job
    assert main(["inspect", "--json", *(rank["trace"] for rank in ranks)]) == 0
    traces = json.loads(capsys.readouterr().out)["traces"]
    first = ranks[0]["first_step"]
    for trace, rank in zip(traces, (1, 0), strict=True):
        assert (trace["rank"], trace["world_size"], trace["backend"]) == (rank, 2, "gloo")
        assert [step["number"] for step in trace["steps"]] == [first, first + 1, first + 2]
        for step in trace["steps"]:
            assert step["loading_seconds"] > 0
            assert step["forward_seconds"] > 0
            assert step["backward_seconds"] > 0
            assert step["communication_seconds"] > 0
            assert step["exposed_seconds"] <= step["communication_seconds"]
