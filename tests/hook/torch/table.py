"""Prints, as Markdown, how exactly the sidecar's page shows the delay in each case of ``torch_cases``, which says how.

    python tests/hook/torch/table.py                    # all of them, some minutes
    python tests/hook/torch/table.py ddp:plain fsdp1    # those that begin so

Fails if a case misses its mark each time. Says at last how busy the machine was.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from torch_cases import DDP, SHARDED, Measured, lacks
from torch_jobs import SLOW_RANK

_WORDS = {
    "plain": "",
    "accumulate": "four batches a step",
    "batchnorm": "BatchNorm's buffers broadcast",
    "allreduce": "all-reduce of the loss",
    "closure": "`step(closure)`",
    "reentrant": "reentrant checkpointing",
    "nonreentrant": "checkpointing, not reentrant",
    "compile": "`torch.compile`",
    "layercompile": "layers compiled one by one, then sharded",
    "scaler": "GradScaler, some steps skipped",
    "commhook": "the user's communication hook",
    "asyncsave": "asynchronous checkpoint thread",
    "clip": "`clip_grad_norm_`",
    "static": "`static_graph`",
    "unused": "`find_unused_parameters`",
    "gan": "two models, two optimizers, slow in both",
    "zero": "ZeroRedundancyOptimizer",
}
_WRAPS = {"ddp": "DDP", "fsdp1": "FSDP1", "fsdp2": "FSDP2", "pipeline": "pipeline 2 x data 2"}
_PLACES = {
    "first_backward": "first layer of backward",
    "last_backward": "last layer of backward",
    "between": "between backward and step",
    "after": "between steps",
}


def name(case: str) -> str:
    """A case in words."""
    wrap, mode, place = case.split(":")
    return ", ".join(filter(None, (_WRAPS[wrap], _WORDS[mode], _PLACES.get(place, place))))


def row(measured: Measured, case: str) -> str:
    """One line of the table."""
    one = measured.outcome(case)
    own = "/".join(
        f"**{value * 1e3:.0f}**" if rank == one.slowest else f"{value * 1e3:.0f}" for rank, value in enumerate(one.own)
    )
    ratio = one.own_gap / one.delay if one.delay else 0.0
    tries = str(measured.tries[case]) if one.is_right() else f"missed, {one.steps} steps"
    return (
        f"| {name(case)} | {one.delay * 1e3:.1f} | {own} | {one.own_gap * 1e3:.1f} | {ratio:.3f} "
        f"| {one.wall_gap * 1e3:+.1f} | {tries} |"
    )


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(wanted: list[str]) -> int:
    """Run, print, and say whether all is as it must be."""
    families = [[case for case in family if not wanted or case.startswith(tuple(wanted))] for family in (DDP, SHARDED)]
    families = [family for family in families if family]
    say(f"| ms; slow is rank {SLOW_RANK} | delay | own, by rank | own gap | of the delay | wall gap | tries |")
    say("|---|---|---|---|---|---|---|")
    right = True
    for family in families:
        with tempfile.TemporaryDirectory() as out:
            measured = Measured(Path(out), family)
        for case in family:
            say(f"| {name(case)} | {lacks(case)} | | | | | |" if lacks(case) else row(measured, case))
        right = right and all(measured.outcome(case).is_right() for case in family if not lacks(case))
    load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    say(f"\nLoad of this machine over the last 1, 5 and 15 minutes: {load}, on {os.cpu_count()} cores")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
