"""Scenarios: the reference step, faults, repeatability."""

from __future__ import annotations

import pytest

from straggler.errors import ConfigError
from straggler.simulate.faults import KINDS
from straggler.simulate.scenario import Fault, Scenario, Work

SLOW = Scenario(jitter=0, fault=Fault(name="slow-rank", rank=2, factor=1.5, begins_step=100))


def test_reference_step() -> None:
    """6 + 10 + 16 + 10 + 2 ms make a step of 44 ms, and a rank slower by half makes it 57 ms: 77 % are left."""
    assert SLOW.expected_step_seconds(99) == pytest.approx(0.044)
    assert SLOW.expected_step_seconds(100) == pytest.approx(0.057)
    assert SLOW.expected_efficiency == pytest.approx(44 / 57)


def test_fault_hits_one_rank_from_its_step_on() -> None:
    """Only the afflicted rank works longer, in forward and backward, and only while the fault lasts."""
    brief = Scenario(jitter=0, fault=Fault(name="slow-rank", rank=2, factor=1.5, begins_step=100, ends_step=102))

    assert brief.work_of(2, 99) == brief.work_of(1, 100) == brief.work_of(2, 102) == Work()
    assert brief.work_of(2, 101).forward_seconds == pytest.approx(0.015)
    assert brief.work_of(2, 101).backward_seconds == pytest.approx(0.024)
    assert brief.work_of(2, 101).data_seconds == Work().data_seconds


def test_same_seed_same_run() -> None:
    """A draw depends on seed, rank and step alone, and differs if one of them does."""
    one, again, other = (Scenario(jitter=0.02, seed=seed) for seed in (5, 5, 6))

    assert one.work_of(3, 7) == again.work_of(3, 7)
    assert len({one.work_of(3, 7), other.work_of(3, 7), one.work_of(4, 7), one.work_of(3, 8)}) == 4


def test_jitter_has_its_size_and_spares_the_exchange() -> None:
    """Own parts scatter by the stated share around their length; the exchange is the same for all ranks."""
    works = [Scenario(jitter=0.02).work_of(0, step) for step in range(1, 2001)]
    backward = [work.backward_seconds / Work().backward_seconds for work in works]
    mean = sum(backward) / len(backward)
    deviation = (sum((value - mean) ** 2 for value in backward) / len(backward)) ** 0.5

    assert mean == pytest.approx(1, abs=0.002)
    assert deviation == pytest.approx(0.02, rel=0.1)
    assert {work.all_reduce_seconds for work in works} == {Work().all_reduce_seconds}


def test_jitter_never_makes_time_run_backwards() -> None:
    """Even the largest jitter leaves each part longer than nothing."""
    wild = Scenario(jitter=1)

    assert min(wild.work_of(0, step).forward_seconds for step in range(1, 2001)) > 0


def test_json_and_back() -> None:
    """A scenario survives being written down."""
    assert Scenario.from_json(SLOW.to_json()) == SLOW


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.lengthens])
def test_factor_one_is_healthy(name: str) -> None:
    """A fault with factor 1 changes nothing, whatever its name."""
    scenario = Scenario(fault=Fault(name=name, rank=1, factor=1.0))

    assert scenario.healthy
    assert scenario.expected_efficiency == 1


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("ranks", {"ranks": 0}),
        ("fault", {"fault": Fault(name="gremlins")}),
        ("slow_rank", {"ranks": 2, "fault": Fault(rank=2)}),
        ("slow_factor", {"fault": Fault(factor=0.0)}),
        ("jitter", {"jitter": -0.1}),
        ("work", {"work": Work(data_seconds=-1)}),
    ],
)
def test_impossible_scenarios_are_refused(key: str, values: dict[str, object]) -> None:
    """What cannot be acted out is refused, and the error names the value."""
    with pytest.raises(ConfigError) as refused:
        Scenario(**values)  # type: ignore[arg-type]  # one bad value at a time
    assert refused.value.key == key


def test_step_after_seconds() -> None:
    """The first step that begins 10 s after the start is number 228: 227 steps of 44 ms fit before it."""
    assert SLOW.step_after(10.0) == 228
    assert SLOW.step_after(0.0) == 1
