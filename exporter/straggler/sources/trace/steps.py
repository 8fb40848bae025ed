"""Where the time of each step went.

On a GPU the phases are times of kernels: a kernel belongs to the step, and to the phase, in which the host launched it
(their ``correlation`` is the same), whenever it ran. *Exposed* communication is what no other kernel ran beside; the
rest of it is *overlapped*. Without kernels the phases are times of operators on the host.

What the trace does not show is ``None``: a trace without operators has no forward, one without a marked loader no
loading. It is not zero.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from straggler.sources.trace.intervals import Interval, covers, length, union, within, without
from straggler.sources.trace.parse import COMMUNICATION, COMPUTE, Kernel, Step, Trace

_NS = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """One step, in seconds."""

    number: int | None
    """As the profiler counted; ``None`` where it marked no steps, so that this is the whole trace."""
    step_seconds: float
    loading_seconds: float | None
    """The training thread waited for a batch."""
    forward_seconds: float | None
    backward_seconds: float | None
    optimizer_seconds: float | None
    compute_seconds: float | None
    """All that is neither communication nor a copy, each moment once."""
    copy_seconds: float | None
    """Between host and device, and within the device."""
    communication_seconds: float | None
    exposed_seconds: float | None
    """The part of communication that nothing was computed beside."""
    overlapped_seconds: float | None


class _Phases:
    """What the host did when."""

    def __init__(self, trace: Trace) -> None:
        self.loading = _joined(trace.loading)
        self.optimizer = _joined(trace.optimizer)
        self.backward = {thread: union(spans) for thread, spans in trace.backward.items()}
        self.backward_anywhere = _joined(trace.backward)
        self.operators = {thread: union(spans) for thread, spans in trace.operators.items()}
        self.operators_anywhere = _joined(trace.operators)
        self.host_communication = union(trace.host_communication)

    def of(self, thread: object, moment: int) -> str:
        """The phase in which something was launched."""
        if covers(self.backward.get(thread, ()), moment):
            return "backward"
        if covers(self.optimizer, moment):
            return "optimizer"
        return "forward"


def _joined(threads: dict[object, list[Interval]]) -> list[Interval]:
    return union(span for spans in threads.values() for span in spans)


def step_times(trace: Trace) -> tuple[StepTimes, ...]:
    """Divide each step, oldest first; at least one."""
    steps = trace.steps or [Step(None, trace.begin_ns or 0, trace.end_ns or 0, None)]
    phases = _Phases(trace)
    if trace.kernels:
        return tuple(_gpu_steps(trace, steps, phases))
    return tuple(_host_step(step, phases) for step in steps)


def _gpu_steps(trace: Trace, steps: Sequence[Step], phases: _Phases) -> Iterable[StepTimes]:
    begins = [step.begin_ns for step in steps]
    found: list[dict[str, list[Interval]]] = [{} for _ in steps]
    busy = union((kernel.begin_ns, kernel.end_ns) for kernel in trace.kernels if kernel.kind != COMMUNICATION)
    for kernel in trace.kernels:
        thread, launched = _launch(trace, kernel)
        place = bisect_right(begins, launched) - 1
        if place < 0:
            continue  # of the step before the first marked one
        kinds = [("compute", "communication", "copy")[kernel.kind]]
        if kernel.kind == COMPUTE:
            kinds.append(phases.of(thread, launched))
        for kind in kinds:
            found[place].setdefault(kind, []).append((kernel.begin_ns, kernel.end_ns))
    has_phases = bool(phases.operators or phases.backward) and bool(trace.launches)
    for step, intervals in zip(steps, found, strict=True):
        times = {kind: union(intervals.get(kind, ())) for kind in (*_GPU_KINDS, *_GPU_PHASES)}
        exposed = length(without(times["communication"], busy)) * _NS
        seconds = {kind: length(disjoint) * _NS for kind, disjoint in times.items()}
        shown = bool(intervals)  # a step without any kernel is one that was cut out of the trace
        told = shown and has_phases
        yield StepTimes(
            number=step.number,
            step_seconds=(step.end_ns - step.begin_ns) * _NS,
            loading_seconds=_inside(phases.loading, step),
            forward_seconds=seconds["forward"] if told else None,
            backward_seconds=seconds["backward"] if told and phases.backward else None,
            optimizer_seconds=seconds["optimizer"] if told and phases.optimizer else None,
            compute_seconds=seconds["compute"] if shown else None,
            copy_seconds=seconds["copy"] if shown else None,
            communication_seconds=seconds["communication"] if shown else None,
            exposed_seconds=exposed if shown else None,
            overlapped_seconds=seconds["communication"] - exposed if shown else None,
        )


_GPU_KINDS = ("compute", "communication", "copy")
_GPU_PHASES = ("forward", "backward", "optimizer")


def _launch(trace: Trace, kernel: Kernel) -> tuple[object, int]:
    """Who launched a kernel and when; without a launch in the trace, nobody, when it ran."""
    launch = None if kernel.correlation is None else trace.launches.get(kernel.correlation)
    return launch if launch is not None else (None, kernel.begin_ns)


def _host_step(step: Step, phases: _Phases) -> StepTimes:
    backward = within(phases.backward_anywhere, step.begin_ns, step.end_ns)
    optimizer = within(phases.optimizer, step.begin_ns, step.end_ns)
    loading = within(phases.loading, step.begin_ns, step.end_ns)
    operators = within(phases.operators.get(step.thread, phases.operators_anywhere), step.begin_ns, step.end_ns)
    communication = within(phases.host_communication, step.begin_ns, step.end_ns)
    # A synchronous collective is itself an operator of the training thread: it is no computing.
    forward = without(without(operators, union([*backward, *optimizer, *loading])), communication)
    computing = union([*forward, *backward, *optimizer])
    exposed = length(without(communication, computing))
    has_operators = bool(phases.operators)
    shows_communication = bool(phases.host_communication)
    return StepTimes(
        number=step.number,
        step_seconds=(step.end_ns - step.begin_ns) * _NS,
        loading_seconds=length(loading) * _NS if phases.loading else None,
        forward_seconds=length(forward) * _NS if has_operators else None,
        backward_seconds=length(backward) * _NS if phases.backward else None,
        optimizer_seconds=length(optimizer) * _NS if phases.optimizer else None,
        compute_seconds=length(computing) * _NS if has_operators else None,
        copy_seconds=None,
        communication_seconds=length(communication) * _NS if shows_communication else None,
        exposed_seconds=exposed * _NS if shows_communication else None,
        overlapped_seconds=(length(communication) - exposed) * _NS if shows_communication else None,
    )


def _inside(disjoint: Sequence[Interval], step: Step) -> float | None:
    return length(within(disjoint, step.begin_ns, step.end_ns)) * _NS if disjoint else None
