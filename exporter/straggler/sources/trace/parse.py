"""Keeps of a trace what tells where time went: steps, phases on the host, kernels, launches, collectives.

Kineto's events are of ``ph`` X (complete: ``ts`` and ``dur`` in microseconds) and carry a category. The categories and
names below are those of torch 1.8 to 2.13; older ones are spelt ``Kernel``, ``Runtime``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeGuard

from straggler.errors import SourceFailedError
from straggler.sources.trace.intervals import Interval
from straggler.sources.trace.read import EVENTS_KEY, Entry

MAX_KEPT: Final = 2_000_000
"""Events kept of one file, some 100 bytes each: a trace with more is of too many steps to be looked at."""
MAX_METADATA_RANKS: Final = 1 << 20

_STEP = re.compile(r"ProfilerStep#(\d{1,15})\b", re.ASCII)
_LOADING: Final = "enumerate(DataLoader)"  # enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__
_OPTIMIZER: Final = "Optimizer.step#"  # Optimizer.step#AdamW.step
_BACKWARD: Final = "autograd::engine::evaluate_function"  # autograd::engine::evaluate_function: AddmmBackward0
# The mark that recommender trainings put around it: "## backward ##"
_MARKED_BACKWARD = re.compile(r"#*\s*backward\s*#*")
# ncclDevKernel_AllReduce_Sum_bf16_RING_LL(...), ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(...); RCCL has these too,
# and mscclKernel_Sum_half_Simple_...
_COMMUNICATION_KERNEL = re.compile(r"(?:nccl|msccl)\w*kernel", re.IGNORECASE)
# gloo:all_reduce, on the thread that does it; nccl:… on the host is the launch alone
_HOST_COLLECTIVE = re.compile(r"(?:gloo|mpi|ucc|xccl):(\w+)")
_ANNOTATIONS: Final = frozenset({"user_annotation", "operator", "cpu_op"})
_COPIES: Final = frozenset({"gpu_memcpy", "memcpy", "gpu_memset", "memset"})
_LAUNCHES: Final = ("runtime", "_driver")
"""How the categories of launches end: ``Runtime``, ``cuda_runtime``, ``cuda_driver``, ``hip_runtime``, ``xpu_runtime``,
``privateuse1_runtime``."""

# c10::toString of a ScalarType, as record_param_comms writes it
_ITEM_BYTES: Final = {
    "Byte": 1, "Char": 1, "Bool": 1, "Float8_e4m3fn": 1, "Float8_e5m2": 1, "Short": 2, "Half": 2, "BFloat16": 2,
    "Int": 4, "Float": 4, "Long": 8, "Double": 8, "ComplexFloat": 8, "ComplexDouble": 16,
}  # fmt: skip

COMPUTE, COMMUNICATION, COPY = range(3)


class Kernel(NamedTuple):
    """Something that ran on the GPU."""

    begin_ns: int
    end_ns: int
    kind: int
    """``COMPUTE``, ``COMMUNICATION`` or ``COPY``."""
    correlation: int | None
    """What links it with its launch on the host."""


class Collective(NamedTuple):
    """One collective as this rank ran it."""

    begin_ns: int
    end_ns: int
    group: str
    """The process group's name; the same on all its ranks."""
    name: str
    """E.g. ``allreduce``."""
    group_size: int
    size_bytes: int
    """What bandwidth is reckoned by: the larger of what went in and what came out."""


class Step(NamedTuple):
    """One step as the profiler marked it on the host."""

    number: int | None
    """``None`` for a trace without marks: then the whole of it."""
    begin_ns: int
    end_ns: int
    thread: Any
    """Which thread trains; ``None`` if nobody says so."""


@dataclass(slots=True)
class Trace:
    """What one file says."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    steps: list[Step] = field(default_factory=list)
    loading: dict[Any, list[Interval]] = field(default_factory=dict)
    """By thread, and so the next four."""
    optimizer: dict[Any, list[Interval]] = field(default_factory=dict)
    backward: dict[Any, list[Interval]] = field(default_factory=dict)
    operators: dict[Any, list[Interval]] = field(default_factory=dict)
    """Outermost operators on the host."""
    host_communication: list[Interval] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    launches: dict[int, tuple[Any, int]] = field(default_factory=dict)
    """Correlation to thread and time."""
    collectives: list[Collective] = field(default_factory=list)
    events: int = 0
    refused_events: int = 0
    """Not as Kineto writes them: no number where one should be, a negative length."""
    begin_ns: int | None = None
    end_ns: int | None = None


def parse_trace(entries: Iterable[Entry]) -> Trace:
    """Sort the events of a file.

    Raises:
        SourceFailedError: ``too_many_events``, ``no_events``; and what ``entries`` raises.
    """
    trace = Trace()
    kept = 0
    for entry in entries:
        if entry.key == EVENTS_KEY:
            trace.events += 1
            kept += _keep(trace, entry.value)
            if kept > MAX_KEPT:
                raise SourceFailedError("too_many_events", f"more than {MAX_KEPT} events count: profile fewer steps")
        elif entry.key == "distributedInfo" and isinstance(entry.value, dict):
            _describe(trace, entry.value)
    if trace.begin_ns is None or trace.end_ns is None:
        raise SourceFailedError("no_events", "no event in it has a time")
    trace.steps.sort(key=lambda step: step.begin_ns)
    return trace


def _describe(trace: Trace, told: Mapping[str, Any]) -> None:
    """``distributedInfo`` may lack any of these."""
    rank, world_size, backend = told.get("rank"), told.get("world_size"), told.get("backend")
    trace.rank = rank if _is_whole(rank) and rank < MAX_METADATA_RANKS else None
    trace.world_size = world_size if _is_whole(world_size) and 0 < world_size <= MAX_METADATA_RANKS else None
    trace.backend = backend if isinstance(backend, str) else None


def _is_whole(value: Any) -> TypeGuard[int]:
    """A number of things; not ``true``, and none that is longer than 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _keep(trace: Trace, event: Any) -> int:
    """Put one event where it belongs; how many more are kept."""
    if not isinstance(event, dict):
        trace.refused_events += 1
        return 0
    if event.get("ph") != "X":
        return 0
    category = event.get("cat")
    category = category.lower() if isinstance(category, str) else ""
    name = event.get("name")
    if category == "trace" or not isinstance(name, str):  # "PyTorch Profiler (0)": the whole of it, marks included
        return 0
    times = _times(event)
    if times is None:
        trace.refused_events += 1
        return 0
    begin, end = times
    trace.begin_ns = begin if trace.begin_ns is None else min(trace.begin_ns, begin)
    trace.end_ns = end if trace.end_ns is None else max(trace.end_ns, end)
    args = event.get("args")
    args = args if isinstance(args, dict) else {}
    if category == "kernel" or category in _COPIES:
        return _keep_kernel(trace, name, category, times, args)
    thread = _thread(event)
    if category.endswith(_LAUNCHES):
        correlation = args.get("correlation")
        if isinstance(correlation, int):
            trace.launches[correlation] = thread, begin
            return 1
        return 0
    if category in _ANNOTATIONS:
        return _keep_on_host(trace, name, category, times, thread)
    return 0


def _times(event: Mapping[str, Any]) -> Interval | None:
    begin, duration = _microseconds(event.get("ts")), _microseconds(event.get("dur", 0))
    if begin is None or duration is None or not 0 <= duration < 1e13:
        return None
    if not abs(begin) < 1e16:  # also NaN; microseconds since the epoch are 1.7e15
        return None
    begin_ns = round(begin * 1000)
    return begin_ns, begin_ns + round(duration * 1000)


def _microseconds(value: Any) -> float | None:
    """A time. Some converters write numbers in quotes."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return value if isinstance(value, int | float) else None


def _thread(event: Mapping[str, Any]) -> Any:
    thread = event.get("tid")
    return thread if isinstance(thread, int | str) else None


def _keep_kernel(trace: Trace, name: str, category: str, times: Interval, args: Mapping[str, Any]) -> int:
    kind = COPY if category in _COPIES else COMMUNICATION if _COMMUNICATION_KERNEL.search(name) else COMPUTE
    correlation = args.get("correlation")
    trace.kernels.append(Kernel(*times, kind, correlation if isinstance(correlation, int) else None))
    if kind == COMMUNICATION and (collective := _collective(times, args)) is not None:
        trace.collectives.append(collective)
        return 2
    return 1


def _collective(times: Interval, args: Mapping[str, Any]) -> Collective | None:
    """What torch 2.4 and later write beside each NCCL kernel; ``None`` in older traces."""
    name, group = args.get("Collective name"), args.get("Process Group Name")
    counts = [args.get(f"{way} msg nelems") for way in ("In", "Out")]
    size, item = args.get("Group size"), _ITEM_BYTES.get(str(args.get("dtype")))
    whole = [count for count in (*counts, size) if _is_whole(count)]
    if not isinstance(name, str) or len(whole) != 3 or item is None:
        return None
    return Collective(*times, str(group), name.lstrip("_"), whole[2], max(whole[:2]) * item)


def _keep_on_host(trace: Trace, name: str, category: str, times: Interval, thread: Any) -> int:
    marked = _STEP.match(name)
    if marked is not None:
        trace.steps.append(Step(int(marked[1]), *times, thread))
        return 1
    if _HOST_COLLECTIVE.match(name) is not None:
        trace.host_communication.append(times)
        return 1
    if name.startswith(_LOADING):
        return _outermost(trace.loading, thread, times)
    if name.startswith(_OPTIMIZER):
        return _outermost(trace.optimizer, thread, times)
    if name.startswith(_BACKWARD) or _MARKED_BACKWARD.fullmatch(name) is not None:
        return _outermost(trace.backward, thread, times)
    if category == "user_annotation":
        return 0  # a range of the user's own may be around anything
    return _outermost(trace.operators, thread, times)


def _outermost(threads: dict[Any, list[Interval]], thread: Any, times: Interval) -> int:
    """Keep what is not inside the last one of this thread: operators call each other ten deep."""
    known = threads.setdefault(thread, [])
    if known and known[-1][0] <= times[0] and times[1] <= known[-1][1]:
        return 0
    known.append(times)
    return 1
