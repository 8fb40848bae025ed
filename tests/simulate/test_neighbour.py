"""Neighbours bind a rank and themselves to one core when the fault begins, and end with the rank."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from straggler.simulate.board import Board
from straggler.simulate.processes import Crew

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="with one processor all share it anyway")


def until(true: Callable[[], bool]) -> None:
    """Wait; fail if it does not become true."""
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.02)


def test_shares_the_core_from_the_onset_on(tmp_path: Path) -> None:
    """Before the onset nobody is bound; then rank and neighbour have one core in common; without the rank it ends."""
    cell = Board.create(tmp_path / "board", 1).cell(0)
    cell.begin()
    crew = Crew(tmp_path)
    try:
        rank = crew.start("rank0", [sys.executable, "-c", "import time; time.sleep(300)"])
        arguments = (str(tmp_path), "0", str(rank.pid))
        neighbour = crew.start("neighbour", [sys.executable, "-m", "straggler.simulate.neighbour", *arguments])
        time.sleep(0.3)
        everywhere = os.sched_getaffinity(rank.pid)
        cell.afflicted_from(time.monotonic_ns())
        until(lambda: len(os.sched_getaffinity(neighbour.pid)) == 1)

        assert everywhere == os.sched_getaffinity(0)
        assert os.sched_getaffinity(rank.pid) == os.sched_getaffinity(neighbour.pid)
        cell.end()
        assert neighbour.wait(60) == 0
    finally:
        crew.stop()
