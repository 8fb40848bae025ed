"""``straggler run``: start a PyTorch program so that its ranks are measured, without a change to its code."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import straggler
from straggler.errors import ConfigError

ON_PATH = Path(straggler.__file__).parent / "hook" / "launch" / "on_path"
"""Holds the ``sitecustomize`` of ours."""

_CANNOT_RUN, _NOT_FOUND = 126, 127
"""As shells, env and nohup say it."""

_EPILOG = """\
examples:
  straggler run -- torchrun --nproc-per-node=8 train.py
  straggler run -- python train.py                          a process on its own is rank 0 of 1
  straggler run -- accelerate launch train.py
  srun straggler run -- python train.py                     or: straggler run -- srun python train.py
  mpirun -np 16 straggler run -- python train.py            mpirun forwards no environment by itself
  straggler run --dry-run                                   what to put into a job's environment instead

The program replaces this command: its process id, signals, output and exit code are its own. 126: it cannot be run,
127: it is not found. What is added to its environment is

  STRAGGLER_TORCH=all   asks for the instrument. 1 instead: only in ranks that a launcher started, or that join a
                        process group; made for a whole cluster, where not every process that trains is a rank
  PYTHONPATH            leads to a sitecustomize that waits for `import torch` and runs yours. Not needed where this
                        package is installed in the program's own environment and torch is 2.5 or newer

Nothing is measured before the first optimizer step: launchers, loader workers and evaluations leave no trace. Python
must be 3.10 or newer and torch 2.1 or newer; with others, and with python -I, -E or -S, the program runs unmeasured.
STRAGGLER_DISABLED=1 switches everything off. `straggler top` shows the ranks of a node; docs/pytorch.md has the rest.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the flags."""
    parser.usage = "straggler run [-h] [--run NAME] [--ring-dir DIR] [--dry-run] [--] COMMAND ..."
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--run", metavar="NAME", dest="name", help="of the training run (default: from the launcher)")
    parser.add_argument(
        "--ring-dir", type=Path, metavar="DIR", help="where ranks write (default: /run/straggler, else /dev/shm)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the environment as shell commands, start nothing")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="the program and its arguments")


def run(arguments: argparse.Namespace) -> int:
    """Become the program; returns only if that cannot be done.

    Returns:
        0 after ``--dry-run``; 126 or 127 if the program cannot be started.

    Raises:
        ConfigError: no program is given.
    """
    command = list(arguments.command)
    if command[:1] == ["--"]:
        del command[0]
    added = additions(os.environ, run=arguments.name, ring_directory=arguments.ring_dir)
    if arguments.dry_run:
        print("\n".join(script(added, command)))
        return 0
    if not command:
        raise ConfigError("run", "no program to run; write it after --, e.g. straggler run -- torchrun train.py")
    return _become(command, {**os.environ, **added})


def additions(environment: Mapping[str, str], *, run: str | None, ring_directory: Path | None) -> dict[str, str]:
    """Variables that make every Python of a program measure itself if it is a rank.

    Args:
        environment: what the program would get; its ``PYTHONPATH`` stays in force.
        run: name of the run, if it is to have this one.
        ring_directory: likewise.
    """
    before = environment.get("PYTHONPATH", "")
    entries = [entry for entry in before.split(os.pathsep) if entry != str(ON_PATH)] if before else []
    added = {"STRAGGLER_TORCH": "all", "PYTHONPATH": os.pathsep.join([str(ON_PATH), *entries])}
    if run:
        added["STRAGGLER_RUN"] = run
    if ring_directory is not None:
        added["STRAGGLER_DIR"] = str(ring_directory.absolute())
    return added


def script(added: Mapping[str, str], command: Sequence[str]) -> list[str]:
    """The same as lines of a POSIX shell."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in added.items()]
    return [*lines, f"exec {shlex.join(command)}"] if command else lines


def _become(command: list[str], environment: Mapping[str, str]) -> int:
    sys.stdout.flush()
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores these two, and whatever it starts would do so as well
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - no shell is wanted
    except FileNotFoundError:
        print(f"straggler run: {command[0]}: not found", file=sys.stderr)
        return _NOT_FOUND
    except OSError as error:
        print(f"straggler run: {command[0]}: {error.strerror}", file=sys.stderr)
        return _CANNOT_RUN
