"""The machine: its clock, and how much of it this process can see."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

from straggler.sidecar.doctor.finding import Finding, Health

_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""The kernel's own number for the host's: PROC_PID_INIT_INO in include/linux/proc_ns.h."""
_TIME_ERROR = 5
"""``adjtimex``: the clock is not synchronised (adjtimex(2))."""
_TIMEX_BYTES = 512
"""More than ``struct timex`` has anywhere; all zero asks and changes nothing."""
_LEAST_MEMORY_BYTES = 128 << 20


def examine_machine(root: Path = Path("/")) -> Iterator[Finding]:
    """Look at namespaces, control groups and the clock.

    Args:
        root: where ``proc`` and ``sys`` are.
    """
    yield from _pids(root)
    yield from _memory(root)
    yield judge_clock(_ask_clock())


def _pids(root: Path) -> Iterator[Finding]:
    try:
        namespace = str((root / "proc/self/ns/pid").readlink())
    except OSError as error:
        yield Finding("pid_namespace", Health.ABSENT, f"cannot be told: {error.strerror}")
        return
    if namespace == _FIRST_PID_NAMESPACE:
        yield Finding("pid_namespace", Health.OK, "the host's: the ranks' processes can be looked at")
    else:
        text = "a container's: ranks are seen by their rings, their processes' page faults and disk waits are not"
        yield Finding("pid_namespace", Health.ABSENT, text, "hostPID: true")


def _memory(root: Path) -> Iterator[Finding]:
    try:
        own = (root / "proc/self/cgroup").read_text(encoding="utf-8")
    except OSError as error:
        yield Finding("cgroup", Health.ABSENT, f"cannot be told: {error.strerror}")
        return
    # 0::/system.slice/straggler.service
    path = next((line[3:] for line in own.splitlines() if line.startswith("0::")), None)
    if path is None or not (root / "sys/fs/cgroup/cgroup.controllers").exists():
        yield Finding("cgroup", Health.ABSENT, "version 1: limits and pressure of single jobs are not read")
        return
    try:
        limit = (root / "sys/fs/cgroup" / path.strip("/") / "memory.max").read_text(encoding="utf-8").strip()
    except OSError:
        limit = "max"
    if limit.isdecimal() and int(limit) < _LEAST_MEMORY_BYTES:
        text = f"a memory limit of {int(limit) >> 20} MB; the sidecar needs about 80 MB and its peaks more"
        yield Finding("cgroup", Health.BROKEN, text, "MemoryMax=256M, or resources.limits.memory: 256Mi")
    else:
        yield Finding("cgroup", Health.OK, f"version 2, memory limit {limit}")


def judge_clock(answer: int | None) -> Finding:
    """Tell what ``adjtimex`` said; ``None``: it cannot be asked."""
    if answer is None or answer < 0:
        return Finding("clock", Health.ABSENT, "cannot be asked here")
    if answer == _TIME_ERROR:
        text = "nothing keeps it right, so times of steps may differ between nodes; --prometheus tells by how much"
        return Finding("clock", Health.ABSENT, text, "systemctl enable --now chronyd")
    return Finding("clock", Health.OK, "kept right")


def _ask_clock() -> int | None:
    try:
        return int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES)))
    except (AttributeError, OSError):
        return None
