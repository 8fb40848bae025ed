"""A busy neighbour: from the onset of the fault on it shares one core with a rank, and always has something to compute.

``python -m straggler.simulate.neighbour DIRECTORY RANK PID``. Each is one thread. The rank is bound to the core as a
launcher or a CPU manager would bind it; that the neighbours run there too is the fault. So the rank's waiting for the
processor, which the kernel counts in ``/proc/PID/schedstat``, is real.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from straggler.simulate.board import Board

_LOOK_SECONDS = 0.02


def compete(directory: Path, rank: int, pid: int) -> None:
    """Wait for the onset, then compute for ever on the core of the rank.

    Args:
        directory: holds the board.
        rank: on the board.
        pid: of its process.
    """
    cell = Board(directory / "board").cell(rank)
    while cell.onset_ns is None:
        time.sleep(_LOOK_SECONDS)
    core = {max(os.sched_getaffinity(0))}
    os.sched_setaffinity(pid, core)
    os.sched_setaffinity(0, core)
    while cell.alive:
        for _ in range(100_000):
            pass


if __name__ == "__main__":
    compete(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
