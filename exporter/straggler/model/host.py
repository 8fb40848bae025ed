"""What the operating system says about the node, and about the process of a rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from straggler.model.rank import RankKey

Pressure = Mapping[tuple[str, str], float]
"""Seconds since boot in which tasks stood still for want of a resource, by resource (``cpu``, ``memory``, ``io``) and
share: ``some`` task did, or ``full``: all did."""


class Writer(NamedTuple):
    """The process that writes a rank's ring."""

    pid: int
    """In this process's own PID namespace."""
    inner_pid: int
    """In the writer's, as its ring says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHost:
    """The node as a whole."""

    pressure: Pressure = field(default_factory=dict)
    gpu_bus_ids: frozenset[str] = frozenset()
    """Normal bus ids of the GPUs that the kernel's NVIDIA driver has, asked without opening any; may be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankHost:
    """The process of one rank, and its control group. What cannot be read is not there: it is absent, not zero."""

    key: RankKey
    values: Mapping[str, float] = field(default_factory=dict)
    """By catalogue name without ``training_rank_host_``, all of them counters."""
    pressure: Pressure = field(default_factory=dict)
    """Of the control group."""
    memory_events: Mapping[str, float] = field(default_factory=dict)
    """Of the control group, by event: ``high``, ``max``, ``oom``, ``oom_kill``."""
