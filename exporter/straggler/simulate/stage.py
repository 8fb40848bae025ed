"""One node of a rehearsal: its GPUs with their page, its directory of rings, and the sidecar that watches both."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from straggler.simulate.board import Board
from straggler.simulate.dcgm_text import Generation
from straggler.simulate.fabric import Fabric
from straggler.simulate.faults import Symptoms
from straggler.simulate.local_http import read_local
from straggler.simulate.nccl_log import nccl_logs
from straggler.simulate.node import FakeNode, gpu_uuid
from straggler.simulate.processes import Crew, Process
from straggler.simulate.scenario import Scenario
from straggler.simulate.servers import free_port, wait_until_ready


def node_name(scenario: Scenario, node: int) -> str:
    """Name of a node: ``RUN-node`` where there is one, else ``RUN-node-a``, ``RUN-node-b`` and so on."""
    return f"{scenario.run}-node" + ("" if scenario.nodes == 1 else f"-{chr(ord('a') + node)}")


HOSTNAME = node_name(Scenario(), 0)
"""Of a run that has no other name."""


class StagedNode:
    """Nothing runs but the GPUs' page, until it is started.

    Args:
        node: its number.
        crew: starts the sidecar; its directory gets the rings.
        sidecar_flags: added to ``straggler serve``; listening address, ring directory and DCGM page are given.
    """

    def __init__(
        self,
        scenario: Scenario,
        node: int,
        board: Board,
        crew: Crew,
        *,
        sidecar_flags: Sequence[str] = (),
        generation: Generation = Generation.TEMPLATE,
    ) -> None:
        self.name = node_name(scenario, node)
        self.ranks = scenario.ranks_on(node)
        self.rings = crew.directory / "rings" / self.name
        self.rings.mkdir(mode=0o700)
        self._scenario = scenario
        self._crew = crew
        self._gpus = FakeNode(
            [board.cell(rank) for rank in self.ranks],
            self.name,
            symptoms=self._symptoms,
            generation=generation,
        )
        self._page = self._gpus.serve()
        self._fabric = self._with_fabric(board) if scenario.nodes > 1 else None
        self.address = f"127.0.0.1:{free_port()}"
        """Host and port of the sidecar; the same after a restart."""
        self._sidecar_flags = tuple(sidecar_flags)
        self.sidecar: Process | None = None

    def start_sidecar(self) -> Process:
        """Start it, or start it again, and wait until it answers.

        Raises:
            SourceFailedError: it does not come up; with the end of its log.
        """
        self.sidecar = self._crew.start(
            "sidecar" if self._scenario.nodes == 1 else f"sidecar-{self.name}",
            [
                *(sys.executable, "-m", "straggler", "serve"),
                *("--listen", self.address),
                *("--ring-dir", str(self.rings)),
                *("--dcgm-url", f"{self._page.url}/metrics"),
                *self._network_flags(),
                *self._host_flags(),
                *self._sidecar_flags,
            ],
        )
        wait_until_ready(f"http://{self.address}/-/ready", self.sidecar)
        return self.sidecar

    def _with_fabric(self, board: Board) -> Fabric:
        return Fabric(
            self._sysfs,
            [board.cell(rank) for rank in self.ranks],
            symptoms=self._symptoms,
            carries=not self._scenario.fault.symptoms.over_sockets,
        )

    @property
    def _symptoms(self) -> dict[int, Symptoms]:
        """By place on this node: GPU and adapter have the number of their rank."""
        fault = self._scenario.fault
        return {fault.rank - self.ranks.start: fault.symptoms} if fault.rank in self.ranks else {}

    @property
    def _sysfs(self) -> Path:
        return self._crew.directory / "sys" / self.name

    def _network_flags(self) -> tuple[str, ...]:
        """A run on one node has no network; the real one of this machine is none of its business."""
        if self._fabric is None:
            return ("--infiniband-enabled", "false")
        logs = nccl_logs(self._crew.directory, self.name)
        return ("--infiniband-sys-dir", str(self._sysfs), "--nccl-logs", str(logs / "*.log"))

    def _host_flags(self) -> tuple[str, ...]:
        """Ranks that sleep do not get slower when this machine is busy, so its queues are no cause of anything."""
        return () if self._scenario.fault.kind.competes else ("--host-enabled", "false")

    def start_rank(self, rank: int) -> Process:
        """Start one of this node's ranks."""
        local = rank - self.ranks.start
        arguments = (str(self._crew.directory), str(rank), gpu_uuid(self.name, local))
        command = [sys.executable, "-m", "straggler.simulate.trainer", *arguments]
        return self._crew.start(f"rank{rank}", command, self._environment(rank, local))

    def _environment(self, rank: int, local_rank: int) -> dict[str, str]:
        """As a launcher on this node would set it."""
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": str(self._scenario.ranks),
            "LOCAL_WORLD_SIZE": str(len(self.ranks)),
            "STRAGGLER_RUN": self._scenario.run,
            "STRAGGLER_DIR": str(self.rings),
            "STRAGGLER_NODE": self.name,
        }

    def metrics(self) -> str:
        """The sidecar's page, as Prometheus would get it."""
        return read_local(f"http://{self.address}/metrics")

    def rank_table(self) -> Any:
        """The sidecar's ``/api/v1/ranks``."""
        return json.loads(read_local(f"http://{self.address}/api/v1/ranks"))

    def close(self) -> None:
        """Take the GPUs' page away; the sidecar belongs to the crew."""
        self._page.close()
        if self._fabric is not None:
            self._fabric.close()
