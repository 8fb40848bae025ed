"""The adapters of a fake node move with the training, and one of them can have a bad cable."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from straggler.simulate.board import Board
from straggler.simulate.fabric import Fabric
from straggler.simulate.faults import KINDS

SECOND = 1_000_000_000


@dataclass
class Clock:
    """Nanoseconds, moved by hand."""

    now: int = 10 * SECOND


@pytest.fixture
def board(tmp_path: Path) -> Board:
    """Two ranks that have begun."""
    board = Board.create(tmp_path / "board", 2)
    for cell in board.cells():
        cell.begin()
    return board


def port(sysfs: Path, device: str, name: str) -> str:
    """One file of one port."""
    return (sysfs / "class/infiniband" / device / "ports/1" / name).read_text(encoding="ascii").strip()


def test_traffic_follows_the_steps(tmp_path: Path, board: Board) -> None:
    """A step sends 500 MB by each adapter: 125 million words of four bytes, as the driver counts."""
    fabric = Fabric(tmp_path / "sys", board.cells())
    for _ in range(3):
        board.cell(1).finish_step()
    fabric.close()
    fabric.write()

    assert port(tmp_path / "sys", "mlx5_0", "counters/port_xmit_data") == "0"
    assert port(tmp_path / "sys", "mlx5_1", "counters/port_xmit_data") == "375000000"


def test_bad_cable(tmp_path: Path, board: Board) -> None:
    """From the onset on one port alone has a quarter of its rate, has recovered once and counts symbol errors."""
    clock = Clock()
    fabric = Fabric(
        tmp_path / "sys", board.cells(), symptoms={1: KINDS["bad-cable"].symptoms}, clock_ns=lambda: clock.now
    )
    fabric.close()
    assert port(tmp_path / "sys", "mlx5_1", "rate") == "400 Gb/sec (4X NDR)"
    board.cell(1).afflicted_from(clock.now)
    clock.now += 7 * SECOND
    fabric.write()

    assert port(tmp_path / "sys", "mlx5_1", "rate") == "100 Gb/sec (1X NDR)"
    assert port(tmp_path / "sys", "mlx5_1", "counters/symbol_error") == "70"
    assert port(tmp_path / "sys", "mlx5_1", "counters/link_error_recovery") == "1"
    assert port(tmp_path / "sys", "mlx5_1", "state") == "4: ACTIVE"
    assert port(tmp_path / "sys", "mlx5_0", "rate") == "400 Gb/sec (4X NDR)"
    assert port(tmp_path / "sys", "mlx5_0", "counters/symbol_error") == "0"


def test_adapters_that_nobody_uses_are_idle(tmp_path: Path, board: Board) -> None:
    """Where the training goes over sockets the adapters are up, and carry nothing."""
    fabric = Fabric(tmp_path / "sys", board.cells(), carries=False)
    board.cell(0).finish_step()
    fabric.close()
    fabric.write()

    assert port(tmp_path / "sys", "mlx5_0", "counters/port_xmit_data") == "0"
    assert port(tmp_path / "sys", "mlx5_0", "state") == "4: ACTIVE"
