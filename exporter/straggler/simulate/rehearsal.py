"""A run of real processes on this machine, with the sidecar that watches it and the GPUs that go with it.

What the demonstration and the end-to-end tests have in common. Prometheus and Alertmanager are not part of it: they
watch it from outside (``servers.py``).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from straggler.simulate.board import Board
from straggler.simulate.dcgm_text import Generation
from straggler.simulate.local_http import read_local
from straggler.simulate.node import FakeNode, gpu_uuid
from straggler.simulate.processes import Crew, Process
from straggler.simulate.scenario import Scenario
from straggler.simulate.servers import free_port, wait_until_ready

HOSTNAME = "demo-node"
_END_SECONDS = 15.0


class Rehearsal:
    """Everything between a training step and ``/metrics``; nothing runs until it is started.

    Args:
        directory: an empty directory on a tmpfs.
        sidecar_flags: added to ``straggler serve``; listening address, ring directory and DCGM page are given.
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
        self.rings.mkdir(mode=0o700)
        (directory / "scenario.json").write_text(scenario.to_json(), encoding="utf-8")
        self.board = Board.create(directory / "board", scenario.ranks)
        self.crew = Crew(directory)
        self.ranks: list[Process] = []
        self.node = FakeNode(self.board, HOSTNAME, generation=generation)
        self._page = self.node.serve()
        self.address = f"127.0.0.1:{free_port()}"
        """Host and port of the sidecar; the same after a restart."""
        self._sidecar_flags = tuple(sidecar_flags)
        self.sidecar: Process | None = None

    def start_sidecar(self) -> Process:
        """Start it, or start it again, and wait until it answers.

        Raises:
            SourceFailedError: it does not come up; with the end of its log.
        """
        self.sidecar = self.crew.start(
            "sidecar",
            [
                *(sys.executable, "-m", "straggler", "serve"),
                *("--listen", self.address),
                *("--ring-dir", str(self.rings)),
                *("--dcgm-url", f"{self._page.url}/metrics"),
                *self._sidecar_flags,
            ],
        )
        wait_until_ready(f"http://{self.address}/-/ready", self.sidecar)
        return self.sidecar

    def start_ranks(self) -> None:
        """Start all ranks; the first step begins when the last of them is there."""
        for rank in range(self.scenario.ranks):
            arguments = (str(self.directory), str(rank), gpu_uuid(HOSTNAME, rank))
            command = [sys.executable, "-m", "straggler.simulate.trainer", *arguments]
            self.ranks.append(self.crew.start(f"rank{rank}", command, self._environment(rank)))

    def _environment(self, rank: int) -> dict[str, str]:
        """As a launcher on this node would set it."""
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(self.scenario.ranks),
            "LOCAL_WORLD_SIZE": str(self.scenario.ranks),
            "STRAGGLER_RUN": self.scenario.run,
            "STRAGGLER_DIR": str(self.rings),
            "STRAGGLER_NODE": HOSTNAME,
        }

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
    def slow_since_ns(self) -> int | None:
        """``time.monotonic_ns()`` at the start of the first slow step; ``None`` before it."""
        return self.board.cell(self.scenario.fault.rank).slow_since_ns

    @property
    def steps(self) -> list[int]:
        """Finished steps by rank, as the ranks themselves count."""
        return [cell.steps for cell in self.board.cells()]

    def metrics(self) -> str:
        """The sidecar's page, as Prometheus would get it."""
        return read_local(f"http://{self.address}/metrics")

    def rank_table(self) -> Any:
        """The sidecar's ``/api/v1/ranks``."""
        return json.loads(read_local(f"http://{self.address}/api/v1/ranks"))

    def close(self) -> None:
        """End what still runs."""
        if self.ranks and any(process.returncode is None for process in self.ranks):
            self.board.stop()
        self.crew.stop()
        self._page.close()
