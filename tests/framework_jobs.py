"""What the scripts in ``tests/adapters`` have in common, and what their rings must say."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from launched import clean_environment, straggler_run
from straggler.sources.rings.snapshot import Snapshot, read_snapshot
from straggler.wire import layout

DELAY = 0.030
STEPS = 12
RANKS = 2


class Net(nn.Module):
    """One layer whose forward takes time; rank 1 is slow, and slower still when it evaluates."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What the loop calls."""
        slow = dist.is_initialized() and dist.get_rank() == 1
        time.sleep(0.005 + (DELAY if slow else 0.0) + (0.1 if slow and not self.training else 0.0))
        return self.linear(x)


def run(rings: Path, out: Path, *command: str | Path) -> str:
    """A job under ``straggler run``, with its rings in ``rings``, in the directory ``out``; what it printed."""
    environment = clean_environment(
        STRAGGLER_ALLOW_ANY_FILESYSTEM="1",
        OMP_NUM_THREADS="1",
        CUDA_VISIBLE_DEVICES="",
        HF_HOME=str(out),
        OUT=str(out),
    )
    done = straggler_run("--ring-dir", rings, "--", *command, environment=environment, timeout=240)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "not measured" not in done.stderr
    return done.stdout


def check(rings: Path, *, batches: int, steps: int = STEPS - 1) -> Sequence[Snapshot]:
    """The slow rank is found, each step once; evaluating and saving are neither own time nor waiting.

    Args:
        rings: where they are.
        batches: in each step.
        steps: in each ring. One is missing, since the first begins where an optimizer steps after a ``backward``.

    Returns:
        The rings, by rank.
    """
    found = [read_snapshot(path) for path in rings.glob("*.ring")]
    found.sort(key=lambda ring: -1 if ring.identity is None else ring.identity.rank)
    assert [(ring.identity.rank, ring.identity.world_size) for ring in found if ring.identity] == [(0, 2), (1, 2)]
    assert len({ring.identity.run for ring in found if ring.identity}) == 1
    assert [len(ring.records) for ring in found] == [steps] * RANKS
    # The lower quartile: other people's load on the machine only ever adds.
    own = [statistics.quantiles((record.own_ns or 0 for record in ring.records[2:]), n=4)[0] / 1e9 for ring in found]
    assert own[1] - own[0] == pytest.approx(batches * DELAY, rel=0.4), own
    assert {layout.OWN_REASONS[record.own_reason] for ring in found for record in ring.records[1:]} == {"measured"}
    phases = [sum(column) for column in zip(*(record.phase_ns for record in found[1].records), strict=True)]
    assert phases[layout.PHASE_INDEX["eval"]] > 0.1e9
    assert sum(record.phase_ns[layout.PHASE_INDEX["checkpoint"]] for record in found[0].records) > 0
    return found


def check_twice(rings: Path) -> None:
    """Each rank has two rings, and has said goodbye in both."""
    found = [read_snapshot(path) for path in rings.glob("*.ring")]
    assert sorted(ring.identity.rank for ring in found if ring.identity) == [0, 0, 1, 1]
    assert finished(found)
    assert all(len(ring.records) in (STEPS - 2, STEPS - 1) for ring in found)


def finished(rings: Sequence[Snapshot]) -> bool:
    """Whether all ranks have said goodbye in order."""
    return all(ring.live is not None and ring.live.status == layout.STATUS_FINISHED for ring in rings)
