"""Reads /proc and the control groups: of the node, and of each rank whose process can be found.

The process of a rank is found by the lock on its ring, which the kernel answers in this process's PID namespace, or not
at all (a sidecar without ``hostPID`` sees no process of another pod). A pid is used again sooner or later. So the
process must call itself by the pid that the ring names, and it must have started when it had started at the first look.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from straggler.errors import ParseError
from straggler.model.gpu_identity import normal_bus_id
from straggler.model.host import NodeHost, Pressure, RankHost, Writer
from straggler.model.rank import RankKey
from straggler.model.reading import Problem, Reading, SourceState
from straggler.sources.host.parse import (
    MEMORY_EVENTS,
    Groups,
    parse_groups,
    parse_inner_pid,
    parse_numbers,
    parse_pressure,
    parse_run_delay,
    parse_stat,
    throttling,
)

SOURCE: Final = "host"

HOST_REASONS: Final = (
    "pid_of_another",  # the pid is another process's by now, or never was the writer's
    "bad_format",
)

_RESOURCES: Final = ("cpu", "memory", "io")
_MOST_BYTES: Final = 65_536
_MOST_LEVELS: Final = 16


class _GroupsSay(NamedTuple):
    """What the control groups around a process say, for all processes in them alike."""

    throttling: Mapping[str, float]
    pressure: Pressure
    memory_events: Mapping[str, float]


class HostSource:
    """The operating system's view. For one thread at a time.

    Args:
        root: where the host's file system is: ``/``, or where it is mounted in a container.
        ticks_per_second: of ``/proc/PID/stat``.
    """

    def __init__(self, root: Path, *, ticks_per_second: float | None = None) -> None:
        self._proc = root / "proc"
        self._groups = root / "sys/fs/cgroup"
        self._ticks = ticks_per_second or os.sysconf("SC_CLK_TCK")
        self._started: dict[tuple[RankKey, Writer], int] = {}
        self._problems: list[Problem] = []
        self._counts_io_wait = True
        self._said: dict[Groups, _GroupsSay] = {}
        """In this look: the ranks of a container are in the same groups, and half of all files are the groups'."""

    def collect(self, writers: Mapping[RankKey, Writer]) -> Reading[NodeHost | RankHost]:
        """Look once.

        Args:
            writers: the processes of living ranks, as far as they are known.
        """
        self._problems = []
        self._said = {}
        if not (self._proc / "stat").exists():
            return Reading(source=SOURCE, state=SourceState.ABSENT)
        node = NodeHost(pressure=self._node_pressure(), gpu_bus_ids=self._gpu_bus_ids())
        self._counts_io_wait = self._is_io_wait_counted()
        ranks = [facts for key, writer in writers.items() if (facts := self._rank(key, writer)) is not None]
        self._started = {known: ticks for known, ticks in self._started.items() if writers.get(known[0]) == known[1]}
        return Reading(source=SOURCE, state=SourceState.OK, facts=(node, *ranks), problems=tuple(self._problems))

    def _node_pressure(self) -> Pressure:
        pressure = self._pressure(self._proc / "pressure", "")
        # Of a whole system, says psi.rst, "CPU full is undefined", and it is printed as zero.
        return {what: seconds for what, seconds in pressure.items() if what != ("cpu", "full")}

    def _pressure(self, directory: Path, suffix: str) -> dict[tuple[str, str], float]:
        found: dict[tuple[str, str], float] = {}
        for resource in _RESOURCES:
            path = directory / f"{resource}{suffix}"
            text = _read(path)
            if text is None:
                continue
            try:
                found |= {(resource, share): seconds for share, seconds in parse_pressure(text).items()}
            except ParseError as error:
                self._refuse(path, error)
        return found

    def _group_pressure(self, path: str) -> Pressure:
        """The group's own. That of the root group is the node's, which is told once, and not of each rank again."""
        group = self._group("unified", path)
        # "/" is the root of the reader's namespace: in a container that is the container's group. The true root alone
        # has no cgroup.type ("exists on non-root cgroups").
        is_root = path == "/" and not (group / "cgroup.type").exists()
        return {} if is_root or not path else self._pressure(group, ".pressure")

    def _gpu_bus_ids(self) -> frozenset[str]:
        try:
            names = [path.name for path in (self._proc / "driver/nvidia/gpus").iterdir()]
        except OSError:
            return frozenset()
        return frozenset(map(normal_bus_id, names)) - {""}

    def _rank(self, key: RankKey, writer: Writer) -> RankHost | None:
        directory = self._proc / str(writer.pid)
        text, status = _read(directory / "stat"), _read(directory / "status")
        if text is None:
            return None  # ended, or hidden
        try:
            stat = parse_stat(text)
        except ParseError as error:
            self._refuse(directory / "stat", error)
            return None
        inner = parse_inner_pid(status or "")
        known_start = self._started.setdefault((key, writer), stat.start_ticks)
        if inner not in (None, writer.inner_pid) or stat.start_ticks != known_start:
            detail = f"process {writer.pid} is not the one that writes for rank {key.rank} of {key.run!r}"
            self._problems.append(Problem(reason="pid_of_another", detail=detail))
            return None
        values = {
            "cpu_user_seconds_total": stat.user_ticks / self._ticks,
            "cpu_system_seconds_total": stat.system_ticks / self._ticks,
            "major_faults_total": float(stat.major_faults),
        }
        if self._counts_io_wait:
            values["io_wait_seconds_total"] = stat.io_wait_ticks / self._ticks
        delay = self._run_delay(directory / "schedstat")
        if delay is not None:
            values["run_delay_seconds_total"] = delay
        groups = self._groups_say(parse_groups(_read(directory / "cgroup") or ""))
        return RankHost(
            key=key,
            values={**values, **groups.throttling},
            pressure=groups.pressure,
            memory_events=groups.memory_events,
        )

    def _groups_say(self, groups: Groups) -> _GroupsSay:
        said = self._said.get(groups)
        if said is None:
            said = _GroupsSay(
                self._throttling(groups), self._group_pressure(groups.unified), self._memory_events(groups)
            )
            self._said[groups] = said
        return said

    def _is_io_wait_counted(self) -> bool:
        """Whether the kernel counts: since 5.14 it does so only when told to, and before it has no such switch."""
        return (_read(self._proc / "sys/kernel/task_delayacct") or "1").strip() != "0"

    def _run_delay(self, path: Path) -> float | None:
        text = _read(path)
        if text is None:
            return None
        try:
            return parse_run_delay(text)
        except ParseError as error:
            self._refuse(path, error)
            return None

    def _throttling(self, groups: Groups) -> dict[str, float]:
        """By the nearest limit above the process: the container's, the pod's or the job's."""
        hierarchy, path = ("cpu", groups.cpu) if groups.cpu else ("unified", groups.unified)
        nearest: dict[str, float] = {}
        for level in (PurePosixPath(path), *PurePosixPath(path).parents)[:_MOST_LEVELS] if path else ():
            values = throttling(self._numbers(self._group(hierarchy, str(level)) / "cpu.stat"))
            if values.get("cpu_periods_total"):
                return values
            nearest = nearest or values
        return nearest

    def _memory_events(self, groups: Groups) -> dict[str, float]:
        if groups.memory:
            # the first version counts only how often the limit was hit
            text = (_read(self._group("memory", groups.memory) / "memory.failcnt") or "").strip()
            return {"max": float(text)} if text.isdecimal() else {}
        if not groups.unified:
            return {}
        numbers = self._numbers(self._group("unified", groups.unified) / "memory.events")
        return {event: float(numbers[event]) for event in MEMORY_EVENTS if event in numbers}

    def _group(self, hierarchy: str, path: str) -> Path:
        """A control group's directory. Where the first version is mounted too, the second is beside it."""
        base = self._groups
        if hierarchy != "unified":
            base /= hierarchy
        elif not (base / "cgroup.controllers").exists():
            base /= "unified"
        return base / path.lstrip("/")

    def _numbers(self, path: Path) -> dict[str, int]:
        text = _read(path)
        if text is None:
            return {}
        try:
            return parse_numbers(text)
        except ParseError as error:
            self._refuse(path, error)
            return {}

    def _refuse(self, path: Path, error: ParseError) -> None:
        self._problems.append(Problem(reason="bad_format", detail=f"{path}: {error}"))


def _read(path: Path) -> str | None:
    """The text of a file; ``None`` where there is none for us: no file, no permission, a process that has ended."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
