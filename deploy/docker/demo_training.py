"""A training run for the compose file: processes with the real hook that wait for each other. One becomes slow.

    python demo_training.py [RANKS]

Each step is 80 ms of sleep as work, and a barrier. After 90 seconds the work of rank 2 takes 1.5 times as long, for
five minutes; then it is well again for five, and so on.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import signal
import sys
import time
from typing import Any

from straggler import StepTimer

WORK_SECONDS = 0.08
SLOW_RANK, SLOW_FACTOR = 2, 1.5
HEALTHY_SECONDS, SLOW_SECONDS = 300.0, 300.0
FIRST_SLOW_SECONDS = 90.0


def is_slow(seconds: float) -> bool:
    """Whether the slow rank is slow, so many seconds after the start."""
    since_first = seconds - FIRST_SLOW_SECONDS
    return since_first >= 0 and since_first % (SLOW_SECONDS + HEALTHY_SECONDS) < SLOW_SECONDS


def train(rank: int, ranks: int, barrier: Any) -> None:
    """Take steps for ever."""
    began = time.monotonic()
    timer = StepTimer(run="demo", rank=rank, world_size=ranks, local_rank=rank)
    while True:
        slow = rank == SLOW_RANK and is_slow(time.monotonic() - began)
        work = WORK_SECONDS * (SLOW_FACTOR if slow else 1.0)
        with timer.step(tokens=4096):
            with timer.phase("forward"):
                time.sleep(work / 3)
            with timer.phase("backward"):
                time.sleep(work * 2 / 3)
            with timer.phase("wait"):
                barrier.wait()


def main(ranks: int) -> int:
    """Start the ranks, and end with the first that ends, or at SIGTERM: all of them."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # as process 1 of a container nobody else would
    spawn = multiprocessing.get_context("spawn")  # a forked process never writes into its parent's ring
    barrier = spawn.Barrier(ranks)
    processes = [spawn.Process(target=train, args=(rank, ranks, barrier), daemon=True) for rank in range(ranks)]
    for process in processes:
        process.start()
    multiprocessing.connection.wait([process.sentinel for process in processes])
    return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8))
