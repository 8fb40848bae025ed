"""What is remembered of a rank for its cause."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from facts import gpu_facts, totals, view
from straggler.detect.cause import CAUSES, explain
from straggler.detect.cause_text import sentence
from straggler.detect.lately import Lately
from straggler.detect.policy import DEFAULT
from straggler.detect.trail import Trail, Trails
from straggler.join.view import RankView
from straggler.model.gpu import GpuFacts
from straggler.model.host import RankHost
from straggler.model.rank import RankState


def after(steps: int, *, own: float = 0.1, delay: float | None = None, gpu: GpuFacts | None = None) -> RankView:
    """A rank that has made so many steps of this own time, and has waited so long for a CPU in all."""
    rank = view(0, gpu=gpu, totals=totals(steps=steps, step_seconds=steps * 0.2, own_seconds=steps * own))
    if delay is None:
        return rank
    return replace(rank, host=RankHost(key=rank.rank.key, values={"run_delay_seconds_total": delay}))


def seen(lately: Lately | None) -> Lately:
    """What is known by now."""
    assert lately is not None
    return lately


def test_a_source_may_come_later_than_the_rank() -> None:
    """The process of a rank is found after its ring: its waiting counts from then on, over the steps made since."""
    trail = Trail(DEFAULT)
    trail.look(0, after(0))
    trail.look(10, after(100, delay=50.0))
    lately = seen(trail.look(20, after(200, delay=51.0)))

    assert lately.run_delay_seconds == pytest.approx(0.01)
    assert lately.own_seconds == pytest.approx(0.1)


def test_minutes_are_the_policys() -> None:
    """Seconds a step forget what is older than the policy looks back, in a short demonstration as in a long run."""
    trail = Trail(replace(DEFAULT, cause_seconds=10.0))
    for second in range(0, 60, 2):
        trail.look(second, after(second, delay=0.0))
    for second in range(60, 70, 2):
        trail.look(second, after(second, delay=0.5 * (second - 60)))

    assert seen(trail.look(70, after(70, delay=5.0))).run_delay_seconds == pytest.approx(0.5)


def test_nothing_is_held_down_longer_than_always() -> None:
    """A page about GPUs is made at other moments than it is looked at: a counter may gain more than our clock."""
    trail = Trail(DEFAULT)
    trail.look(0, after(1, gpu=gpu_facts(clocks_event_seconds={"hw_thermal": 0.0})))
    warm = trail.look(12, after(2, gpu=gpu_facts(clocks_event_seconds={"hw_thermal": 4.0})))
    hot = trail.look(14, after(3, gpu=gpu_facts(clocks_event_seconds={"hw_thermal": 40.0})))

    assert seen(warm).held == {"thermal": pytest.approx(4 / 12)}
    assert seen(hot).held == {"thermal": 1.0}


def errors(trail: Trail, now: float, **gpu: Any) -> tuple[str, ...]:
    """What is news of the GPU at this moment."""
    return seen(trail.look(now, after(int(now) + 1, gpu=gpu_facts(**gpu)))).errors


def test_errors_are_news_for_an_hour() -> None:
    """An XID is told from its first event on, for an hour after the last; a program's XID never."""
    trail = Trail(DEFAULT)
    trail.look(0, after(0, gpu=gpu_facts()))

    assert errors(trail, 60, xid_events={94: 1.0, 31: 4.0}) == ("XID 94",)
    assert errors(trail, 3500, xid_events={94: 1.0, 31: 9.0}) == ("XID 94",)
    assert errors(trail, 7300, xid_events={94: 1.0, 31: 9.0}) == ()
    assert errors(trail, 7400, xid_events={94: 2.0}) == ("XID 94",)


@pytest.mark.parametrize("number", [13, 31, 43, 45])
def test_xids_of_programs_are_not_the_gpus(number: int) -> None:
    """What a bug in a kernel causes says nothing about the GPU that ran it."""
    trail = Trail(DEFAULT)
    trail.look(0, after(0, gpu=gpu_facts()))

    assert errors(trail, 60, xid_events={number: 3.0, 79: 1.0}) == ("XID 79",)


def test_another_gpus_counts_are_no_news() -> None:
    """ECC counts of the GPU that a rank moves to are those of its life, and not what happened to the rank."""
    trail = Trail(DEFAULT)
    for second, gpu, count in ((0, 0, 0.0), (60, 0, 0.0), (120, 1, 5.0)):
        trail.look(second, after(second, gpu=gpu_facts(gpu, values={"ecc_double_bit_errors_total": count})))
    lately = trail.look(180, after(180, gpu=gpu_facts(1, values={"ecc_double_bit_errors_total": 5.0})))

    assert seen(lately).errors == ()


def test_own_time_is_that_of_the_measured_steps() -> None:
    """Where every second step has no own time, the others' is not halved."""
    trail = Trail(DEFAULT)
    trail.look(0, view(0, totals=totals(steps=0, step_seconds=0.0, own_seconds=0.0)))
    half = totals(steps=100, step_seconds=20.0, own_seconds=50 * 0.1, unmeasured_steps=50)

    assert seen(trail.look(100, view(0, totals=half))).own_seconds == pytest.approx(0.1)


def test_old_counts_are_no_news() -> None:
    """ECC counts are for life: what a GPU had before is not told; a row that waits is, for as long as it does."""
    values = {"ecc_double_bit_errors_total": 3.0, "row_remap_pending": 1.0}
    trail = Trail(DEFAULT)
    trail.look(0, after(0, gpu=gpu_facts(values=values)))

    assert errors(trail, 60, values=values) == ("row remap pending",)
    assert errors(trail, 120, values={**values, "ecc_double_bit_errors_total": 4.0, "row_remap_pending": 0.0}) == (
        "uncorrected ECC error",
    )


def test_another_gpu_has_another_past() -> None:
    """A rank that comes back on another GPU starts anew: nothing is reckoned over both."""
    trail = Trail(DEFAULT)
    trail.look(0, after(0, gpu=gpu_facts(0, clocks_event_seconds={"hw_thermal": 0.0})))
    trail.look(60, after(60, gpu=gpu_facts(0, clocks_event_seconds={"hw_thermal": 50.0})))

    assert trail.look(70, after(70, gpu=gpu_facts(1, clocks_event_seconds={"hw_thermal": 900.0}))) is None


def test_ranks_that_end_are_forgotten() -> None:
    """What is remembered is bounded by the ranks that live."""
    trails = Trails(DEFAULT)
    trails.look(0, [after(0)])
    assert set(trails.look(10, [after(10)])) == {after(0).rank.key}

    ended = replace(after(10), rank=replace(after(10).rank, state=RankState.FINISHED))
    assert trails.look(20, [ended]) == {}
    assert trails.look(30, [after(30)]) == {}


NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63).map(float)


@given(
    values=st.lists(
        st.fixed_dictionaries(
            {},
            optional=dict.fromkeys(
                (
                    "sm_clock_hertz",
                    "tensor_active_ratio",
                    "pcie_link_width",
                    "pcie_link_generation",
                    "pcie_receive_bytes_per_second",
                    "ecc_double_bit_errors_total",
                    "row_remap_pending",
                ),
                NUMBERS,
            ),
        ),
        min_size=2,
        max_size=4,
    ),
    own=st.lists(st.floats(0.001, 1e6), min_size=2, max_size=4),
)
def test_no_page_can_break_it(values: list[dict[str, float]], own: list[float]) -> None:
    """Whatever a page about GPUs says, the rank's cause is reckoned or unknown, and put into words."""
    trail = Trail(DEFAULT)
    lately = None
    for number, (seen_values, seconds) in enumerate(zip(values, own, strict=False)):
        lately = trail.look(number * 20.0, after(number * 50, own=seconds, gpu=gpu_facts(values=seen_values)))
    if lately is not None:
        group = [lately, *([replace(lately, own_seconds=0.001, now_seconds=0.001, sm_clock_hertz=1980e6)] * 3)]
        found = explain(lately, group, DEFAULT)

        assert found.name in CAUSES
        assert sentence(found)
