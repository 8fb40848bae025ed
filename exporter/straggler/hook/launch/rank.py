"""Whether this process is a rank: asked at its first optimizer step, when all that can be known is there.

At ``import torch`` it could not be told: torchrun imports torch too, Ray and ``mp.spawn`` tell a worker its rank later,
and a rank's children (loader workers, evaluations, compilers) inherit its whole environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from straggler.hook import StepTimer, process
from straggler.hook.identity import as_number, find_launcher
from straggler.hook.timer import dead_timer

_WITH_GROUP = frozenset({"torchrun", "srun"})
"""What these start forms a process group. MPI's processes may use a library of their own (Horovod)."""


def timer_of_rank(**numbers: Any) -> StepTimer:
    """Stand in for ``StepTimer``: one that measures nothing where this process is no rank, so the instrument goes.

    Args:
        numbers: as the instrument found them; with ``rank`` if there is a process group.
    """
    is_mine = is_rank(os.environ, in_group="rank" in numbers, timed=bool(process.members()))
    return StepTimer(**numbers) if is_mine else dead_timer()


def is_rank(environment: Mapping[str, str], *, in_group: bool, timed: bool) -> bool:
    """Decide.

    Args:
        environment: ``os.environ``.
        in_group: torch's process group is there.
        timed: the training loop has a ``StepTimer`` of its own: two would be two rings for one rank.
    """
    if timed:
        return False
    if in_group or environment.get("STRAGGLER_RANK"):
        return True
    launcher = find_launcher(environment, lambda *_: None)
    if launcher is None:
        # Cluster-wide (``1``) a process on its own is no rank; whoever says ``straggler run`` (``all``) means it.
        return environment.get("STRAGGLER_TORCH", "").strip().lower() == "all"
    size = as_number(environment.get(launcher.world_size, ""))
    # A child of a rank, with the rank's variables, that trains something for itself: not with the rank's peers.
    return not (launcher.name in _WITH_GROUP and size is not None and size > 1)
