"""How fast the network was, from the traces of several ranks.

A collective lasts, on each rank, from its own arrival to the common end. So only the rank that arrived last shows the
time of the transfer; on all others the same kernel contains their waiting. The last to arrive is the one with the
shortest kernel: that needs no agreement between the clocks of two nodes. If not all ranks of the group are among the
traces, the last one may be missing, and the bandwidth is a lower bound.

``algbw`` is bytes over that time. ``busbw`` is what a link carries, with NCCL's factors: 2 (n - 1) / n for all-reduce,
(n - 1) / n for all-gather, reduce-scatter and all-to-all, 1 for the others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from straggler.sources.trace.parse import Collective, Trace

_NS: Final = 1e-9
_SHARED: Final = ("allgather", "reducescatter", "alltoall")
_ALL_REDUCE: Final = "allreduce"


def bus_factor(name: str, group_size: int) -> float:
    """By what ``algbw`` is multiplied.

    Args:
        name: of the collective, as the trace writes it, e.g. ``allreduce_coalesced`` or ``_allgather_base``.
        group_size: n.

    Source:
        NVIDIA nccl-tests, doc/PERFORMANCE.md.
    """
    if group_size < 2:
        return 1.0
    plain = name.lower().replace("_", "")
    if plain.startswith(_ALL_REDUCE):
        return 2 * (group_size - 1) / group_size
    if plain.startswith(_SHARED):
        return (group_size - 1) / group_size
    return 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """One kind of collective, over all its calls in the traces."""

    group: str
    name: str
    group_size: int
    size_bytes: int
    """Of each call."""
    calls: int
    ranks: int
    """How many of the group's ranks are among the traces. If fewer than all, bandwidths are lower bounds."""
    last_rank: int
    """Which rank arrived last, most often."""
    last_share: float
    """How often, of all calls."""
    seconds: float
    """Median time of the transfer: of the last rank to arrive."""
    algbw_bytes_per_second: float
    busbw_bytes_per_second: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """What several traces say together."""

    bandwidths: tuple[Bandwidth, ...] = ()
    """The largest share of time first."""
    reason: str = ""
    """Why there are none."""


_Call = tuple[int | None, str, str, int, int, int]
"""Step, group, name, group size, bytes, and which of such calls in the step."""


def compare(traces: Sequence[Trace]) -> Comparison:
    """Match the collectives of several ranks: the n-th of its kind in the step of the same number is the same one."""
    by_rank: dict[int, Mapping[_Call, Collective]] = {}
    for trace in traces:
        if trace.rank is None:
            return Comparison(reason="a trace does not say of which rank it is (distributedInfo)")
        if trace.rank in by_rank:
            return Comparison(reason=f"two traces are of rank {trace.rank}")
        by_rank[trace.rank] = _calls(trace)
    if len(by_rank) < 2:
        return Comparison(reason="it takes traces of two ranks at least: a rank's own durations contain its waiting")
    if not any(by_rank.values()):
        return Comparison(reason="no collective has a size: that takes NCCL and torch 2.4 or newer")
    kinds: dict[tuple[str, str, int, int], list[dict[int, int]]] = {}
    for call in {call for calls in by_rank.values() for call in calls}:
        durations = {rank: _duration(calls[call]) for rank, calls in by_rank.items() if call in calls}
        if len(durations) > 1:
            _, group, name, size, size_bytes, _ = call
            kinds.setdefault((group, name, size, size_bytes), []).append(durations)
    if not kinds:
        return Comparison(reason="no collective is in two of the traces: they are of other steps or other groups")
    found = [_summary(kind, calls) for kind, calls in kinds.items()]
    return Comparison(tuple(sorted(found, key=lambda one: -one.seconds * one.calls)))


def _duration(collective: Collective) -> int:
    return max(collective.end_ns - collective.begin_ns, 1)


def _calls(trace: Trace) -> dict[_Call, Collective]:
    begins = [step.begin_ns for step in trace.steps]
    calls: dict[_Call, Collective] = {}
    counts: dict[tuple[object, ...], int] = {}
    for one in sorted(trace.collectives):
        place = bisect_right(begins, one.begin_ns) - 1
        step = trace.steps[place].number if place >= 0 else None
        kind = step, one.group, one.name, one.group_size, one.size_bytes
        counts[kind] = counts.get(kind, 0) + 1
        call: _Call = (*kind, counts[kind])
        calls[call] = one
    return calls


def _summary(kind: tuple[str, str, int, int], calls: Sequence[Mapping[int, int]]) -> Bandwidth:
    group, name, group_size, size_bytes = kind
    last = [min(durations, key=lambda rank: (durations[rank], rank)) for durations in calls]
    most = max(sorted(set(last)), key=last.count)
    seconds = median(min(durations.values()) for durations in calls) * _NS
    return Bandwidth(
        group=group,
        name=name,
        group_size=group_size,
        size_bytes=size_bytes,
        calls=len(calls),
        ranks=max(len(durations) for durations in calls),
        last_rank=most,
        last_share=last.count(most) / len(last),
        seconds=seconds,
        algbw_bytes_per_second=size_bytes / seconds,
        busbw_bytes_per_second=size_bytes / seconds * bus_factor(name, group_size),
    )
