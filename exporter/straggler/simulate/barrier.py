"""A real barrier between real processes, made so that killing one of them at any moment breaks nothing else.

Who arrives says so in its own cell of the board and looks whether all others have. The last one wakes the rest through
one named pipe each. If two arrive at once both may think that they are the last: a rank that is woken once too often
looks, sees that not all are there, and sleeps on. A dead rank never arrives, so the others wait: as in a collective.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from pathlib import Path

from straggler.simulate.board import Board

_LOOK_AGAIN_MS = 250
"""A rank that waits looks for the end of the run this often."""


class RunEndedError(Exception):
    """The run ends, and somebody will not arrive any more."""


class Barrier:
    """One rank's side of the barrier.

    Args:
        directory: holds the board and the pipes, which are made where they are missing.
    """

    def __init__(self, directory: Path, board: Board, rank: int) -> None:
        self._board = board
        self._cells = board.cells()
        self._rank = rank
        self._pipes = [_open_pipe(directory / f"wake.{other}") for other in range(board.ranks)]
        self._poll = select.poll()
        self._poll.register(self._pipes[rank], select.POLLIN)

    def wait(self, step: int) -> int:
        """Arrive, wait for all, and return the arrival time of the last one (the same number on every rank).

        Raises:
            RunEndedError: the run is to end, and this step is past its last one or somebody is gone already.
        """
        self._cells[self._rank].arrive(step, time.monotonic_ns())
        if self._all_there(step):
            self._wake_others()
        while not self._all_there(step):
            if self._poll.poll(_LOOK_AGAIN_MS):
                _drain(self._pipes[self._rank])
            last = self._board.stop_step
            if last is not None and (step > last or not all(cell.alive for cell in self._cells)):
                raise RunEndedError
        return max(cell.arrived_ns(step) for cell in self._cells)

    def _all_there(self, step: int) -> bool:
        return all(cell.arrived >= step for cell in self._cells)

    def _wake_others(self) -> None:
        for rank, pipe in enumerate(self._pipes):
            if rank != self._rank:
                with contextlib.suppress(BlockingIOError):  # full of wake-ups not read yet: it will wake
                    os.write(pipe, b"!")


def _open_pipe(path: Path) -> int:
    with contextlib.suppress(FileExistsError):  # another rank was first
        os.mkfifo(path, 0o600)
    # For reading too: so opening never waits, and writing to a dead rank's pipe is no error.
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def _drain(pipe: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(pipe, 65_536)  # as much as a pipe holds
