"""Where a step's time went, worked out by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, overload

import pytest
from hypothesis import given
from hypothesis import strategies as st

from straggler.errors import SourceFailedError
from straggler.sources.trace import parse
from straggler.sources.trace.intervals import Interval, covers, length, union, within, without
from straggler.sources.trace.parse import Trace, parse_trace
from straggler.sources.trace.read import Entry
from straggler.sources.trace.steps import StepTimes, step_times
from trace_files import AUTOGRAD, event, gpu_step, kernel, mark, trace

US = 1e-6


def parsed(*events: Any, **told: Any) -> Trace:
    """A trace of these events."""
    made = trace(*events, **told)
    entries = [Entry("distributedInfo", made["distributedInfo"])]
    return parse_trace([*entries, *(Entry("traceEvents", one) for one in made["traceEvents"])])


def only_step(*events: Any) -> StepTimes:
    """The times of the one step in it."""
    (step,) = step_times(parsed(*events))
    return step


def test_a_step_on_a_gpu_is_divided() -> None:
    """100 us loading, 200 forward, 400 backward, 50 optimizer; of 250 of communication 150 run beside backward."""
    step = only_step(gpu_step(5, 10_000))

    assert step.number == 5
    assert step.step_seconds == pytest.approx(1000 * US)
    assert step.loading_seconds == pytest.approx(100 * US)
    assert step.forward_seconds == pytest.approx(200 * US)
    assert step.backward_seconds == pytest.approx(400 * US)
    assert step.optimizer_seconds == pytest.approx(50 * US)
    assert step.compute_seconds == pytest.approx(650 * US)
    assert step.communication_seconds == pytest.approx(250 * US)
    assert step.overlapped_seconds == pytest.approx(150 * US)
    assert step.exposed_seconds == pytest.approx(100 * US)


def test_a_kernel_belongs_to_the_step_that_launched_it() -> None:
    """The host runs ahead: a kernel that runs in the next step is time of the step that ordered it."""
    late = kernel("gemm", 2500, 300, launched=900)
    first, second = step_times(parsed(mark(1, 0, 1000), mark(2, 1000, 1000), late, kernel("gemm", 1500, 100, 1200)))

    assert first.compute_seconds == pytest.approx(300 * US)
    assert second.compute_seconds == pytest.approx(100 * US)


def test_kernels_side_by_side_count_once() -> None:
    """Two streams busy at the same time are one busy GPU."""
    step = only_step(mark(1, 0, 1000), kernel("a", 100, 200, 10), kernel("b", 200, 200, 20))

    assert step.compute_seconds == pytest.approx(300 * US)


def test_what_the_trace_does_not_show_is_absent() -> None:
    """Kernels without operators have no phases; no marked loader is no loading; neither is zero."""
    step = only_step(mark(1, 0, 1000), kernel("gemm", 100, 200, 10))

    assert (step.loading_seconds, step.forward_seconds, step.backward_seconds, step.optimizer_seconds) == (None,) * 4
    assert step.communication_seconds == 0
    assert step.compute_seconds == pytest.approx(200 * US)


def test_a_step_that_was_cut_out_has_no_gpu_times() -> None:
    """A marked step without any kernel, in a trace that has kernels elsewhere, is not an idle GPU."""
    _, second = step_times(parsed(mark(1, 0, 1000), kernel("gemm", 100, 200, 10), mark(2, 1000, 1000)))

    assert (second.compute_seconds, second.communication_seconds, second.exposed_seconds) == (None, None, None)


def test_on_the_host_a_collective_is_no_computing() -> None:
    """Gloo: 300 us all-reduce, of which 100 beside backward; the waiting inside an operator is no forward."""
    step = only_step(
        mark(1, 0, 1000),
        event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation", 0, 50),
        event("aten::empty", "cpu_op", 10, 20),
        event("aten::linear", "cpu_op", 100, 200),
        event("aten::addmm", "cpu_op", 120, 100),
        event("autograd::engine::evaluate_function: AddmmBackward0", "cpu_op", 300, 250),
        event("gloo:all_reduce", "user_annotation", 450, 300, AUTOGRAD),
        event("c10d::allreduce_", "cpu_op", 560, 100),
        event("Optimizer.step#SGD.step", "user_annotation", 800, 40),
        event("aten::add_", "cpu_op", 810, 20),
    )

    assert step.loading_seconds == pytest.approx(50 * US)
    assert step.forward_seconds == pytest.approx(200 * US)
    assert step.backward_seconds == pytest.approx(250 * US)
    assert step.optimizer_seconds == pytest.approx(40 * US)
    assert step.communication_seconds == pytest.approx(300 * US)
    assert step.overlapped_seconds == pytest.approx(100 * US)
    assert step.exposed_seconds == pytest.approx(200 * US)
    assert step.copy_seconds is None


def test_without_marks_the_trace_is_one_step() -> None:
    """A trace that was not told where steps begin is shown whole, without a number."""
    step = only_step(event("aten::mm", "cpu_op", 0, 10), event("aten::mm", "cpu_op", 90, 10))

    assert step.number is None
    assert step.step_seconds == pytest.approx(100 * US)
    assert step.forward_seconds == pytest.approx(20 * US)


@pytest.mark.parametrize(
    "broken",
    [
        None,
        7,
        {"ph": "X", "cat": "kernel", "name": "k", "ts": "noon", "dur": 1},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": -1},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": float("nan"), "dur": 1},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1e300},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": "nan", "dur": 1},
    ],
)
def test_a_broken_event_is_counted_and_the_rest_is_good(broken: Any) -> None:
    """One bad event loses itself, not the trace."""
    found = parsed(gpu_step(1, 0), broken)

    assert found.refused_events == 1
    assert step_times(found) == step_times(parsed(gpu_step(1, 0)))


def test_numbers_in_quotes_are_numbers() -> None:
    """Converters write times as texts; they are the same times."""
    quoted = [{**one, "ts": str(one["ts"]), "dur": str(one["dur"])} for one in gpu_step(1, 0)]

    assert step_times(parsed(quoted)) == step_times(parsed(gpu_step(1, 0)))


def test_numbers_that_no_machine_has_are_no_numbers() -> None:
    """A step, a count or a group beyond 64 bits is left out, however long the number is."""
    told: dict[str, Any] = {"In msg nelems": 10**400, "Group size": 8, "dtype": "Float", "Collective name": "allreduce"}
    told |= {"Out msg nelems": 1, "Process Group Name": "0"}
    found = parsed(
        mark(1, 0, 100),
        event(f"ProfilerStep#{'9' * 5000}", "user_annotation", 100, 100),
        event("ncclDevKernel_AllReduce", "kernel", 10, 5, **told),
    )

    assert [step.number for step in found.steps] == [1]
    assert (len(found.kernels), found.collectives) == (1, [])


@pytest.mark.parametrize("category", ["cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime", "privateuse1_driver"])
def test_launches_of_all_makers(category: str) -> None:
    """A kernel belongs to the step that launched it, whatever the maker of the device calls launching."""
    found = parsed(
        mark(1, 0, 100),
        mark(2, 100, 100),
        event("launch", category, 90, 5, correlation=3),
        event("gemm", "kernel", 150, 10, 7, correlation=3),
    )

    assert [step.compute_seconds for step in step_times(found)] == [pytest.approx(10 * US), None]


def test_amds_kernels_communicate_too() -> None:
    """MSCCL's kernels, which RCCL uses, are no computing."""
    step = only_step(mark(1, 0, 100), event("mscclKernel_Sum_half_Simple_false", "kernel", 10, 20, 7))

    assert step.compute_seconds == 0
    assert step.communication_seconds == pytest.approx(20 * US)


def test_odd_metadata_is_unknown() -> None:
    """A rank that is a text or negative is no rank, nor is ``true``."""
    assert parse_trace([Entry("distributedInfo", {"rank": True}), Entry("traceEvents", mark(1, 0, 1))]).rank is None
    told = {"rank": "0", "world_size": -4, "backend": ["nccl"]}
    found = parse_trace([Entry("distributedInfo", told), Entry("traceEvents", mark(1, 0, 1))])

    assert (found.rank, found.world_size, found.backend) == (None, None, None)


def test_too_many_events_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, and the words say what to do."""
    monkeypatch.setattr(parse, "MAX_KEPT", 20)
    with pytest.raises(SourceFailedError, match="profile fewer steps"):
        parsed(*(gpu_step(number, number * 1000) for number in range(9)))


def test_a_trace_without_times_is_refused() -> None:
    """Metadata alone says nothing."""
    with pytest.raises(SourceFailedError, match="no_events"):
        parsed({"ph": "M", "name": "process_name"})


class _Counted(Sequence[Interval]):
    """Counts how many intervals were looked at."""

    def __init__(self, intervals: list[Interval]) -> None:
        self._intervals = intervals
        self.looks = 0

    @overload
    def __getitem__(self, place: int) -> Interval: ...
    @overload
    def __getitem__(self, place: slice) -> list[Interval]: ...
    def __getitem__(self, place: int | slice) -> Interval | list[Interval]:
        self.looks += 1
        return self._intervals[place]

    def __len__(self) -> int:
        return len(self._intervals)


def test_a_step_looks_at_its_own_part_of_the_trace() -> None:
    """A trace of twenty thousand steps took minutes when each step looked at all operators."""
    disjoint = _Counted([(place * 10, place * 10 + 5) for place in range(10_000)])

    assert within(disjoint, 50_003, 50_021) == [(50_003, 50_005), (50_010, 50_015), (50_020, 50_021)]
    assert without([(50_003, 50_021)], disjoint) == [(50_005, 50_010), (50_015, 50_020)]
    assert disjoint.looks < 100


@given(
    some=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30))),
    others=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30))),
)
def test_sets_of_intervals_are_sets_of_moments(some: list[Interval], others: list[Interval]) -> None:
    """Difference and part of any intervals hold the moments that they should."""
    first, second = union(some), union(others)

    def moments(intervals: Iterable[Interval]) -> set[int]:
        return {moment for begin, end in intervals for moment in range(begin, end)}

    assert moments(without(first, second)) == moments(first) - moments(second)
    assert moments(within(first, 7, 19)) == moments(first) & set(range(7, 19))


def test_sets_of_intervals() -> None:
    """Union, difference and membership, with touching and nested ones."""
    joined = union([(5, 9), (0, 3), (3, 4), (6, 7), (8, 8)])

    assert joined == [(0, 4), (5, 9)]
    assert without(joined, [(1, 2), (3, 6), (8, 20)]) == [(0, 1), (2, 3), (6, 8)]
    assert length(joined) == 8
    assert [covers(joined, moment) for moment in (0, 3, 4, 5, 8, 9)] == [True, True, False, True, True, False]
