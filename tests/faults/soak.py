"""A long time of steps, and whether memory, descriptors and series stay where they were. ``make soak``.

Eight ranks write real rings faster than they would train, and the sidecar is scraped as often per step as in life: an
hour at 100 steps a second and a scrape every 15 s is 360,000 steps a rank and 240 scrapes. What is compressed is only
the waiting: the sidecar polls by itself every 2 s of real time and must keep up, so the pace is bounded by the ring
(4,096 steps between two looks). Jobs end and begin anew four times an hour, since that is where things leak.

Usage:
    python tests/faults/soak.py [MINUTES OF TRAINING] [TIMES FASTER]
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from faults.bench import Figure, descriptors, memory_mb, sidecar, value
from ring_files import RingFile
from straggler.wire import layout

RANKS = 8
STEPS_PER_SECOND = 100
SCRAPE_SECONDS = 15.0
JOB_SECONDS = 900.0
MOST_GROWTH_MB = 8.0


class State(NamedTuple):
    """The sidecar at one moment."""

    memory_mb: float
    descriptors: int
    series: int


def soak(minutes: float, faster: float) -> Figure:
    """Let the sidecar live through so many minutes of training."""
    rounds = int(minutes * 60 / SCRAPE_SECONDS)
    per_job = max(1, min(int(JOB_SECONDS / SCRAPE_SECONDS), rounds // 4))
    states: list[State] = []
    ends_of_jobs: list[State] = []
    exact = True
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        rings = Path(name)
        with sidecar(rings) as server:
            for job, first in enumerate(range(0, rounds, per_job)):
                ranks = [
                    RingFile(rings / f"{job}-{rank}.ring", run="soak", rank=rank, capacity=4096)
                    for rank in range(RANKS)
                ]
                for turn in range(first, min(first + per_job, rounds)):
                    ends = began + (turn + 1) * SCRAPE_SECONDS / faster
                    for rank in ranks:
                        rank.step(int(SCRAPE_SECONDS * STEPS_PER_SECOND))
                    time.sleep(max(0.0, ends - time.monotonic()))
                    page = server.metrics()
                    states.append(
                        State(
                            memory_mb(server.pid),
                            descriptors(server.pid),
                            sum(not line.startswith("#") for line in page.splitlines()),
                        )
                    )
                    exact &= value(page, "training_step_seconds_count") == ranks[0].serial
                ends_of_jobs.append(states[-1])
                for rank in ranks:
                    rank.goodbye(layout.STATUS_FINISHED)
                    rank.close()
                    rank.path.unlink()
            missed = value(server.metrics(), "straggler_exporter_records_missed_total") or 0
    gc.collect()
    # Job beside job, each at its end: the first pages of a job lack the series that need two looks (a rate, a host's
    # pressure), so a page from the middle of one job and one from the end of another differ without any growth.
    warm, last = ends_of_jobs[0], ends_of_jobs[-1]
    grown = last.memory_mb - warm.memory_mb
    flat = grown < MOST_GROWTH_MB and last.descriptors <= warm.descriptors + RANKS and last.series <= warm.series * 1.1
    text = (
        f"{minutes:.0f} minutes of training in {(time.monotonic() - began) / 60:.1f}: {RANKS} ranks x "
        f"{rounds * int(SCRAPE_SECONDS * STEPS_PER_SECOND)} steps, {len(states)} scrapes, {missed:.0f} records "
        "missed; "
        f"memory {warm.memory_mb:.1f} -> {last.memory_mb:.1f} MB, descriptors {warm.descriptors} -> "
        f"{last.descriptors}, series {warm.series} -> {last.series}; totals {'exact' if exact else 'WRONG'}"
    )
    return Figure(flat and exact, text)


def main(arguments: list[str]) -> int:
    """Print the figure."""
    minutes = float(arguments[0]) if arguments else 60.0
    faster = float(arguments[1]) if len(arguments) > 1 else 12.0
    figure = soak(minutes, faster)
    print(f"{'flat' if figure.held else 'NOT FLAT'}: {figure.text}")  # noqa: T201 - a figure is printed
    return 0 if figure.held else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
