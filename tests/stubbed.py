"""The NVML source on a driver library of the tests' own, whose state is a text file."""

from __future__ import annotations

import time
from pathlib import Path

from fakes import FakeClock
from straggler.model.gpu import GpuFacts, GpuKey
from straggler.model.reading import Reading
from straggler.sources.nvml.process import WorkerProcess, worker_command
from straggler.sources.nvml.read import NvmlSource

UUIDS = ("GPU-00000000-0000-0000-0000-000000000000", "GPU-00000000-0000-0000-0000-000000000001")

ANSWER_SECONDS = 30.0
"""Long enough for a busy machine."""


class Stubbed:
    """A real source with its real process.

    Args:
        library: directory of the library.
        directory: for the state file.
        clock: of the source; the process has its own.
    """

    def __init__(self, library: Path, directory: Path, clock: FakeClock) -> None:
        self.clock = clock
        self.state = directory / "state"
        self.state.write_text("")
        self.closed = directory / "closed"
        """Exists once the library was shut down in an orderly way."""
        self.library = library
        self.idle_seconds = 60.0
        self.workers: list[WorkerProcess] = []
        self.source = self.make()

    def make(self, *, required: bool = False, hang_seconds: float = 60.0) -> NvmlSource:
        """Another source on the same library."""
        return NvmlSource(self._start, clock=self.clock, required=required, hang_seconds=hang_seconds)

    def _start(self) -> WorkerProcess:
        variables = {"LD_LIBRARY_PATH": self.library, "STUB_NVML": self.state, "STUB_NVML_CLOSED": self.closed}
        command = worker_command(self.idle_seconds)
        worker = WorkerProcess(["env", *(f"{name}={value}" for name, value in variables.items()), *command])
        self.workers.append(worker)
        return worker

    def look(self, state: str = "", timeout_seconds: float = ANSWER_SECONDS) -> Reading[GpuFacts]:
        """Look at a driver in this state."""
        self.state.write_text(state)
        return self.source.collect(timeout_seconds)

    def gpus(self, state: str = "") -> dict[GpuKey, GpuFacts]:
        """The GPUs, by key."""
        return {gpu.key: gpu for gpu in self.look(state).facts}

    def close(self) -> None:
        """Leave no process behind."""
        self.source.close()
        for worker in self.workers:
            worker.kill()
            wait_until_gone(worker)


def wait_until_gone(worker: WorkerProcess) -> None:
    """Wait for the end of a process."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while not worker.gone():
        assert time.monotonic() < deadline, f"process {worker.pid} does not end"
        time.sleep(0.01)
