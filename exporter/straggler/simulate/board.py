"""The board: one small shared file on which the simulated ranks of a node write what they are doing.

It is what the GPUs and the network would be: ranks meet on it (``barrier.py``), the fake dcgm-exporter reads from it
how busy each GPU is (``node.py``), and whoever started the run sees how far it is. It is no part of the product's own
path from the hook to the sidecar.

Each word has one writer, so there is no lock, and a rank that is killed at any moment leaves nothing half done.
Words are eight bytes, aligned, native order; times are ``time.monotonic_ns()``, one clock for the whole machine.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Final

PHASES: Final = ("idle", "data", "forward", "backward", "wait", "optimizer")
IDLE, DATA, FORWARD, BACKWARD, WAIT, OPTIMIZER = range(len(PHASES))

_HEADER_WORDS: Final = 8
_CELL_WORDS: Final = 32
_RANKS, _STOP_STEP = 0, 1  # words of the header
# Words of a cell. Two arrival times, by the step's parity: a rank may be one step ahead of a reader, never two.
_ALIVE, _ARRIVED, _ARRIVED_NS, _STEPS, _PHASE, _SINCE_NS, _ONSET_NS, _SPEED = 0, 1, 2, 4, 5, 6, 7, 8
_SPENT_NS = 16
_SPEED_ONE: Final = 1_000_000

_STOP_AHEAD: Final = 3
"""A run ends this many steps after the newest arrival, so that all ranks end after the same step."""


class Board:
    """The file, mapped. Made by ``create``; ranks and readers ``open`` it."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            shared = mmap.mmap(fd, os.fstat(fd).st_size)  # unmapped when the last cell is gone
        finally:
            os.close(fd)
        self._words = memoryview(shared).cast("Q")
        self.ranks = self._words[_RANKS]

    @classmethod
    def create(cls, path: Path, ranks: int) -> Board:
        """Make a board on which nobody has begun."""
        header = bytearray(8 * (_HEADER_WORDS + ranks * _CELL_WORDS))
        memoryview(header).cast("Q")[_RANKS] = ranks
        path.write_bytes(header)
        return cls(path)

    def cell(self, rank: int) -> Cell:
        """What one rank writes."""
        start = _HEADER_WORDS + rank * _CELL_WORDS
        return Cell(self._words[start : start + _CELL_WORDS])

    def cells(self) -> list[Cell]:
        """All of them, by rank."""
        return [self.cell(rank) for rank in range(self.ranks)]

    def stop(self) -> None:
        """Let the run end soon, all ranks after the same step."""
        newest = max(cell.arrived for cell in self.cells())
        self._words[_STOP_STEP] = newest + _STOP_AHEAD

    @property
    def stop_step(self) -> int | None:
        """The last step of the run, once somebody has said so."""
        return self._words[_STOP_STEP] or None


class Cell:
    """One rank's words."""

    def __init__(self, words: memoryview) -> None:
        self._words = words

    def begin(self) -> None:
        """The process is there."""
        self._words[_ALIVE] = 1

    def end(self) -> None:
        """The process is gone: its GPU is idle. Said by the process, or, after its death, by who started it."""
        self._words[_PHASE] = IDLE
        self._words[_ALIVE] = 0

    def enter(self, phase: int, now_ns: int) -> None:
        """Leave the phase before and be in this one. The phase before ends no earlier than it began."""
        if since := self._words[_SINCE_NS]:
            now_ns = max(now_ns, since)
            self._words[_SPENT_NS + self._words[_PHASE]] += now_ns - since
        self._words[_SINCE_NS] = now_ns
        self._words[_PHASE] = phase

    def arrive(self, step: int, now_ns: int) -> None:
        """Reach the barrier of this step."""
        self._words[_ARRIVED_NS + step % 2] = now_ns
        self._words[_ARRIVED] = step  # last: who sees the step sees the time

    def arrived_ns(self, step: int) -> int:
        """When the rank reached the barrier of this step, if ``arrived`` is this step or the next."""
        return int(self._words[_ARRIVED_NS + step % 2])

    def begin_step(self, speed_ratio: float) -> None:
        """The GPU computes at this share of its full clock."""
        self._words[_SPEED] = round(speed_ratio * _SPEED_ONE)

    def finish_step(self) -> None:
        """One more step is done."""
        self._words[_STEPS] += 1

    def afflicted_from(self, now_ns: int) -> None:
        """The first step under the fault begins."""
        self._words[_ONSET_NS] = now_ns

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return self._words[_ALIVE] == 1

    @property
    def arrived(self) -> int:
        """The last step whose barrier was reached."""
        return int(self._words[_ARRIVED])

    @property
    def steps(self) -> int:
        """Steps finished."""
        return int(self._words[_STEPS])

    @property
    def onset_ns(self) -> int | None:
        """When the first step under the fault began."""
        return self._words[_ONSET_NS] or None

    @property
    def speed_ratio(self) -> float:
        """The share of its full clock at which the GPU computes."""
        return self._words[_SPEED] / _SPEED_ONE

    def spent_ns(self, now_ns: int) -> tuple[int, ...]:
        """Time in each phase up to now, the present one included; in the order of ``PHASES``."""
        spent = [int(word) for word in self._words[_SPENT_NS : _SPENT_NS + len(PHASES)]]
        if self._words[_SINCE_NS]:
            spent[self._words[_PHASE]] += max(0, now_ns - self._words[_SINCE_NS])
        return tuple(spent)
