"""The cases that prove own time: real jobs of four ranks, of which rank 2 is held up in one place of each step.

A case is ``wrap:mode:place``; ``training_job.py`` runs it, as a run of its own. Its figures are those of the sidecar's
page when it has ended: the window is all of it, or its last 32 steps. A *gap* is the slow rank's figure less the median
of the other three. Nothing is taken off for noise.

The machine that tests run on is small and shared, so what misses its mark is measured again, and then with longer
delays: noise passes, and does not grow with the delay as what is counted wrongly does.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from straggler.wire.recent import WINDOW_STEPS
from torch_jobs import SLOW_RANK, Seen, results

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
    """What a case came to on the page. Times in seconds; NaN where the page has none."""

    delay: float
    """By what the slow rank was held up in a step: its sleep as long as it really took."""
    own: tuple[float, ...]
    """``training_recent_own_median_seconds``; length ``RANKS``, by rank."""
    wall: tuple[float, ...]
    """``training_recent_step_seconds``, likewise."""
    steps: int
    """``training_recent_steps``: 0 if the ranks do not agree on it."""

    @property
    def own_gap(self) -> float:
        """Of the slow rank."""
        return _gap(self.own)

    @property
    def wall_gap(self) -> float:
        """Likewise."""
        return _gap(self.wall)

    @property
    def slowest(self) -> int:
        """The rank that own time blames."""
        return self.own.index(max(self.own))

    def is_right(self) -> bool:
        """The right rank, the delay within a tenth of it, and nothing to see in the step's length."""
        return (
            self.steps >= WINDOW_STEPS
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


def _gap(by_rank: Sequence[float]) -> float:
    return by_rank[SLOW_RANK] - statistics.median([*by_rank[:SLOW_RANK], *by_rank[SLOW_RANK + 1 :]])


def outcome(seen: Seen) -> Outcome:
    """Compare the ranks in a case."""
    steps = seen.page.values("training_recent_steps")
    agreed = len(set(steps)) == 1 and not math.isnan(steps[0])
    return Outcome(
        seen.ranks[SLOW_RANK]["delay"],
        tuple(seen.page.values("training_recent_own_median_seconds")),
        tuple(seen.page.values("training_recent_step_seconds")),
        int(steps[0]) if agreed else 0,
    )


class Measured:
    """The results of a family of cases, measured again where they miss their mark.

    All run in one job, since starting one takes longer than training. Those that this torch lacks are left out.
    """

    def __init__(self, out: Path, family: Sequence[str]) -> None:
        missed = [case for case in family if not lacks(case)]
        self.seen: dict[str, Seen] = {}
        """The last try of each case."""
        self.tries = dict.fromkeys(missed, 0)
        for attempt, delay in enumerate(DELAYS):
            if not missed:
                break
            self.seen |= results(out / str(attempt), missed, DELAY=str(delay))
            for case in missed:
                self.tries[case] += 1
            missed = [case for case in missed if not self.outcome(case).is_right()]

    def outcome(self, case: str) -> Outcome:
        """What a case came to."""
        return outcome(self.seen[case])

    def reasons(self, case: str) -> set[str]:
        """What the page says about its ranks' own time: ``measured``, or why there is none."""
        return set(self.seen[case].page.labels("own_reason"))
