"""Who this rank is: from arguments, ``STRAGGLER_*``, and what the launcher left in the environment.

Numbers of one rank come from one launcher, the innermost that started it: a ``torchrun`` under ``srun`` sets ``RANK``
and inherits ``SLURM_PROCID``, an ``mpirun`` in a batch job inherits the ``SLURM_PROCID`` of the batch script. So the
launchers are asked in the order torchrun, MPI's own, Slurm, PMIx, Kubernetes, and the first that knows a rank gives the
world size and the local rank too.

The run's name must be the same on all ranks: ``run_name.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

from straggler.hook.run_name import find_run
from straggler.wire.records import Identity

MAX_NUMBER = 10_000_000
"""What the wire carries; no rank or count is near it."""
_NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

Warn = Callable[[str, str], None]
Environment = Mapping[str, str]


class Launcher(NamedTuple):
    """The variables in which one launcher tells a rank's numbers; ``""``: it does not tell."""

    name: str
    rank: str
    world_size: str = ""
    local_rank: str = ""
    local_world_size: str = ""
    needs: str = ""
    """A variable without which the others are leftovers of something else."""


LAUNCHERS = (
    Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    Launcher(
        "mpirun",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    Launcher(
        "mpirun",
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_LOCAL_SIZE",
    ),
    Launcher("mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    # A batch script has SLURM_PROCID=0 as well, but is no step and no rank.
    Launcher("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", needs="SLURM_STEP_ID"),
    Launcher("pmix", "PMIX_RANK"),
    Launcher("kubernetes", "JOB_COMPLETION_INDEX"),
)

_TEXTS = {
    "peer_group": ("STRAGGLER_PEER_GROUP",),
    "node": ("STRAGGLER_NODE", "NODE_NAME", "SLURMD_NODENAME"),
    "pod": ("POD_NAME",),
    "namespace": ("POD_NAMESPACE",),
    "container": ("CONTAINER_NAME",),
    "slurm_job": ("SLURM_JOB_ID",),
    "slurm_step": ("SLURM_STEP_ID",),
    "user": ("SLURM_JOB_USER", "USER", "LOGNAME"),
    "visible_devices": ("CUDA_VISIBLE_DEVICES",),
}
_ATTEMPTS = ("STRAGGLER_ATTEMPT", "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
_OWN_NUMBERS = {
    "rank": "STRAGGLER_RANK",
    "world_size": "STRAGGLER_WORLD_SIZE",
    "local_rank": "STRAGGLER_LOCAL_RANK",
    "local_world_size": "STRAGGLER_LOCAL_WORLD_SIZE",
}


def find_identity(
    environment: Environment,
    *,
    warn: Warn,
    hook_version: str,
    run: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    local_rank: int | None = None,
    peer_group: str | None = None,
) -> Identity:
    """Find out as much as can be known without asking anybody.

    A value that cannot be used is reported through ``warn`` and treated as not given. A process that no launcher
    started is rank 0 of 1.

    Args:
        environment: ``os.environ``.
        warn: called with a subject and a text.
        hook_version: for the info metric.
        run: as given by the user, if it is.
        rank: likewise.
        world_size: likewise.
        local_rank: likewise.
        peer_group: likewise.
    """
    given = {"rank": rank, "world_size": world_size, "local_rank": local_rank, "local_world_size": None}
    numbers: dict[str, int | None] = {
        key: _given(key, given[key], warn) if given[key] is not None else _number(environment, variable, warn)
        for key, variable in _OWN_NUMBERS.items()
    }
    launcher = find_launcher(environment, warn)
    # With a rank of the user's own (one process that starts others), a launcher's numbers are about that process.
    is_launchers = launcher is not None and numbers["rank"] in (None, _number(environment, launcher.rank, warn))
    if launcher is not None and is_launchers:
        for key in ("rank", "world_size", "local_rank", "local_world_size"):
            if numbers[key] is None:
                numbers[key] = _number(environment, getattr(launcher, key), warn)
    if numbers["rank"] is None:
        numbers["rank"] = 0
        if _names_a_rank(environment):
            warn("rank", "no launcher's rank can be used, so this process is published as rank 0: set STRAGGLER_RANK")
        elif launcher is None and numbers["world_size"] is None:
            numbers["world_size"] = 1
    _check_sizes(numbers, warn)
    texts = {field: _text(environment, *variables) for field, variables in _TEXTS.items()}
    texts["peer_group"] = _clean(peer_group) or texts["peer_group"] or "0"
    texts["node"] = texts["node"] or os.uname().nodename
    if "KUBERNETES_SERVICE_HOST" in environment:
        texts["namespace"] = texts["namespace"] or _read_namespace()
    alone = numbers["world_size"] == 1
    return Identity(
        run=_clean(run)
        or _clean(find_run(environment, texts["namespace"], texts["node"], alone=alone, warn=warn))
        or "?",
        attempt=next((n for key in _ATTEMPTS if (n := _number(environment, key, warn)) is not None), None),
        own_reason="measured" if alone else "no_wait_phase",
        hook_version=hook_version,
        **numbers,  # type: ignore[arg-type]  # rank is set above, and the keys are fields
        **texts,  # type: ignore[arg-type]  # same
    )


def with_changes(identity: Identity, fields: Mapping[str, object], warn: Warn) -> Identity:
    """The identity with some fields changed; what is no field, or no value for one, is reported and left out."""
    changes: dict[str, object] = {}
    for key, value in fields.items():
        default = Identity._field_defaults.get(key, "" if key == "run" else 0)
        is_text = isinstance(default, str)
        if key not in Identity._fields or key == "own_reason":
            warn("identity", f"set_identity({key}=...): there is no such field")
        elif value is None and default is None:
            changes[key] = None
        elif is_text and (text := _clean(value)):
            changes[key] = text
        elif not is_text and (number := _given(key, value, warn)) is not None:
            changes[key] = number
    if changes.get("clock", "host") not in ("host", "cuda"):
        warn("clock", f"set_identity(clock={changes.pop('clock')!r}): a clock is 'host' or 'cuda'")
    return identity._replace(**changes)  # type: ignore[arg-type]  # checked field by field above


def as_number(value: object) -> int | None:
    """A count as the wire carries it, or ``None`` if this is none."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < 9 else None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_NUMBER:
        return int(value)
    return None


def find_launcher(environment: Environment, warn: Warn) -> Launcher | None:
    """The innermost launcher that tells this process its rank; ``None`` if none does."""
    for launcher in LAUNCHERS:
        if launcher.needs and launcher.needs not in environment:
            continue
        if _number(environment, launcher.rank, warn) is not None:
            return launcher
    return None


def _names_a_rank(environment: Environment) -> bool:
    """Whether some launcher said something about a rank, readable or not."""
    return any(
        environment.get(launcher.rank) and (not launcher.needs or launcher.needs in environment)
        for launcher in LAUNCHERS
    ) or bool(environment.get("STRAGGLER_RANK"))


def _number(environment: Environment, variable: str, warn: Warn) -> int | None:
    text = environment.get(variable, "").strip() if variable else ""
    if not text:
        return None
    number = as_number(text)
    if number is None:
        warn(variable, f"{variable}={text[:40]!r} is no number of 0 to {MAX_NUMBER}: treated as not given")
    return number


def _given(key: str, value: object, warn: Warn) -> int | None:
    number = as_number(value)
    if number is None:
        warn(key, f"StepTimer({key}={value!r:.60}) is no number of 0 to {MAX_NUMBER}: treated as not given")
    return number


def _check_sizes(numbers: dict[str, int | None], warn: Warn) -> None:
    for rank_key, size_key in (("rank", "world_size"), ("local_rank", "local_world_size")):
        rank, size = numbers[rank_key], numbers[size_key]
        if rank is not None and size is not None and rank >= size:
            warn(size_key, f"{rank_key} {rank} does not fit into {size_key} {size}: the latter is treated as not given")
            numbers[size_key] = None


def _text(environment: Environment, *variables: str) -> str:
    return next((text for variable in variables if (text := _clean(environment.get(variable)))), "")


def _clean(text: object) -> str:
    return " ".join(str(text).split()) if text is not None else ""


def _read_namespace() -> str:
    try:
        with open(_NAMESPACE_FILE, encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs 5 ms of import
            return _clean(file.read(256))
    except (OSError, UnicodeDecodeError):
        return ""
