"""What the hook costs, next to the physical limit and to the usual alternatives, in one run.

Run ``make bench`` or ``python tests/bench/hook.py``; about half a minute. All columns are measured alternately, so that
whatever else the machine does hits them alike. Nothing fails here: budgets are printed with a verdict, not asserted.
"""

from __future__ import annotations

import gc
import os
import socket
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry, Summary

from straggler import StepTimer

ROUNDS = 40
STEPS = 500
COLD_STEPS = 12
TOUCHED = bytearray(8 << 20)
PHASES = ("data", "forward", "backward", "wait", "optimizer")
PROBE = """
import sys, time
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4
before, began = resident(), time.process_time()
from straggler import StepTimer
print((time.process_time() - began) * 1e3, resident() - before)
"""
"""CPU milliseconds and kB of the import. Run on its own, since whatever is loaded already is free."""

EMPTY = "the benchmark's own loop"

Step = Callable[[Callable[[], None]], None]
"""One step of five phases; its argument is called where the training would work."""


def nothing() -> None:
    """A training that does not work: the tight loop."""


def touch() -> None:
    """A training that uses the caches for itself: reads and writes 8 MB."""
    TOUCHED[::64] = TOUCHED[::64]


def hook(timer: StepTimer) -> Step:
    """The hook."""

    def step(work: Callable[[], None]) -> None:
        with timer.step(tokens=4096):
            for name in PHASES:
                with timer.phase(name):
                    work()

    return step


def empty() -> Step:
    """The loop of this benchmark itself, which is subtracted from all others."""

    def step(work: Callable[[], None]) -> None:
        for _ in PHASES:
            work()

    return step


def limit(directory: Path) -> Step:
    """What cannot be undercut: two clock reads per phase, two per step, one record written."""
    descriptor = os.open(directory / "limit", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(descriptor, 0, 4096 * 320)
    record = bytes(320)
    clock = time.monotonic_ns
    count = 0

    def step(work: Callable[[], None]) -> None:
        nonlocal count
        clock()
        for _ in PHASES:
            clock()
            work()
            clock()
        clock()
        count += 1
        os.pwrite(descriptor, record, count % 4096 * 320)

    return step


def prometheus() -> Step:
    """Six observations of prometheus_client's Summary: a step and its phases."""
    summary = Summary("step_seconds", "Time", ["phase"], registry=CollectorRegistry())
    children = [summary.labels(name) for name in PHASES]
    whole = summary.labels("step")
    clock = time.perf_counter

    def step(work: Callable[[], None]) -> None:
        began = clock()
        for child in children:
            since = clock()
            work()
            child.observe(clock() - since)
        whole.observe(clock() - began)

    return step


def statsd(directory: Path) -> Step:
    """Six datagrams in statsd's text to a unix socket: a step and its phases. A reader empties the socket."""
    path = str(directory / "statsd.sock")
    reader = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    reader.bind(path)
    reader.setblocking(False)
    writer = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    writer.setblocking(False)
    clock = time.perf_counter

    def send(name: str, seconds: float) -> None:
        try:  # noqa: SIM105 - suppress() would add to what is measured
            writer.sendto(f"train.{name}:{seconds * 1e3:.3f}|ms|#rank:0".encode(), path)
        except BlockingIOError:
            pass  # the queue is full: this measurement is lost, as it would be in life

    def step(work: Callable[[], None]) -> None:
        began = clock()
        for name in PHASES:
            since = clock()
            work()
            send(name, clock() - since)
        send("step", clock() - began)

    def drained(work: Callable[[], None]) -> None:
        step(work)
        drain(reader)

    drained.timed = step  # type: ignore[attr-defined]  # the emptying is somebody else's time
    drained.after = lambda: drain(reader)  # type: ignore[attr-defined]  # same
    return drained


def drain(reader: socket.socket) -> None:
    """Read all that is there."""
    while True:
        try:
            reader.recv(512)
        except BlockingIOError:  # noqa: PERF203 - it is the end of the loop
            return


def measure(steps: dict[str, Step], work: Callable[[], None], rounds: int, count: int) -> dict[str, list[float]]:
    """Time of each step without the work in it, in microseconds."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    clock = time.perf_counter_ns
    worked = 0

    def timed_work() -> None:
        nonlocal worked
        began = clock()
        work()
        worked += clock() - began

    def free_work() -> None:
        work()

    inner = free_work if work is nothing else timed_work
    gc.disable()
    for _ in range(rounds):
        for name, step in steps.items():
            timed: Step = getattr(step, "timed", step)
            after: Callable[[], None] = getattr(step, "after", nothing)
            for _ in range(count):
                worked = 0
                began = clock()
                timed(inner)
                taken[name].append((clock() - began - worked) / 1e3)
                after()
        gc.collect()
    gc.enable()
    return taken


def table(title: str, taken: dict[str, list[float]], floor: str) -> dict[str, tuple[float, float]]:
    """Print medians, tails and ratios to the physical limit; returns median and 99.9th percentile by name."""
    print(f"\n{title}\n{'':44}{'median':>9}{'p99.9':>9}{'ratio':>8}")
    loop = statistics.median(taken.pop(EMPTY))
    base = statistics.median(taken[floor]) - loop
    figures = {}
    for name, values in taken.items():
        values.sort()
        middle, tail = statistics.median(values) - loop, values[int(len(values) * 0.999)] - loop
        figures[name] = middle, tail
        print(f"  {name:42}{middle:7.2f}us{tail:7.1f}us{middle / base:7.2f}x")
    return figures


def verdict(what: str, figure: float, budget: float, unit: str) -> None:
    """Print one budget."""
    print(f"  {'within' if figure <= budget else 'OVER':8}{what}: {figure:.2f} of {budget:g} {unit}")


def imported(directory: Path) -> tuple[float, float]:
    """CPU milliseconds and kB of the import, from compiled files: the least of some fresh interpreters."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(directory / "compiled")
    runs = [
        subprocess.run(
            [sys.executable, "-c", PROBE], capture_output=True, text=True, check=True, env=environment
        ).stdout.split()
        for _ in range(7)
    ]
    return min(float(run[0]) for run in runs), min(float(run[1]) for run in runs)


def share_of_a_loop(directory: Path) -> float:
    """What the hook adds to a loop whose step takes 10 ms of work, as a share; alternately with and without."""
    step = hook(StepTimer(run="loop", rank=0, world_size=8, directory=directory))

    def work() -> None:
        end = time.perf_counter_ns() + 2_000_000
        while time.perf_counter_ns() < end:
            touch()

    def bare(inside: Callable[[], None]) -> None:
        for _ in PHASES:
            inside()

    taken = measure({"bare": bare, "hook": step}, work, 10, 20)
    return (statistics.median(taken["hook"]) - statistics.median(taken["bare"])) / 10_000


def optimized() -> bool:
    """Whether the interpreter was built with profile-guided optimization, as distributions build it."""
    return "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")


def main() -> int:
    """Measure and print."""
    shared = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=shared, prefix="bench-") as name:
        directory = Path(name)
        rings, lost = directory / "rings", directory / "lost"
        rings.mkdir()
        lost.mkdir()
        timer = StepTimer(run="bench", rank=0, world_size=8, directory=rings)
        full = StepTimer(run="lost", rank=1, world_size=8, directory=lost)
        steps = {
            EMPTY: empty(),
            "clock reads and one pwrite (the limit)": limit(directory),
            "hook: a step of five phases": hook(timer),
            "hook: its ring was taken away (disk full)": hook(full),
            "prometheus_client: six Summary.observe": prometheus(),
            "statsd: six datagrams": statsd(directory),
        }
        _, floor, ours, *_ = steps
        for step in steps.values():
            for _ in range(200):
                step(nothing)
        for path in lost.iterdir():
            path.unlink()
        time.sleep(0.2)
        steps["hook: its ring was taken away (disk full)"](nothing)
        tight = table("Tight loop", measure(steps, nothing, ROUNDS, STEPS), floor)
        cold = table("Cold caches: 8 MB touched in each phase", measure(steps, touch, ROUNDS, COLD_STEPS), floor)
        milliseconds, kilobytes = imported(directory)
        share = share_of_a_loop(rings)
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    if busy > 1:
        print(f"\nThis machine is busy ({busy:.0f} processes for each CPU): tails and cold caches say little.")
    print(f"\nBudgets, on Python {sys.version.split()[0]}{'' if optimized() else ' built without optimizations'}")
    verdict("step of five phases, tight, median", tight[ours][0], 8, "us")
    verdict("step of five phases, tight, p99.9", tight[ours][1], 50, "us")
    verdict("step of five phases, cold caches, median", cold[ours][0], 30, "us")
    verdict("without its ring, median", tight["hook: its ring was taken away (disk full)"][0], 8, "us")
    verdict("import, CPU", milliseconds, 30, "ms")
    verdict("import, memory", kilobytes / 1024, 3, "MB")
    verdict("share of a 10 ms step", share * 100, 0.5, "%")
    return 0


if __name__ == "__main__":
    sys.exit(main())
