"""A profile of a real job: two ranks under torchrun, asked by the command, looked at by inspect."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from typing import Any, NamedTuple

import pytest

from sidecars import ServedSidecar
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


STEP_TOKENS = 8 * 64
FLOPS_PER_TOKEN = 100
PARAMETER_BYTES = 4 * (64 * 64 + 64)


class Seen(NamedTuple):
    """What was seen of one job."""

    code: int
    """Exit code of ``straggler profile``."""
    ranks: list[dict[str, Any]]
    """What it said of each rank."""
    traces: list[dict[str, Any]]
    """What ``straggler inspect`` says of their traces."""
    page: str
    """Of the sidecar, after the profile."""
    job_code: int
    job_output: str

    def values(self, name: str) -> list[float]:
        """A metric of both ranks, by rank."""
        found = re.findall(rf'^{name}{{[^}}]*rank="(\d)"[^}}]*}} (\S+)$', self.page, re.MULTILINE)
        return [float(value) for _, value in sorted(found)]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """A job is started, measured by a sidecar, profiled, looked at, and ended."""
    root = tmp_path_factory.mktemp("profiled")
    stop, output = root / "stop", root / "traces"
    output.mkdir()
    (root / "job.py").write_text(JOB)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    with ring_directory() as rings:
        environment = {
            **os.environ,
            "STRAGGLER_DIR": str(rings),
            "STRAGGLER_ALLOW_ANY_FILESYSTEM": "1",
            "STRAGGLER_RUN": "profiled",
            "STRAGGLER_TOKENS": "0",
            "STRAGGLER_FLOPS_PER_TOKEN": str(FLOPS_PER_TOKEN),
            "OMP_NUM_THREADS": "1",
        }
        sidecar = ServedSidecar("--ring-dir", str(rings))
        job = subprocess.Popen(
            [*command, str(root / "job.py"), str(stop)],
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
            code, told = straggler(
                "profile", "profiled", "--rank", "1", "--ring-dir", str(rings), "--output", str(output)
            )
            time.sleep(2)  # some steps after the profile
            page = sidecar.metrics()
        finally:
            stop.touch()
            job_output, _ = job.communicate(timeout=120)
            sidecar.close()
    _, inspected = straggler("inspect", *(rank["trace"] for rank in told["ranks"] if rank["trace"]))
    return Seen(code, told["ranks"], inspected["traces"], page, job.returncode, job_output)


def straggler(*arguments: str) -> tuple[int, Any]:
    """Run a command with ``--json``: exit code and document."""
    done = subprocess.run(
        [sys.executable, "-m", "straggler", *arguments, "--json"], stdout=subprocess.PIPE, check=False, text=True
    )
    return done.returncode, json.loads(done.stdout)


def test_both_ranks_trace_the_same_steps(seen: Seen) -> None:
    """The slow rank and its peer, three steps each, beginning with the same one."""
    assert seen.code == 0, seen.ranks
    assert [(rank["rank"], rank["peer"], rank["steps"]) for rank in seen.ranks] == [(1, False, 3), (0, True, 3)]
    assert seen.ranks[0]["first_step"] == seen.ranks[1]["first_step"]


def test_the_job_ends_as_it_would_have(seen: Seen) -> None:
    """It goes on after the profile, and its exit code is its own."""
    assert seen.job_code == 0, seen.job_output


def test_the_traces_say_where_time_went(seen: Seen) -> None:
    """Loading, forward, backward and the all-reduce of each step, by the numbers that the ring has."""
    first = seen.ranks[0]["first_step"]
    for trace, rank in zip(seen.traces, (1, 0), strict=True):
        assert (trace["rank"], trace["world_size"], trace["backend"]) == (rank, 2, "gloo")
        assert [step["number"] for step in trace["steps"]] == [first, first + 1, first + 2]
        for step in trace["steps"]:
            assert step["loading_seconds"] > 0
            assert step["forward_seconds"] > 0
            assert step["backward_seconds"] > 0
            assert step["communication_seconds"] > 0
            assert step["exposed_seconds"] <= step["communication_seconds"]


def test_the_page_has_what_the_steps_did(seen: Seen) -> None:
    """Tokens by the rule, operations by the token, bytes of the gradients: each a multiple of the steps."""
    steps = seen.values("training_step_seconds_count")

    assert min(steps) > 20
    assert seen.values("training_tokens_total") == [STEP_TOKENS * count for count in steps]
    assert seen.values("training_flops_total") == [FLOPS_PER_TOKEN * STEP_TOKENS * count for count in steps]
    assert seen.values("training_allreduce_bytes_total") == [PARAMETER_BYTES * count for count in steps]


def test_the_verdict_does_not_see_the_profile(seen: Seen) -> None:
    """The window leaves out the profiled steps of both ranks, and the slow one is slow by its 20 ms as before."""
    own = seen.values("training_recent_own_median_seconds")

    assert own[1] - own[0] == pytest.approx(0.02, rel=0.5)
