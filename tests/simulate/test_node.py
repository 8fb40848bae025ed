"""The fake node's page moves with what the ranks do."""

from __future__ import annotations

import re
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import HTTPError

import pytest

from straggler.simulate import board as at
from straggler.simulate.board import Board
from straggler.simulate.faults import KINDS
from straggler.simulate.node import FakeNode, gpu_uuid

MS = 1_000_000


@dataclass
class Ranks:
    """Two ranks that train on a clock moved by hand; rank 1 may be slower by half."""

    board: Board
    now: int = 1_000 * MS
    parts: tuple[int, ...] = field(default=(at.DATA, at.FORWARD, at.BACKWARD, at.WAIT, at.OPTIMIZER))

    def train(self, steps: int, *, slow: bool = False) -> None:
        """The reference step: 44 ms, or 57 ms."""
        lengths = ((6, 10, 16, 23, 2), (6, 15, 24, 10, 2)) if slow else ((6, 10, 16, 10, 2),) * 2
        for _ in range(steps):
            for cell, length in zip(self.board.cells(), lengths, strict=True):
                cell.begin()
                cell.begin_step(26 / sum(length[1:3]))
                if slow and cell.onset_ns is None:
                    cell.afflicted_from(self.now)
                then = self.now
                for phase, part in zip(self.parts, length, strict=True):
                    cell.enter(phase, then)
                    then += part * MS
            self.now += sum(lengths[0]) * MS


@pytest.fixture
def ranks(tmp_path: Path) -> Ranks:
    """Both, before their first step."""
    return Ranks(Board.create(tmp_path / "board", 2))


@pytest.fixture
def node(ranks: Ranks) -> FakeNode:
    """Their node, which looks every 2 s."""
    return FakeNode(ranks.board.cells(), "node-a", symptoms={1: KINDS["thermal"].symptoms}, clock_ns=lambda: ranks.now)


def values(page: str, name: str) -> list[float]:
    """By GPU."""
    return [float(number) for number in re.findall(rf"^{name}{{.*}} (\S+)$", page, re.MULTILINE)]


def test_waiting_counts_as_utilization_but_not_as_activity(ranks: Ranks, node: FakeNode) -> None:
    """Reported utilization is one minus the loading; one that waits is as busy as one that works."""
    ranks.train(100)
    node.page()
    ranks.train(100, slow=True)
    page = node.page()

    assert values(page, "DCGM_FI_DEV_GPU_UTIL") == [89, 89]  # 1 - 6/57
    waiter, straggler = values(page, "DCGM_FI_PROF_SM_ACTIVE")
    assert waiter == pytest.approx(0.80 * 26 / 57 + 0.08 * 23 / 57 + 0.5 * 2 / 57, abs=1e-5)
    assert straggler == pytest.approx(0.80 * 39 / 57 + 0.08 * 10 / 57 + 0.5 * 2 / 57, abs=1e-5)


def test_slow_rank_has_a_slow_and_hot_gpu(ranks: Ranks, node: FakeNode) -> None:
    """The straggler's GPU shows why: its clock falls with its speed, it is hot, and its throttled time grows."""
    ranks.train(50)
    node.page()
    ranks.train(50, slow=True)
    page = node.page()

    assert values(page, "DCGM_FI_DEV_SM_CLOCK") == [1980, 1320]
    assert values(page, "DCGM_FI_DEV_GPU_TEMP")[1] == 88
    assert values(page, "DCGM_FI_DEV_THERMAL_VIOLATION") == [0, 50 * 57 * MS]


def test_power_brake_has_a_counter_of_its_own(ranks: Ranks) -> None:
    """What holds the clock decides which counter grows and which bits are set."""
    node = FakeNode(
        ranks.board.cells(), "node-a", symptoms={1: KINDS["power-brake"].symptoms}, clock_ns=lambda: ranks.now
    )
    ranks.train(50)
    node.page()
    ranks.train(50, slow=True)
    page = node.page()

    assert values(page, "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS") == [0, 50 * 57 * MS]
    assert values(page, "DCGM_FI_DEV_THERMAL_VIOLATION") == [0, 0]
    assert values(page, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS") == [0, 0x88]
    assert values(page, "DCGM_FI_DEV_GPU_TEMP")[1] < 80


def test_lanes_are_lost_at_the_onset(ranks: Ranks) -> None:
    """The link has all sixteen lanes until the fault begins, then four; the clock stays full."""
    node = FakeNode(ranks.board.cells(), "node-a", symptoms={1: KINDS["pcie"].symptoms}, clock_ns=lambda: ranks.now)
    ranks.train(50)
    assert values(node.page(), "DCGM_FI_DEV_PCIE_LINK_WIDTH") == [16, 16]
    ranks.board.cell(1).afflicted_from(ranks.now)
    ranks.train(50)
    page = node.page()

    assert values(page, "DCGM_FI_DEV_PCIE_LINK_WIDTH") == [16, 4]
    assert values(page, "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH") == [16, 16]
    assert values(page, "DCGM_FI_DEV_SM_CLOCK") == [1980, 1980]


def test_frozen_page(ranks: Ranks) -> None:
    """From the onset on nothing of the page moves any more, of no GPU."""
    node = FakeNode(
        ranks.board.cells(), "node-a", symptoms={1: KINDS["dcgm-frozen"].symptoms}, clock_ns=lambda: ranks.now
    )
    ranks.train(50)
    before = node.page()
    ranks.train(50)
    last = node.page()
    ranks.board.cell(1).afflicted_from(ranks.now)
    ranks.train(500)

    assert before != last
    assert node.page() == last


def test_page_repeats_until_the_next_look(ranks: Ranks, node: FakeNode) -> None:
    """Like the real one, the page repeats its values between two looks, and energy grows from look to look."""
    ranks.train(50)
    first = node.page()
    ranks.train(10)
    assert node.page() == first
    ranks.train(50)
    second = node.page()

    energy = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    assert values(second, energy) > values(first, energy)


def test_gpu_of_a_dead_rank_is_idle(ranks: Ranks, node: FakeNode) -> None:
    """When a rank is gone, its GPU does nothing and its memory is free."""
    ranks.train(50)
    node.page()
    ranks.board.cell(0).end()
    ranks.now += 3_000 * MS
    page = node.page()

    assert values(page, "DCGM_FI_DEV_GPU_UTIL") == [0, 100]
    assert values(page, "DCGM_FI_DEV_FB_USED")[0] == 0


def test_uuids_are_made_up_but_stable() -> None:
    """A GPU has the same UUID in each run, in the form that NVML gives."""
    assert gpu_uuid("node-a", 0) == gpu_uuid("node-a", 0) != gpu_uuid("node-a", 1)
    assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", gpu_uuid("node-a", 0))


def test_serves_its_page(ranks: Ranks, node: FakeNode) -> None:
    """The page is at ``/metrics`` and nowhere else."""
    ranks.train(10)
    server = node.serve()
    try:
        with urllib.request.urlopen(f"{server.url}/metrics", timeout=60) as answer:
            assert answer.read().decode() == node.page()
        with pytest.raises(HTTPError, match="404"):
            urllib.request.urlopen(f"{server.url}/", timeout=60)
    finally:
        server.close()
