"""One rank of a simulated run: a real process with the real hook, whose work is sleep, but for the work of its host.

``python -m straggler.simulate.trainer DIRECTORY RANK GPU_UUID``. The directory holds ``scenario.json``, the board, the
barrier's pipes and, in a run over several nodes, what NCCL would log. Parts of a step end at absolute times, so what a
sleep takes too long is taken from the next part and a step does not drift; the ranks' exchange ends for all at the same
moment, a fixed time after the last arrival.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from straggler import StepTimer
from straggler.simulate import board as at
from straggler.simulate.barrier import Barrier, RunEndedError
from straggler.simulate.board import Board, Cell
from straggler.simulate.nccl_log import nccl_logs, render_log
from straggler.simulate.scenario import Scenario

_NS = 1_000_000_000
_LATE_NS = 5_000_000
"""A process that was held up for longer does not make up for it: the next step is planned from now on."""


class Pace:
    """Sleeps up to planned moments, one after the other."""

    def __init__(self) -> None:
        self.planned_ns = time.monotonic_ns()
        """When what was done last was to end, and the GPU did end it; the host may have noticed later."""

    def begin_step(self) -> None:
        """Go on from the plan, or from now if that is long past."""
        now = time.monotonic_ns()
        if now - self.planned_ns > _LATE_NS:
            self.planned_ns = now

    def spend(self, seconds: float) -> None:
        """Be busy for so long after the planned end of what was before."""
        self.sleep_until(self.planned_ns + round(seconds * _NS))

    def compute(self, seconds: float) -> None:
        """Use a processor for so long.

        What follows is planned from the end: if others use the processor too, it begins later, as a GPU's work begins
        when the host has launched it.
        """
        if seconds:
            used = time.thread_time_ns()
            while time.thread_time_ns() - used < seconds * _NS:
                pass
            self.planned_ns = time.monotonic_ns()

    def sleep_until(self, planned_ns: int) -> None:
        """Be busy until then."""
        self.planned_ns = planned_ns
        while (left := planned_ns - time.monotonic_ns()) > 0:
            time.sleep(left / _NS)


def train(directory: Path, rank: int, gpu_uuid: str) -> None:
    """Take steps until the board says that the run ends."""
    scenario = Scenario.from_json((directory / "scenario.json").read_text(encoding="utf-8"))
    board = Board(directory / "board")
    barrier, cell, pace = Barrier(directory, board, rank), board.cell(rank), Pace()
    host_seconds = scenario.work.host_seconds  # what a fault makes of it is real, and happens by itself
    if scenario.nodes > 1:
        _log_as_nccl(directory, scenario, rank)
    cell.begin()
    timer = StepTimer()
    timer.set_identity(gpu_uuid=gpu_uuid)
    try:
        for step in timer.data(_batches(scenario, board, cell, pace, rank)):
            work = scenario.work_of(rank, step)
            with timer.step(tokens=scenario.tokens):
                if work.h2d_seconds:
                    with timer.phase("h2d"):
                        pace.spend(work.h2d_seconds)
                with timer.phase("forward"):
                    _launch(at.FORWARD, cell, pace, host_seconds / 2)
                    pace.spend(work.forward_seconds)
                with timer.phase("backward"):
                    _launch(at.BACKWARD, cell, pace, host_seconds / 2)
                    pace.spend(work.backward_seconds)
                with timer.phase("wait"):
                    _launch(at.WAIT, cell, pace)
                    pace.sleep_until(barrier.wait(step) + round(work.all_reduce_seconds * _NS))
                with timer.phase("optimizer"):
                    _launch(at.OPTIMIZER, cell, pace)
                    pace.spend(work.optimizer_seconds)
            cell.finish_step()
    except RunEndedError:
        pass  # others are done: so are we, in the middle of a step that will never be whole
    finally:
        timer.close()
        cell.end()


def _launch(phase: int, cell: Cell, pace: Pace, host_seconds: float = 0.0) -> None:
    """Let the GPU begin something. It has been idle since the end of what was before, however late the host is."""
    cell.enter(at.IDLE, pace.planned_ns)
    pace.compute(host_seconds)
    cell.enter(phase, time.monotonic_ns())


def _log_as_nccl(directory: Path, scenario: Scenario, rank: int) -> None:
    host, pid = os.environ["STRAGGLER_NODE"], os.getpid()
    over_sockets = scenario.fault.symptoms.over_sockets
    log = nccl_logs(directory, host) / f"nccl.{host}.{pid}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(render_log(scenario, rank, host, pid, over_sockets=over_sockets), encoding="utf-8")


def _batches(scenario: Scenario, board: Board, cell: Cell, pace: Pace, rank: int) -> Iterator[int]:
    """The data loader: each batch is the number of its step."""
    step = 1
    while board.stop_step is None or step <= board.stop_step:
        now = time.monotonic_ns()
        if cell.onset_ns is None and rank == scenario.fault.rank and scenario.fault.lasts_in(step):
            cell.afflicted_from(now)
        cell.begin_step(scenario.clock_ratio(rank, step))
        cell.enter(at.DATA, now)
        pace.begin_step()
        pace.spend(scenario.work_of(rank, step).data_seconds)
        yield step
        step += 1


if __name__ == "__main__":
    train(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
