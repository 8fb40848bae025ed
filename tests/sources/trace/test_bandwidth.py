"""Bandwidth of collectives, from the rank that arrived last; worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from straggler.sources.trace.bandwidth import bus_factor, compare
from straggler.sources.trace.parse import Trace, parse_trace
from straggler.sources.trace.read import Entry
from trace_files import all_reduce, gpu_step, mark, trace


def of_rank(rank: int | None, *events: Any) -> Trace:
    """The trace of one rank."""
    made = trace(*events, rank=rank)
    told = Entry("distributedInfo", made["distributedInfo"])
    return parse_trace([told, *(Entry("traceEvents", one) for one in made["traceEvents"])])


def test_the_last_rank_to_arrive_tells_the_bandwidth() -> None:
    """4 MB in 250 us on the rank that was late, while the other waits 600 us more: 16 GB/s, with two ranks busbw too.

    Dividing by the waiter's duration would give 4.7 GB/s, by exposed time even less.
    """
    late, early = of_rank(1, gpu_step(7, 0)), of_rank(0, gpu_step(7, 5_000_000, waits=600))
    (found,) = compare([early, late]).bandwidths

    assert (found.last_rank, found.last_share, found.ranks, found.group_size) == (1, 1.0, 2, 2)
    assert found.seconds == pytest.approx(250e-6)
    assert found.size_bytes == 4_000_000
    assert found.algbw_bytes_per_second == pytest.approx(16e9)
    assert found.busbw_bytes_per_second == pytest.approx(16e9)


@pytest.mark.parametrize(
    ("name", "size", "factor"),
    [
        ("allreduce", 8, 1.75),
        ("allreduce_coalesced", 8, 1.75),
        ("_allgather_base", 8, 0.875),
        ("all_gather", 4, 0.75),
        ("_reduce_scatter_base", 8, 0.875),
        ("all_to_allv", 8, 0.875),
        ("broadcast", 8, 1.0),
        ("send", 2, 1.0),
        ("allreduce", 1, 1.0),
    ],
)
def test_factors_of_the_bus(name: str, size: int, factor: float) -> None:
    """NCCL's factors, by the names that torch writes."""
    assert bus_factor(name, size) == factor


def test_calls_are_matched_by_step_and_order() -> None:
    """Profiles that began at different steps are compared where both have the step."""
    first = of_rank(0, mark(1, 0, 1000), all_reduce(0, 900, 1), mark(2, 1000, 1000), all_reduce(1100, 400, 1001))
    second = of_rank(1, mark(2, 50, 1000), all_reduce(90, 100, 51), mark(3, 2050, 1000), all_reduce(2100, 5, 2051))
    (found,) = compare([first, second]).bandwidths

    assert found.calls == 1
    assert found.seconds == pytest.approx(100e-6)


def test_traces_of_some_ranks_give_a_lower_bound() -> None:
    """Two of a group of four: the figure says that ranks are missing."""
    events = all_reduce(0, 100, 1, **{"Group size": 4})
    (found,) = compare([of_rank(0, mark(1, 0, 500), events), of_rank(1, mark(1, 0, 500), events)]).bandwidths

    assert (found.ranks, found.group_size) == (2, 4)


@pytest.mark.parametrize(
    ("traces", "words"),
    [
        ([of_rank(0, gpu_step(1, 0))], "two ranks at least"),
        ([of_rank(0, gpu_step(1, 0)), of_rank(0, gpu_step(1, 0))], "two traces are of rank 0"),
        ([of_rank(0, gpu_step(1, 0)), of_rank(None, gpu_step(1, 0))], "does not say of which rank"),
        ([of_rank(0, mark(1, 0, 1)), of_rank(1, mark(1, 0, 1))], "no collective has a size"),
        ([of_rank(0, gpu_step(1, 0)), of_rank(1, gpu_step(2, 0))], "of other steps"),
    ],
)
def test_no_bandwidth_without_a_reason(traces: list[Trace], words: str) -> None:
    """Where nothing can be said, it is said why."""
    found = compare(traces)

    assert found.bandwidths == ()
    assert words in found.reason


def test_kernels_of_old_traces_have_no_size() -> None:
    """Before torch 2.4 a NCCL kernel has no arguments of its collective: it is communication, but no bandwidth."""
    old = all_reduce(0, 100, 1, **{"In msg nelems": None})

    assert of_rank(0, mark(1, 0, 500), old).collectives == []
