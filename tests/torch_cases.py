"""The cases that prove own time: real jobs of four ranks, of which rank 2 is held up in one place of each step.

A case is ``wrap:mode:place``; ``training_job.py`` runs it. Its figures are medians over the steps after the first few.
A *gap* is the slow rank's time less the median of the other three **in the same step**, so that what befalls the whole
machine in one step is in neither; and then the median of that over the steps. Nothing is taken off for noise.

The machine that tests run on is small and shared, so what misses its mark is measured again, and then with longer
delays: noise passes, and does not grow with the delay as what is counted wrongly does.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from torch_jobs import RANKS, SLOW_RANK, results

PLACES = ("data", "forward", "first_backward", "last_backward", "optimizer", "between", "after")
DDP = (
    *(f"ddp:plain:{place}" for place in PLACES),
    "ddp:accumulate:forward",
    "ddp:batchnorm:data",
    "ddp:batchnorm:optimizer",
    "ddp:allreduce:optimizer",
    "ddp:allreduce:forward",
    "ddp:closure:data",
    "ddp:closure:between",
    "ddp:reentrant:forward",
    "ddp:nonreentrant:last_backward",
    "ddp:compile:forward",
    "ddp:scaler:optimizer",
    "ddp:commhook:first_backward",
    "ddp:asyncsave:forward",
    "ddp:clip:between",
    "ddp:static:first_backward",
    "ddp:unused:forward",
    "ddp:gan:forward",
    "ddp:zero:optimizer",
    "pipeline:plain:forward",
    "pipeline:plain:last_backward",
)
FSDP1 = (*(f"fsdp1:plain:{place}" for place in ("forward", "last_backward", "optimizer")), "fsdp1:scaler:optimizer")
FSDP2 = (
    *(f"fsdp2:plain:{place}" for place in PLACES),
    "fsdp2:accumulate:forward",
    "fsdp2:batchnorm:data",
    "fsdp2:allreduce:optimizer",
    "fsdp2:closure:between",
    "fsdp2:reentrant:forward",
    "fsdp2:nonreentrant:last_backward",
    "fsdp2:compile:forward",
    "fsdp2:layercompile:forward",
    "fsdp2:scaler:optimizer",
    "fsdp2:asyncsave:forward",
    "fsdp2:clip:forward",
)
SHARDED = FSDP1 + FSDP2
HIDDEN = "fsdp2:compileautograd:forward"
"""The one whose collectives run where nobody sees them."""
_HAS_FSDP2 = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 6)
_FEWEST_STEPS = 8
DELAYS = (0.030, 0.030, 0.120, 0.480)
"""By what the slow rank is held up in each step, at each try, in seconds."""


def lacks(case: str) -> str:
    """Why this torch cannot run a case at all; empty if it can."""
    wrap, mode, _ = case.split(":")
    if wrap == "fsdp2" and not _HAS_FSDP2:
        return "torch before 2.6 has no FSDP2"
    if wrap == "fsdp1" and not _HAS_FSDP2:
        return "FSDP1 of this old torch does not run on a CPU"
    if mode == "scaler" and not hasattr(torch.amp, "GradScaler"):
        return "torch before 2.3 has no GradScaler for a CPU"
    return ""


class Outcome(NamedTuple):
    """What a case came to. Times in seconds."""

    delay: float
    """By what the slow rank was held up in a step: its sleep as long as it really took."""
    own: tuple[float, ...]
    """Median own time; length ``RANKS``, by rank."""
    wall: tuple[float, ...]
    """Median length of a step, likewise."""
    own_gap: float
    wall_gap: float
    steps: int
    """How many were compared: 0 if the ranks do not agree on it."""

    @property
    def slowest(self) -> int:
        """The rank that own time blames."""
        return self.own.index(max(self.own))

    def is_right(self) -> bool:
        """The right rank, the delay within a tenth of it, and nothing to see in the step's length."""
        return (
            self.steps >= _FEWEST_STEPS
            and self.slowest == SLOW_RANK
            and abs(self.own_gap - self.delay) <= self.delay / 10
            and abs(self.wall_gap) <= self.delay / 10
        )

    def __str__(self) -> str:
        """For a failure's text."""
        return (
            f"{self.steps} steps, delay {_ms(self.delay)}, own {'/'.join(map(_ms, self.own))}: gap {_ms(self.own_gap)};"
            f" wall {'/'.join(map(_ms, self.wall))}: gap {_ms(self.wall_gap)}"
        )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"


def outcome(case: str, ranks: Sequence[dict[str, Any]]) -> Outcome:
    """Compare the ranks in one case.

    Args:
        case: its name.
        ranks: what each rank said; length ``RANKS``, by rank.
    """
    told = [rank[case] for rank in ranks]
    counts = {len(one["own_steps"]) for one in told}
    own, wall = (tuple(_median(one[what]) for one in told) for what in ("own_steps", "wall_steps"))
    return Outcome(
        told[SLOW_RANK]["delay"],
        own,
        wall,
        _gap([one["own_steps"] for one in told]),
        _gap([one["wall_steps"] for one in told]),
        counts.pop() if len(counts) == 1 else 0,
    )


def _gap(steps_of_ranks: list[list[float]]) -> float:
    return _median(
        [
            step[SLOW_RANK] - statistics.median(step[:SLOW_RANK] + step[SLOW_RANK + 1 :])
            for step in zip(*steps_of_ranks, strict=False)
        ]
    )


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0


class Measured:
    """The results of a family of cases, measured again where they miss their mark.

    All run in one job, since starting one takes longer than training. Those that this torch lacks are left out.
    """

    def __init__(self, out: Path, family: Sequence[str]) -> None:
        cases = [case for case in family if not lacks(case)]
        self.ranks: list[dict[str, Any]] = [{} for _ in range(RANKS)]
        """What each rank says; length ``RANKS``, by rank."""
        self.tries = dict.fromkeys(cases, 0)
        missed = cases
        for attempt, delay in enumerate(DELAYS):
            if not missed:
                break
            for known, told in zip(self.ranks, results(out / str(attempt), missed, DELAY=str(delay)), strict=True):
                known.update({case: told[case] for case in missed})
                known.setdefault("identity", told["identity"])
            for case in missed:
                self.tries[case] += 1
            missed = [case for case in missed if not self.outcome(case).is_right()]

    def outcome(self, case: str) -> Outcome:
        """What a case came to."""
        return outcome(case, self.ranks)

    def reasons(self, case: str) -> set[str]:
        """What its ranks said about their own time."""
        return {reason for rank in self.ranks for reason in rank[case]["reasons"]}
