"""A run of real processes on this machine, with the sidecars that watch it and the GPUs that go with it.

What the demonstration and the end-to-end tests have in common. Prometheus and Alertmanager are not part of it: they
watch it from outside (``servers.py``).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from straggler.simulate.board import Board
from straggler.simulate.dcgm_text import Generation
from straggler.simulate.processes import Crew, Process
from straggler.simulate.scenario import Scenario
from straggler.simulate.stage import StagedNode

_END_SECONDS = 15.0


class Rehearsal:
    """Everything between a training step and ``/metrics``; nothing runs until it is started.

    Args:
        directory: an empty directory on a tmpfs.
        sidecar_flags: added to each ``straggler serve``; listening address, ring directory and DCGM page are given.
    """

    def __init__(
        self,
        scenario: Scenario,
        directory: Path,
        *,
        sidecar_flags: Sequence[str] = (),
        generation: Generation = Generation.TEMPLATE,
    ) -> None:
        self.scenario = scenario
        self.directory = directory
        self.rings = directory / "rings"
        """One directory for each node in it."""
        self.rings.mkdir(mode=0o700)
        (directory / "scenario.json").write_text(scenario.to_json(), encoding="utf-8")
        self.board = Board.create(directory / "board", scenario.ranks)
        self.crew = Crew(directory)
        self.ranks: list[Process] = []
        self.nodes = [
            StagedNode(scenario, node, self.board, self.crew, sidecar_flags=sidecar_flags, generation=generation)
            for node in range(scenario.nodes)
        ]

    @property
    def address(self) -> str:
        """Host and port of the first node's sidecar."""
        return self.nodes[0].address

    @property
    def sidecar(self) -> Process | None:
        """Of the first node, once it was started."""
        return self.nodes[0].sidecar

    def start_sidecars(self) -> None:
        """Start those of all nodes, or start them again, and wait until they answer.

        Raises:
            SourceFailedError: one does not come up; with the end of its log.
        """
        for node in self.nodes:
            node.start_sidecar()

    def start_ranks(self) -> None:
        """Start all ranks; the first step begins when the last of them is there."""
        self.ranks = [node.start_rank(rank) for node in self.nodes for rank in node.ranks]
        fault = self.scenario.fault
        if fault.kind.competes and not fault.is_none:
            victim = self.ranks[fault.rank]
            arguments = (str(self.directory), str(fault.rank), str(victim.pid))
            for number in range(1, round(fault.factor)):
                command = [sys.executable, "-m", "straggler.simulate.neighbour", *arguments]
                self.crew.start(f"neighbour{number}", command)

    def end_ranks(self) -> bool:
        """Let the run end as a training ends, all ranks after the same step; whether all did so in time."""
        self.board.stop()
        deadline = time.monotonic() + _END_SECONDS
        codes = [process.wait(max(0.1, deadline - time.monotonic())) for process in self.ranks]
        return all(code == 0 for code in codes)

    def tend(self) -> list[Process]:
        """Mark the GPUs of dead ranks as idle; gives the ranks that ended with an error."""
        dead = [(rank, process) for rank, process in enumerate(self.ranks) if process.returncode is not None]
        for rank, _ in dead:
            self.board.cell(rank).end()
        return [process for _, process in dead if process.returncode != 0]

    @property
    def onset_ns(self) -> int | None:
        """``time.monotonic_ns()`` at the start of the first step under the fault; ``None`` before it."""
        return self.board.cell(self.scenario.fault.rank).onset_ns

    @property
    def steps(self) -> list[int]:
        """Finished steps by rank, as the ranks themselves count."""
        return [cell.steps for cell in self.board.cells()]

    def metrics(self) -> str:
        """The page of the first node's sidecar, as Prometheus would get it."""
        return self.nodes[0].metrics()

    def rank_table(self) -> Any:
        """``/api/v1/ranks`` of the first node's sidecar, with the ranks of all nodes in it."""
        first, *others = (node.rank_table() for node in self.nodes)
        return {**first, "ranks": [*first["ranks"], *(rank for table in others for rank in table["ranks"])]}

    def close(self) -> None:
        """End what still runs."""
        if self.ranks and any(process.returncode is None for process in self.ranks):
            self.board.stop()
        self.crew.stop()
        for node in self.nodes:
            node.close()
