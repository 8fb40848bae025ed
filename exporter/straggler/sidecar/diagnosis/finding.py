"""What is told about one slow rank, or about a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from shlex import quote
from typing import Any

from straggler.detect import wording
from straggler.detect.cause import UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRank:
    """One rank that the others wait for. ``None`` and ``""`` are unknown."""

    run: str
    rank: int
    peer_group: str = "0"
    node: str = ""
    gpu: str = ""
    """Index on the node."""
    gpu_uuid: str = ""
    pod: str = ""
    slurm_job: str = ""
    slowdown_ratio: float
    """Own time over the peers'."""
    own_seconds: float | None = None
    peers_own_seconds: float | None = None
    since: float | None = None
    """Epoch seconds."""
    lost_share: float | None = None
    """Of each step."""
    cause: str = UNKNOWN
    cause_text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """One run as a whole."""

    run: str
    cluster: str = ""
    ranks: int | None = None
    step_seconds: float | None = None
    slow: tuple[SlowRank, ...] = ()
    """The slowest first."""
    lost_gpu_hours_an_hour: float | None = None
    lost_gpu_hours: float | None = None
    """So far."""
    alerts: tuple[str, ...] = ()
    """What else fires about it: name and what it is about."""

    @property
    def is_well(self) -> bool:
        """Whether there is nothing to tell."""
        return not self.slow and not self.alerts


_MOST_ALERTS = 4

_NEXT: Mapping[str, str] = {
    "thermal": "nvidia-smi -q -d PERFORMANCE,TEMPERATURE -i {gpu}",
    "power_brake": "nvidia-smi -q -d PERFORMANCE,POWER -i {gpu}; ipmitool sel elist | tail",
    "power_cap": "nvidia-smi -q -d POWER -i {gpu}   # lift it: nvidia-smi -i {gpu} -pl WATTS",
    "clocks_set_low": "nvidia-smi -q -d CLOCK -i {gpu}   # undo: nvidia-smi -i {gpu} -rgc; nvidia-smi -i {gpu} -rac",
    "pcie_degraded": "nvidia-smi -q -i {gpu} | grep -A8 'GPU Link Info'",
    "host_cpu": "ps -eLo psr,pcpu,pid,comm --sort=-pcpu | head -20",
    "memory": "cat /proc/pressure/memory; dmesg -T | grep -i 'out of memory' | tail",
    "work": "ask who trains: this rank gets more tokens or the popular experts; its hardware is as fast as its peers'",
    "data_loading": "iostat -x 1 3; py-spy dump --pid PID   # the loader of this rank",
    "gpu_errors": "dmesg -T | grep -i xid | tail; nvidia-smi -q -d ECC,ROW_REMAPPER -i {gpu}",
    UNKNOWN: "straggler profile {run} --rank {rank}",
}


def next_command(slow: SlowRank) -> str:
    """What to type, on the rank's node."""
    return _NEXT[slow.cause].format(gpu=quote(slow.gpu or "GPU"), run=quote(slow.run), rank=slow.rank)


def lines(state: RunState, now: float) -> list[str]:
    """A run in about ten lines.

    Args:
        state: the run.
        now: epoch seconds.
    """
    step = f", a step takes {wording.seconds(state.step_seconds)}" if state.step_seconds is not None else ""
    ranks = f"{wording.count(state.ranks, 'rank')} seen" if state.ranks is not None else "ranks unknown"
    name = f"{state.run} in {state.cluster}" if state.cluster else state.run
    told = [f"run     {name}: {ranks}{step}; {_summary(state)}"]
    for slow in state.slow[:3]:
        told += _about(slow, now)
    if len(state.slow) > 3:
        told.append(
            f"also    {len(state.slow) - 3} more slow ranks: {wording.ranks([one.rank for one in state.slow[3:]])}"
        )
    if state.slow and state.lost_gpu_hours_an_hour is not None:
        so_far = f", {state.lost_gpu_hours:.1f} so far" if state.lost_gpu_hours is not None else ""
        told.append(f"cost    {state.lost_gpu_hours_an_hour:.1f} GPU-hours an hour{so_far}")
    told += [f"alert   {alert}" for alert in state.alerts[:_MOST_ALERTS]]
    if len(state.alerts) > _MOST_ALERTS:
        told.append(f"also    {len(state.alerts) - _MOST_ALERTS} more alerts")
    return told


def _summary(state: RunState) -> str:
    if not state.slow:
        return "nobody is slow"
    return "1 rank is slow" if len(state.slow) == 1 else f"{len(state.slow)} ranks are slow"


def _about(slow: SlowRank, now: float) -> list[str]:
    own = (
        f", {wording.seconds(slow.own_seconds)} of own time a step against {wording.seconds(slow.peers_own_seconds)}"
        if slow.own_seconds is not None and slow.peers_own_seconds is not None
        else ""
    )
    lost = f"; {wording.percent(slow.lost_share)} of each step is lost" if slow.lost_share is not None else ""
    where = [
        f"node {slow.node}" if slow.node else "node unknown",
        f"GPU {slow.gpu}" if slow.gpu else "",
        slow.gpu_uuid,
        f"pod {slow.pod}" if slow.pod else "",
        f"Slurm job {slow.slurm_job}" if slow.slurm_job else "",
    ]
    told = [
        f"slow    rank {slow.rank}: {wording.times(slow.slowdown_ratio)} its peers{own}{lost}",
        f"where   {', '.join(part for part in where if part)}",
    ]
    if slow.since is not None:
        began = datetime.fromtimestamp(slow.since, timezone.utc)
        told.append(f"since   {began:%Y-%m-%d %H:%M} UTC, {wording.seconds(max(0.0, now - slow.since))} ago")
    return [*told, f"cause   {slow.cause_text or slow.cause}", f"next    {next_command(slow)}"]


def document(state: RunState) -> dict[str, Any]:
    """The same for programs. What is unknown is absent."""
    found = asdict(state)
    found["slow"] = [
        {key: value for key, value in {**asdict(slow), "next_command": next_command(slow)}.items() if _is_known(value)}
        for slow in state.slow
    ]
    return {key: value for key, value in found.items() if _is_known(value)}


def _is_known(value: Any) -> bool:
    """JSON has no NaN and no infinity; a number that is none is not known."""
    return value not in (None, "") and (not isinstance(value, float) or math.isfinite(value))
