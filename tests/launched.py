"""Runs programs under ``straggler run``, in a clean environment, and reads what they left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from straggler.cli.run import ON_PATH

_OTHERS = ("STRAGGLER", "PYTHON", "TORCH", "SLURM", "OMPI", "PMI", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "JOB_")


def clean_environment(**more: str) -> dict[str, str]:
    """The environment without what a launcher, a Python or this project put in, and with ``more``."""
    return {**{name: value for name, value in os.environ.items() if not name.startswith(_OTHERS)}, **more}


def on_path(*more: str | Path, **environment: str) -> dict[str, str]:
    """An environment as ``straggler run`` makes it, with further entries on the path."""
    path = os.pathsep.join(str(entry) for entry in (ON_PATH, *more))
    return clean_environment(**{"STRAGGLER_TORCH": "all", "PYTHONPATH": path, **environment})


def straggler_run(
    *arguments: str | Path, environment: Mapping[str, str] | None = None, timeout: float = 280
) -> subprocess.CompletedProcess[str]:
    """``straggler run`` with these arguments, to its end."""
    return finished([sys.executable, "-m", "straggler", "run", *map(str, arguments)], environment, timeout)


def finished(
    command: Sequence[str], environment: Mapping[str, str] | None = None, timeout: float = 280
) -> subprocess.CompletedProcess[str]:
    """Any command, to its end."""
    given = environment if environment is not None else clean_environment()
    with subprocess.Popen(command, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.terminate()  # torchrun then ends its ranks, which a kill would leave behind
            out, err = process.communicate()
            raise AssertionError(f"not finished in {timeout:.0f} s:\n{out[-2000:]}\n{err[-4000:]}") from None
    return subprocess.CompletedProcess(command, process.returncode, out, err)
