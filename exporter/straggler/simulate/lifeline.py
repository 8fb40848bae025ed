"""Run a command that is killed when the process that started it dies, however it dies: no orphan is ever left.

Used as ``python -I -S lifeline.py PARENT_PID COMMAND ARGUMENT…``. The kernel sends the signal (``PR_SET_PDEATHSIG``),
so it works under SIGKILL of the parent too, and for programs that are not ours: the setting survives ``exec``.
Runs as a file, without the package, to start fast.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    """Tie this process to its parent, and become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        sys.exit(f"lifeline: prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit("lifeline: the parent is gone already")
    try:
        os.execvp(command[0], command)  # noqa: S606 - that is what this file is for
    except OSError as error:
        sys.exit(f"lifeline: {error.strerror}: {command[0]!r}")


if __name__ == "__main__":
    main()
