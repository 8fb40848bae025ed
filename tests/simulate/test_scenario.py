"""Scenarios: the reference step, faults, repeatability."""

from __future__ import annotations

from dataclasses import asdict

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
        ("ranks", {"ranks": 2, "nodes": 3}),
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


def test_each_kind_of_fault_makes_its_own_part_longer() -> None:
    """Lanes lengthen the copy, a loader the loading, a shared core the host's part, and nothing else."""
    for name, parts in {
        "thermal": {"forward_seconds", "backward_seconds"},
        "pcie": {"h2d_seconds"},
        "slow-loader": {"data_seconds"},
        "host-cpu": {"host_seconds"},
    }.items():
        kind = KINDS[name]
        scenario = Scenario(work=kind.work, fault=Fault(name=name, rank=1, factor=kind.factor))
        well, ill = asdict(scenario.expected_work(0, 1)), asdict(scenario.expected_work(1, 1))

        assert {part for part in well if well[part] != ill[part]} == parts
        assert all(ill[part] == pytest.approx(kind.factor * well[part]) for part in parts)
        assert scenario.expected_work(0, 1).own_seconds == pytest.approx(0.034)


def test_clock_falls_only_where_it_is_the_reason() -> None:
    """Heat brings the SM clock to 1155 of 1980 MHz; a rank that waits for data computes at its full clock."""
    hot = Scenario(fault=Fault(name="thermal", rank=1, factor=KINDS["thermal"].factor))
    hungry = Scenario(fault=Fault(name="slow-loader", rank=1, factor=7))

    assert 1980 * hot.clock_ratio(1, 1) == pytest.approx(1155)
    assert hot.clock_ratio(0, 1) == 1
    assert hungry.clock_ratio(1, 1) == 1


def test_bad_link_slows_the_exchange_of_all() -> None:
    """A cable with a quarter of its rate makes the exchange of every rank four times as long, and nobody's own time."""
    scenario = Scenario(nodes=2, fault=Fault(name="bad-cable", rank=6, factor=4, begins_step=10))

    for rank in range(8):
        assert scenario.expected_work(rank, 10).all_reduce_seconds == pytest.approx(0.040)
        assert scenario.expected_work(rank, 10).own_seconds == scenario.work.own_seconds
    assert scenario.expected_step_seconds(9) == pytest.approx(0.044)
    assert scenario.expected_step_seconds(10) == pytest.approx(0.074)


def test_frozen_page_slows_nobody() -> None:
    """What watches can be ill while the training is well: that is a fault, and no step is longer."""
    scenario = Scenario(fault=Fault(name="dcgm-frozen", begins_step=5))

    assert not scenario.healthy
    assert scenario.fault.lasts_in(5)
    assert not scenario.fault.lasts_in(4)
    assert scenario.expected_efficiency == 1


@pytest.mark.parametrize(("ranks", "nodes"), [(8, 1), (8, 2), (7, 2), (5, 3)])
def test_each_rank_is_on_one_node(ranks: int, nodes: int) -> None:
    """Ranks are spread over the nodes in order, none twice and none forgotten."""
    scenario = Scenario(ranks=ranks, nodes=nodes)

    assert [rank for node in range(nodes) for rank in scenario.ranks_on(node)] == list(range(ranks))
    assert all(rank in scenario.ranks_on(scenario.node_of(rank)) for rank in range(ranks))


def test_step_after_seconds() -> None:
    """The first step that begins 10 s after the start is number 228: 227 steps of 44 ms fit before it."""
    assert SLOW.step_after(10.0) == 228
    assert SLOW.step_after(0.0) == 1
