"""The barrier and the board, in threads: each rank has its own mapping and pipes, as in a process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from pathlib import Path

import pytest

from straggler.simulate import board as at
from straggler.simulate.barrier import Barrier, RunEndedError
from straggler.simulate.board import Board

RANKS = 4


@pytest.fixture
def board(tmp_path: Path) -> Board:
    """A board on which all ranks have begun."""
    board = Board.create(tmp_path / "board", RANKS)
    for cell in board.cells():
        cell.begin()
    return board


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """One thread per rank."""
    with ThreadPoolExecutor(RANKS) as pool:
        yield pool


def barriers(tmp_path: Path) -> list[Barrier]:
    """Each rank's side."""
    return [Barrier(tmp_path, Board(tmp_path / "board"), rank) for rank in range(RANKS)]


def test_nobody_leaves_before_all_are_there(tmp_path: Path, board: Board, pool: ThreadPoolExecutor) -> None:
    """Over many steps, no rank is ever a step ahead of another after the barrier, and all hear the same time."""
    done = [0] * RANKS
    ahead = threading.Event()

    def run(barrier: Barrier, rank: int) -> list[int]:
        released = []
        for step in range(1, 501):
            done[rank] = step
            released.append(barrier.wait(step))
            if min(done) < step:
                ahead.set()
        return released

    times = [
        future.result(60) for future in [pool.submit(run, barrier, n) for n, barrier in enumerate(barriers(tmp_path))]
    ]

    assert not ahead.is_set()
    assert times[0] == times[1] == times[2] == times[3]
    assert times[0] == sorted(times[0])
    assert board.cell(0).arrived == 500


def test_others_wait_for_a_missing_rank_until_the_run_ends(
    tmp_path: Path, board: Board, pool: ThreadPoolExecutor
) -> None:
    """While one rank does not come the rest wait; when the run is to end and it is dead, they are let go."""
    waiting: list[Future[int]] = [pool.submit(barrier.wait, 1) for barrier in barriers(tmp_path)[:-1]]

    with pytest.raises(NotYetError):
        waiting[0].result(0.3)
    board.cell(RANKS - 1).end()
    board.stop()

    for future in waiting:
        with pytest.raises(RunEndedError):
            future.result(60)


def test_stop_lets_all_end_after_the_same_step(board: Board) -> None:
    """The last step is a little after the newest arrival, so that every rank hears of it in time."""
    board.cell(1).arrive(41, 5)

    assert board.stop_step is None
    board.stop()

    assert board.stop_step == 44


def test_no_phase_is_shorter_than_nothing(board: Board) -> None:
    """A phase that is said to have ended before it began took no time, and the next one begins there."""
    cell = board.cell(0)
    cell.enter(at.FORWARD, 100)
    cell.enter(at.IDLE, 90)
    cell.enter(at.BACKWARD, 130)

    spent = cell.spent_ns(130)

    assert (spent[at.FORWARD], spent[at.IDLE], sum(spent)) == (0, 30, 30)


def test_board_adds_up_phases(board: Board) -> None:
    """Time goes to the phase that a rank is in, the present one included."""
    cell = board.cell(0)
    cell.enter(at.FORWARD, 100)
    cell.enter(at.WAIT, 130)
    cell.enter(at.FORWARD, 140)

    spent = cell.spent_ns(145)

    assert spent[at.FORWARD] == 35
    assert spent[at.WAIT] == 10
    assert sum(spent) == 45
