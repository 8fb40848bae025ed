"""The kernel's text files, as numbers. Pure.

Sources: Linux, Documentation/accounting/psi.rst, Documentation/admin-guide/cgroup-v2.rst, proc_pid_stat(5),
Documentation/scheduler/sched-stats.rst.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from straggler.errors import ParseError

_PER_MICRO: Final = 1e6
_PER_NANO: Final = 1e9

MEMORY_EVENTS: Final = ("high", "max", "oom", "oom_kill")


class Stat(NamedTuple):
    """The fields of ``/proc/PID/stat`` that are used."""

    major_faults: int
    """Of all threads, as are the next two."""
    user_ticks: int
    system_ticks: int
    start_ticks: int
    """Since boot: with the pid it names one process."""
    io_wait_ticks: int
    """Of the main thread."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Where a process is in the control groups: paths below each hierarchy's mount; ``""`` where it is in none."""

    unified: str = ""
    cpu: str = ""
    memory: str = ""


def parse_stat(text: str) -> Stat:
    """Read ``/proc/PID/stat``. The name in brackets may hold blanks and brackets, so it is cut off at the last one.

    Raises:
        ParseError: it is not in that form.
    """
    fields = text.rpartition(")")[2].split()
    try:
        # numbers of proc_pid_stat(5), of which the first after the name is 3
        return Stat(*(int(fields[number - 3]) for number in (12, 14, 15, 22, 42)))
    except (IndexError, ValueError) as error:
        raise ParseError("stat of a process", text) from error


def parse_run_delay(text: str) -> float | None:
    """Read ``schedstat``: seconds in which the thread was ready and no CPU was free for it.

    Returns:
        ``None`` where the kernel does not count, which it writes as three zeros.

    Raises:
        ParseError: it is not three numbers.
    """
    try:
        ran, waited, _ = map(int, text.split())
    except ValueError as error:
        raise ParseError("schedstat", text) from error
    return waited / _PER_NANO if ran or waited else None


def parse_inner_pid(text: str) -> int | None:
    """Read the last number of ``NSpid`` in ``status``: the pid as the process itself knows it."""
    for line in text.splitlines():
        if line.startswith("NSpid:"):
            last = line.split()[-1]
            return int(last) if last.isdecimal() else None
    return None


def parse_groups(text: str) -> Groups:
    """Read ``/proc/PID/cgroup``. A path out of the reader's namespace (``/../…``) leads nowhere: it is left out."""
    paths: dict[str, str] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if colon and path.startswith("/") and ".." not in path.split("/"):
            for controller in controllers.split(","):
                paths[controller] = path
    return Groups(unified=paths.get("", ""), cpu=paths.get("cpu", ""), memory=paths.get("memory", ""))


def parse_pressure(text: str) -> dict[str, float]:
    """Read a pressure file: seconds of standing still, by ``some`` and ``full``.

    Raises:
        ParseError: a line is not in its form.
    """
    # some avg10=0.00 avg60=0.00 avg300=0.05 total=91827
    seconds: dict[str, float] = {}
    for line in text.splitlines():
        share, _, rest = line.partition(" ")
        total = rest.rpartition("total=")[2]
        if share not in ("some", "full") or not total.isdecimal():
            raise ParseError("pressure", line)
        seconds[share] = int(total) / _PER_MICRO
    return seconds


def parse_numbers(text: str) -> dict[str, int]:
    """Read a flat file of names and numbers, such as ``cpu.stat`` or ``memory.events``.

    Raises:
        ParseError: a line is something else.
    """
    numbers: dict[str, int] = {}
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if not number.isdecimal():
            raise ParseError("control group", line)
        numbers[name] = int(number)
    return numbers


def throttling(numbers: dict[str, int]) -> dict[str, float]:
    """What a ``cpu.stat`` says about the CPU limit, in either version's words; empty where there can be none."""
    if "nr_periods" not in numbers or "nr_throttled" not in numbers:
        return {}
    values = {
        "cpu_periods_total": float(numbers["nr_periods"]),
        "cpu_throttled_periods_total": float(numbers["nr_throttled"]),
    }
    if "throttled_usec" in numbers:
        values["cpu_throttled_seconds_total"] = numbers["throttled_usec"] / _PER_MICRO
    elif "throttled_time" in numbers:
        values["cpu_throttled_seconds_total"] = numbers["throttled_time"] / _PER_NANO
    return values
