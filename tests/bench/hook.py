"""What the hook costs, next to the physical limit and to the usual alternatives, in one run.

Run ``make bench`` or ``python tests/bench/hook.py``; about half a minute. All columns are measured alternately, so that
whatever else the machine does hits them alike. Nothing fails here: budgets are printed with a verdict, not asserted.

Where a step takes 10 ms, the interpreter, the kernel's code and the tables of memory pages have left the caches between
two phases, on a shared machine also where the training touches nothing: whatever runs then takes ten to twenty times
what it takes in a tight loop, the limit too. So each budget is printed beside what the limit takes of it, and empty
``with`` blocks show what Python itself takes for this way of marking phases.
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
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Summary

from straggler import StepTimer

ROUNDS = 40
STEPS = 500
WARM_UP = 20
"""Steps of each round of the tight loop that do not count: the first one comes after the other columns, and is cold.
With one such step in 500 the 99.9th percentile would be that of cold steps."""
COLD_STEPS = 12
WORK_ROUNDS = 10
WORK_STEPS = 12
PHASE_NS = 2_000_000
"""Work in each of five phases: a step of 10 ms."""
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
LIMIT = "clock reads and one pwrite (the limit)"
HOOK = "hook: a step of five phases"
LOST = "hook: its ring was taken away (disk full)"

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


class Block:
    """The least that can stand behind ``with`` in Python."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def blocks() -> Step:
    """Five empty blocks in a sixth, without a clock and without a word to anybody."""
    block = Block()

    def step(work: Callable[[], None]) -> None:
        with block:
            for _ in PHASES:
                with block:
                    work()

    return step


def work_for_a_while() -> None:
    """A training that works for 2 ms."""
    end = time.perf_counter_ns() + PHASE_NS
    while time.perf_counter_ns() < end:
        touch()


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


def measure(
    steps: dict[str, Step], work: Callable[[], None], rounds: int, count: int, warm_up: int = 0
) -> dict[str, list[float]]:
    """Time of each step without the work in it, in microseconds; not of the first ``warm_up`` steps of a round."""
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
            for number in range(-warm_up, count):
                worked = 0
                began = clock()
                timed(inner)
                microseconds = (clock() - began - worked) / 1e3
                if number >= 0:
                    taken[name].append(microseconds)
                after()
        gc.collect()
    gc.enable()
    return taken


class Figures(NamedTuple):
    """Of many steps, in microseconds, without the benchmark's own loop."""

    median: float
    tail: float
    """The 99.9th percentile."""


def table(title: str, taken: dict[str, list[float]]) -> dict[str, Figures]:
    """Print medians, tails and ratios to the physical limit; give them by name."""
    print(f"\n{title}\n{'':44}{'quickest tenth':>16}{'median':>9}{'p99.9':>11}{'ratio':>8}")
    loop = sorted(taken.pop(EMPTY))
    base = statistics.median(taken[LIMIT]) - statistics.median(loop)
    figures = {}
    for name, values in taken.items():
        values.sort()
        quick = values[len(values) // 10] - loop[len(loop) // 10]
        middle = statistics.median(values) - statistics.median(loop)
        tail = values[int(len(values) * 0.999)] - statistics.median(loop)
        figures[name] = Figures(middle, tail)
        shown = f"{tail:9.1f}us" if len(values) >= 1000 else " " * 11
        print(f"  {name:42}{quick:14.2f}us{middle:7.2f}us{shown}{middle / base:7.2f}x")
    return figures


def verdict(what: str, figure: float, budget: float, unit: str, limit: float | None = None) -> None:
    """Print one budget, and what the physical limit takes of it."""
    least = "" if limit is None else f" (the limit: {limit:.2f})"
    print(f"  {'within' if figure <= budget else 'OVER':8}{what}: {figure:.2f} of {budget:g} {unit}{least}")


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


def interpreter() -> str:
    """Which Python this is. Distributions optimize theirs by other means too, which the build does not tell."""
    told = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    return f"Python {sys.version.split()[0]}{', built with --enable-optimizations' if told else ''} ({sys.executable})"


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
            LIMIT: limit(directory),
            "six empty with blocks (Python's own)": blocks(),
            HOOK: hook(timer),
            LOST: hook(full),
            "prometheus_client: six Summary.observe": prometheus(),
            "statsd: six datagrams": statsd(directory),
        }
        for step in steps.values():
            for _ in range(200):
                step(nothing)
        for path in lost.iterdir():
            path.unlink()
        time.sleep(0.2)
        steps[LOST](nothing)
        tight = table("Tight loop", measure(steps, nothing, ROUNDS, STEPS, WARM_UP))
        cold = table("Cold caches: 8 MB touched in each phase", measure(steps, touch, ROUNDS, COLD_STEPS))
        long = table(
            "Steps of 10 ms: 2 ms of touching in each phase", measure(steps, work_for_a_while, WORK_ROUNDS, WORK_STEPS)
        )
        milliseconds, kilobytes = imported(directory)
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    if busy > 1:
        print(f"\nThis machine is busy ({busy:.0f} processes for each CPU): tails and cold caches say little.")
    print(f"\nBudgets, on {interpreter()}")
    verdict("step of five phases, tight, median", tight[HOOK].median, 8, "us", tight[LIMIT].median)
    verdict("step of five phases, tight, p99.9", tight[HOOK].tail, 50, "us", tight[LIMIT].tail)
    verdict("step of five phases, cold caches, median", cold[HOOK].median, 30, "us", cold[LIMIT].median)
    verdict("without its ring, median", tight[LOST].median, 8, "us")
    verdict("share of a 10 ms step", long[HOOK].median / 100, 0.5, "%", long[LIMIT].median / 100)
    verdict("import, CPU", milliseconds, 30, "ms")
    verdict("import, memory", kilobytes / 1024, 3, "MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
