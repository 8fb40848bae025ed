"""Frozen values, profiling stuck at zero, GPUs and fields that are gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from facts import gpu_facts
from fakes import FakeClock
from straggler.model.gpu import GpuFacts, GpuKey
from straggler.model.reading import SourceState
from straggler.sources.dcgm.eras import Era
from straggler.sources.dcgm.freshness import Freshness, Judged

BUSY = {"utilization_ratio": 1.0, "sm_active_ratio": 0.87, "power_watts": 612.382, "energy_joules_total": 1000.0}
IDLE = {"utilization_ratio": 0.0, "sm_active_ratio": 0.0, "power_watts": 70.0, "energy_joules_total": 5.0}


def gpu(index: int = 0, values: Mapping[str, float] = BUSY, instance: int | None = None, **more: float) -> GpuFacts:
    """A GPU with these values; by default busy, with all that verdicts need."""
    return gpu_facts(index, key=GpuKey(f"GPU-{index}", instance), values={**values, **more})


class Node:
    """A node whose page is looked at every 15 s."""

    def __init__(self, *, stale_after_seconds: float = 90.0) -> None:
        self.clock = FakeClock()
        self.freshness = Freshness(self.clock, stale_after_seconds=stale_after_seconds)

    def look(
        self, *gpus: GpuFacts, stepping: bool = True, complete: bool = True, seen: Era = Era.ANY, wait: float = 15.0
    ) -> Judged:
        """Look once, then let time pass."""
        judged = self.freshness.judge(gpus, stepping=stepping, complete=complete, seen=seen)
        self.clock.advance(wait)
        return judged

    def looks(self, seconds: float, *gpus: GpuFacts, stepping: bool = True) -> Judged:
        """Look at the same page for so long."""
        judged = self.look(*gpus, stepping=stepping)
        for _ in range(int(seconds / 15)):
            judged = self.look(*gpus, stepping=stepping)
        return judged


def blind(judged: Judged) -> dict[str, int]:
    """What cannot be seen."""
    return {problem.reason: problem.count for problem in judged.blind}


def values(judged: Judged) -> Sequence[Mapping[str, float]]:
    """What is shown."""
    return [gpu.values for gpu in judged.facts]


# --- frozen


def test_repeats_within_the_interval_are_fresh() -> None:
    """DCGM samples every 30 s and was seen 40 s late: equal values for 75 s mean nothing."""
    judged = Node().looks(75, gpu(0), gpu(1))

    assert (judged.state, blind(judged)) == (SourceState.OK, {})
    assert values(judged) == [BUSY, BUSY]


def test_frozen_page() -> None:
    """All GPUs equal to the last digit for longer than that, while ranks step: the source is stale, without values."""
    judged = Node().looks(105, gpu(0), gpu(1))

    assert (judged.state, blind(judged)) == (SourceState.STALE, {"values_frozen": 2})
    assert values(judged) == [{}, {}]
    assert [gpu.clocks_event_seconds for gpu in judged.facts] == [{}, {}]
    assert [(gpu.key, gpu.gpu) for gpu in judged.facts] == [(GpuKey("GPU-0"), 0), (GpuKey("GPU-1"), 1)]


def test_thawed_page() -> None:
    """The first value that moves makes the page fresh again."""
    node = Node()
    node.looks(105, gpu(0))
    judged = node.look(gpu(0, energy_joules_total=1001.0))

    assert (judged.state, blind(judged), values(judged)) == (
        SourceState.OK,
        {},
        [{**BUSY, "energy_joules_total": 1001.0}],
    )


def test_nobody_steps() -> None:
    """On a node where no rank steps, values may stand still for ever."""
    judged = Node().looks(3600, gpu(0), stepping=False)

    assert (judged.state, blind(judged)) == (SourceState.OK, {})


def test_a_run_begins_after_an_idle_hour() -> None:
    """What stood still before ranks stepped is no evidence: the time counts from the first step."""
    node = Node()
    node.looks(3600, gpu(0), stepping=False)
    judged = node.look(gpu(0))

    assert judged.state is SourceState.OK
    assert node.looks(105, gpu(0)).state is SourceState.STALE


def test_a_pause_restarts_the_time() -> None:
    """A run that pauses, as for a checkpoint, begins anew."""
    node = Node()
    node.looks(75, gpu(0))
    node.look(gpu(0), stepping=False)

    assert node.looks(75, gpu(0)).state is SourceState.OK


def test_an_hour_without_looks() -> None:
    """Two equal looks with an hour between prove nothing: nobody looked."""
    node = Node()
    node.look(gpu(0), wait=3600)

    assert node.look(gpu(0)).state is SourceState.OK


@pytest.mark.parametrize("name", ["utilization_ratio", "temperature_celsius", "sm_clock_hertz", "memory_used_bytes"])
def test_values_that_may_stand_still(name: str) -> None:
    """A page without anything that must move cannot be called frozen: a steady load has steady values."""
    judged = Node().looks(3600, gpu(0, {name: 0.97}))

    assert judged.state is SourceState.OK


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_the_ends_of_a_ratio_may_stand_still(value: float) -> None:
    """An idle SM is at exactly 0 and a full engine at exactly 1, for hours."""
    judged = Node().looks(3600, gpu(0, {"graphics_engine_active_ratio": value, "dram_active_ratio": 0.0}))

    assert judged.state is SourceState.OK


def test_idle_gpu_without_energy_may_stand_still() -> None:
    """A CPU run steps beside an idle GPU whose power is the same for an hour: nothing is frozen."""
    judged = Node().looks(3600, gpu(0, {"power_watts": 9.5, "utilization_ratio": 0.0}))

    assert (judged.state, blind(judged)) == (SourceState.OK, {"sm_active_absent": 1})


def test_busy_gpu_without_energy_may_not() -> None:
    """The power of a GPU that works is never the same for minutes."""
    judged = Node().looks(105, gpu(0, {"power_watts": 612.382, "utilization_ratio": 1.0}))

    assert judged.state is SourceState.STALE


def test_frozen_beside_idle() -> None:
    """GPUs at rest, of which nothing must move, do not hide that all others stand still."""
    judged = Node().looks(105, gpu(0, {"sm_active_ratio": 0.87}), gpu(1, {"sm_active_ratio": 0.0}))

    assert (judged.state, blind(judged)) == (SourceState.STALE, {"values_frozen": 1})


def test_one_frozen_gpu() -> None:
    """If one of two GPUs stands still with its energy counter, it is that GPU that is blind, and it shows nothing."""
    node = Node()
    judged = [node.look(gpu(0), gpu(1, energy_joules_total=1000.0 + second)) for second in range(10)][-1]

    assert (judged.state, blind(judged)) == (SourceState.OK, {"gpu_frozen": 1})
    assert values(judged) == [{}, {**BUSY, "energy_joules_total": 1009.0}]


def test_one_steady_gpu_without_energy() -> None:
    """Without an energy counter, a GPU that stands still beside others may just be idle."""
    node = Node()
    idle = {"power_watts": 70.0, "utilization_ratio": 0.0}
    judged = [node.look(gpu(0, idle), gpu(1, energy_joules_total=1000.0 + second)) for second in range(10)][-1]

    assert "gpu_frozen" not in blind(judged)
    assert values(judged)[0] == idle


def test_other_interval() -> None:
    """Who lets DCGM sample every two minutes says so, and is not told that the page is frozen."""
    assert Node(stale_after_seconds=180).looks(165, gpu(0)).state is SourceState.OK


def test_clock_of_the_wall_is_not_used() -> None:
    """A jump of the wall clock freezes nothing."""
    node = Node()
    node.looks(30, gpu(0))
    node.clock.jump(86_400)

    assert node.look(gpu(0)).state is SourceState.OK


# --- stuck at zero


STUCK = {**BUSY, "sm_active_ratio": 0.0, "tensor_active_ratio": 0.0, "dram_active_ratio": 0.2}


def test_zero_while_busy_is_withheld_at_once() -> None:
    """SM activity 0 on a GPU that is reported busy is never shown; what profiling says besides zero is."""
    judged = Node().look(gpu(0, STUCK))

    assert values(judged) == [{name: value for name, value in STUCK.items() if value}]
    assert blind(judged) == {}


def test_zero_while_busy_that_lasts_is_blind() -> None:
    """When it lasts longer than the two samples can be apart, profiling is stuck, and that is said for each GPU."""
    node = Node()
    pages = [[gpu(index, STUCK, energy_joules_total=float(second)) for index in range(2)] for second in range(8)]
    judged = [node.look(*page) for page in pages][-1]

    assert blind(judged) == {"prof_stuck_zero": 2}


def test_idle_zero_is_a_value() -> None:
    """Of an idle GPU an activity of 0 is true."""
    node = Node()
    judged = [node.look(gpu(0, IDLE, energy_joules_total=float(second))) for second in range(20)][-1]

    assert blind(judged) == {}
    assert values(judged)[0]["sm_active_ratio"] == 0


def test_zero_beside_a_busy_engine() -> None:
    """SM activity alone may be 0 while the graphics engine is busy: watched alone, DCGM gives none."""
    judged = Node().look(gpu(0, {"sm_active_ratio": 0.0, "graphics_engine_active_ratio": 0.99}))

    assert values(judged) == [{"graphics_engine_active_ratio": 0.99}]


def test_engine_at_zero_while_busy() -> None:
    """The shipped csv files have no SM activity; there the engine's activity shows that profiling is stuck."""
    judged = Node().look(gpu(0, {"utilization_ratio": 0.99, "graphics_engine_active_ratio": 0.0}))

    assert values(judged) == [{"utilization_ratio": 0.99}]


# --- absent


def test_sm_activity_absent() -> None:
    """Where no GPU has SM activity, the advice names the lines to enable, in the page's own names."""
    judged = Node().look(gpu(0, {"utilization_ratio": 0.9}), gpu(1, {}), seen=Era.RENAMED | Era.BASE_UNITS)
    (problem,) = judged.blind

    assert (problem.reason, problem.count) == ("sm_active_absent", 2)
    assert problem.detail.startswith("add to the csv file of dcgm-exporter: DCGM_FI_PROF_SM_UTIL_RATIO, gauge, ")
    assert problem.detail.endswith("DCGM_FI_PROF_TENSOR_UTIL_RATIO, gauge, Share of cycles with the tensor pipe busy.")
    assert "DCGM_FI_DEV_GPU_UTIL_RATIO" not in problem.detail


def test_sm_activity_of_one_gpu_absent() -> None:
    """Where other GPUs have it, its line is in the csv file, and other lines that lack are no remedy."""
    (problem,) = Node().look(gpu(0), gpu(1, {"utilization_ratio": 0.9})).blind

    assert (problem.reason, problem.count) == ("sm_active_absent", 1)
    assert "gauge" not in problem.detail


def test_sm_activity_lost() -> None:
    """Profiling that was there and is gone needs a restart, not a csv file."""
    node = Node()
    node.look(gpu(0), wait=60)
    (problem,) = node.look(gpu(0, {"utilization_ratio": 0.9})).blind

    assert (problem.reason, problem.count) == ("sm_active_absent", 1)
    assert "60 s ago" in problem.detail


def test_divided_gpu_needs_no_activity() -> None:
    """Under MIG the instances have SM activity, and the GPU itself has not."""
    judged = Node().look(gpu(0, {"power_watts": 300.0}), gpu(0, {"sm_active_ratio": 0.5}, instance=3))

    assert blind(judged) == {}


def test_gpu_missing() -> None:
    """A GPU that was on the page and is gone is missing until it comes back."""
    node = Node()
    node.look(gpu(0), gpu(1))

    assert blind(node.look(gpu(0))) == {"gpu_missing": 1}
    assert blind(node.look(gpu(0))) == {"gpu_missing": 1}
    assert blind(node.look(gpu(0), gpu(1))) == {}


def test_divided_gpu_is_not_missing() -> None:
    """A GPU that was put into MIG mode is there, in parts; so is one that was taken out of it."""
    node = Node()
    node.look(gpu(0))

    assert blind(node.look(gpu(0, instance=1), gpu(0, instance=2))) == {}
    assert blind(node.look(gpu(0))) == {}


def test_incomplete_page_concludes_nothing() -> None:
    """From a cut page nothing is concluded about what is not on it."""
    node = Node()
    node.look(gpu(0), gpu(1))

    assert blind(node.look(gpu(0, {"utilization_ratio": 0.9}), complete=False)) == {}


def test_metric_missing() -> None:
    """One GPU loses one metric that the others still have, as it happens without a word in the logs."""
    node = Node()
    node.look(gpu(0), gpu(1))
    rest = {name: value for name, value in BUSY.items() if name != "utilization_ratio"}
    (problem,) = node.look(gpu(0, rest), gpu(1, energy_joules_total=2.0)).blind

    assert (problem.reason, problem.count) == ("metric_missing", 1)
    assert "GPU-0 has lost utilization_ratio" in problem.detail


def test_metric_taken_from_the_csv_file() -> None:
    """A metric that vanishes from all GPUs was taken off the csv file, which is nobody's fault."""
    node = Node()
    rest = {name: value for name, value in BUSY.items() if name != "utilization_ratio"}
    node.look(gpu(0), gpu(1))

    assert blind(node.look(gpu(0, rest), gpu(1, rest))) == {}


def test_memory_is_bounded() -> None:
    """A page that invents new GPUs with every look is not remembered without end."""
    node = Node()
    judged = [node.look(*(gpu(look * 1000 + index) for index in range(1000))) for look in range(4)][-1]

    assert blind(judged)["gpu_missing"] <= 1024
