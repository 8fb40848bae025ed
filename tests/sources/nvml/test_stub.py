"""The whole source: a C library, the real binding, the real process."""

from __future__ import annotations

import os
import signal
import time

import pytest

from straggler.model.gpu import GpuKey
from straggler.model.reading import SourceState
from stubbed import UUIDS, Stubbed, wait_until_gone

FIRST, SECOND = GpuKey(UUIDS[0]), GpuKey(UUIDS[1])


def test_identity(stubbed: Stubbed) -> None:
    """A GPU is described by UUID, index, bus id and model, in this project's spelling."""
    gpu = stubbed.gpus()[SECOND]

    assert (gpu.gpu, gpu.pci_bus_id, gpu.model, gpu.source) == (1, "00000000:1C:00.0", "Stub H100", "nvml")


def test_values_are_in_base_units(stubbed: Stubbed) -> None:
    """Megahertz, milliwatts, millijoules and percent become hertz, watts, joules and ratios."""
    values = stubbed.gpus("sm 0 1155")[FIRST].values

    expected = {
        "sm_clock_hertz": 1_155e6,
        "sm_clock_max_hertz": 1_980e6,
        "power_watts": 650.5,
        "power_limit_watts": 700.0,
        "energy_joules_total": 129_931_554.972,
        "utilization_ratio": 0.97,
        "memory_used_bytes": 2.0 * 2**30,
        "memory_reserved_bytes": 1.0 * 2**30,
        "pcie_link_width": 16.0,
        "row_remap_pending": 0.0,
        "ecc_single_bit_errors_total": 2.0,
    }
    assert {name: values.get(name) for name in expected} == pytest.approx(expected)


def test_unsupported_values_are_absent(stubbed: Stubbed) -> None:
    """What the GPU does not have is neither a value nor a problem."""
    reading = stubbed.look("fail nvmlDeviceGetTemperature 3")

    assert all("temperature_celsius" not in gpu.values for gpu in reading.facts)
    assert all("ecc_double_bit_errors_total" not in gpu.values for gpu in reading.facts)
    assert reading.problems == ()


def test_failed_value_costs_that_value_alone(stubbed: Stubbed) -> None:
    """A function with an unknown error is counted for each GPU, and everything else is there."""
    reading = stubbed.look("fail nvmlDeviceGetPowerUsage 999")

    assert [(problem.reason, problem.count) for problem in reading.problems] == [("value_failed", 2)]
    assert all("power_watts" not in gpu.values and "sm_clock_hertz" in gpu.values for gpu in reading.facts)


def test_event_seconds_tell_reasons_apart(stubbed: Stubbed) -> None:
    """Nanoseconds become seconds, and the older sum over heat is left out where the driver tells its parts."""
    seconds = stubbed.gpus()[FIRST].clocks_event_seconds

    assert seconds == {"sw_power_cap": 2.5, "sw_thermal": 0.0, "hw_thermal": 0.0, "hw_power_brake": 1.5}


def test_event_reasons_by_bit(stubbed: Stubbed) -> None:
    """The mask becomes one value for each reason."""
    reasons = stubbed.gpus("reasons 0 0x84")[FIRST].clocks_event_reasons

    assert [name for name, active in reasons.items() if active] == ["sw_power_cap", "hw_power_brake"]
    assert reasons["hw_thermal"] == 0
    assert "reliability" not in reasons


def test_old_driver_answers_by_its_own_names(stubbed_old: Stubbed) -> None:
    """Event reasons, memory and heat come from what a driver has that lacks the newer functions and fields."""
    reading = stubbed_old.look("reasons 0 0x40")
    gpu = reading.facts[0]

    assert gpu.clocks_event_reasons["hw_thermal"] == 1
    assert gpu.clocks_event_seconds == {"sw_power_cap": 2.5, "thermal": 9.0}
    assert gpu.values["memory_used_bytes"] == 3.0 * 2**30
    assert "memory_reserved_bytes" not in gpu.values
    assert "xid_events_total" not in gpu.values
    assert (reading.state, reading.problems) == (SourceState.OK, ())


def test_gpm_needs_two_looks(stubbed: Stubbed) -> None:
    """The first look has no activity and is not blind for that; the second has the mean between the two."""
    first = stubbed.look("gpm 0 61.5")
    time.sleep(0.11)  # NVIDIA wants 100 ms between two samples
    second = stubbed.look("gpm 0 61.5")

    assert first.blind == ()
    assert "sm_active_ratio" not in first.facts[0].values
    values = second.facts[0].values
    assert values["sm_active_ratio"] == 0.615
    assert values["sm_occupancy_ratio"] == 1.0  # 100.5 % of counters that are read one after the other
    assert values["pcie_transmit_bytes_per_second"] == 1024 * 2**20
    assert "dram_active_ratio" not in values  # NaN
    assert second.problems == ()


def test_gpm_without_permission_is_blind(stubbed: Stubbed) -> None:
    """Activity that is for administrators only is a hole in what can be seen, with the way to fill it."""
    reading = stubbed.look("gpm 0 -4\ngpm 1 -4")

    assert [(problem.reason, problem.count) for problem in reading.blind] == [("sm_active_absent", 2)]
    assert "CAP_SYS_ADMIN" in reading.blind[0].detail


def test_divided_gpu(stubbed: Stubbed) -> None:
    """A MIG instance is a GPU of its own, with its own memory and the whole GPU's clock, but not its power."""
    gpus = stubbed.gpus("mig 1")

    assert set(gpus) == {FIRST, SECOND, GpuKey(UUIDS[1], 1), GpuKey(UUIDS[1], 2)}
    part = gpus[GpuKey(UUIDS[1], 1)]
    assert part.mig_profile == "2g.20gb"
    assert part.mig_uuids == (
        "MIG-00000000-0000-0000-0000-000000000010",
        "MIG-00000000-0000-0000-0000-000000000011",
    )
    assert part.values["memory_total_bytes"] == 10 * 2**30
    assert part.values["sm_clock_hertz"] == 1_980e6
    assert "power_watts" not in part.values
    assert "utilization_ratio" not in gpus[SECOND].values


def test_activity_of_an_instance(stubbed: Stubbed) -> None:
    """GPM is asked for each instance."""
    stubbed.look("mig 1\ngpm 1 25")
    time.sleep(0.11)

    assert stubbed.gpus("mig 1\ngpm 1 25")[GpuKey(UUIDS[1], 2)].values["sm_active_ratio"] == 0.25


def test_lost_gpu_costs_that_gpu_alone(stubbed: Stubbed) -> None:
    """A GPU that falls off the bus keeps its name and loses its values; the other one has all."""
    stubbed.look()
    reading = stubbed.look("lost 1")

    assert reading.state is SourceState.OK
    assert [(problem.reason, problem.count) for problem in reading.blind] == [("gpu_lost", 1)]
    assert {gpu.key for gpu in reading.facts} == {FIRST, SECOND}
    assert [bool(gpu.values.keys() - {"xid_events_total"}) for gpu in reading.facts] == [True, False]


def test_vanished_gpu_is_missed(stubbed: Stubbed) -> None:
    """A GPU that the driver does not count any more is missing, as long as it stays away."""
    stubbed.look()
    gone = stubbed.look("count 1")
    still_gone = stubbed.look("count 1")
    back = stubbed.look()

    assert [(problem.reason, problem.count) for problem in gone.blind] == [("gpu_missing", 1)]
    assert UUIDS[1] in gone.blind[0].detail
    assert [problem.reason for problem in still_gone.blind] == ["gpu_missing"]
    assert back.blind == ()


def test_lost_value_is_missed(stubbed: Stubbed) -> None:
    """A value that a GPU had and has no more is a hole."""
    stubbed.look()
    reading = stubbed.look("fail nvmlDeviceGetPowerUsage 3")

    assert [(problem.reason, problem.count) for problem in reading.blind] == [("metric_missing", 2)]
    assert "power_watts" in reading.blind[0].detail


def test_xids_are_counted_with_repeats(stubbed: Stubbed) -> None:
    """Each event counts, the same number twice too; a GPU that is watched starts at zero."""
    before = stubbed.gpus()[FIRST]
    after = stubbed.gpus("xid 0 63\nxid 0 63\nxid 0 79")

    assert before.values["xid_events_total"] == 0
    assert after[FIRST].values["xid_events_total"] == 3
    assert after[FIRST].xid_events == {63: 2, 79: 1}
    assert after[SECOND].xid_events == {}


def test_xid_of_a_gpu_that_cannot_be_asked_any_more(stubbed: Stubbed) -> None:
    """The event that says that a GPU fell off the bus is counted for that GPU."""
    stubbed.look()
    gpus = stubbed.gpus("lost 1\nxid 1 79")

    assert gpus[SECOND].xid_events == {79: 1}


def test_xid_counts_outlive_the_process(stubbed: Stubbed) -> None:
    """The counter goes on when the process that looks was ended and started anew."""
    stubbed.look()
    stubbed.look("xid 0 31")
    os.kill(stubbed.workers[0].pid, signal.SIGKILL)
    wait_until_gone(stubbed.workers[0])

    assert stubbed.gpus("xid 0 31")[FIRST].xid_events == {31: 1}
    assert len(stubbed.workers) == 2


def test_rate_between_looks(stubbed_old: Stubbed) -> None:
    """A driver without these counters gives no rate, and no zero either."""
    stubbed_old.look()

    assert "pcie_transmit_bytes_per_second" not in stubbed_old.gpus()[FIRST].values


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (9, "driver_not_loaded"),
        (18, "version_mismatch"),
        (4, "no_permission"),
        (15, "gpu_lost"),
        (999, "unknown_error"),
        (17, "nvml_error"),
    ],
)
def test_library_that_does_not_work(stubbed: Stubbed, code: int, reason: str) -> None:
    """A library that cannot start is a failed source, with a reason for each kind of failure."""
    reading = stubbed.look(f"init {code}")

    assert reading.state is SourceState.FAILED
    assert [problem.reason for problem in reading.problems] == [reason]


def test_all_gpus_lost(stubbed: Stubbed) -> None:
    """When none of the GPUs can be talked to the source has failed, and nobody is shown."""
    stubbed.look()
    reading = stubbed.look("lost 0\nlost 1")

    assert (reading.state, reading.facts) == (SourceState.FAILED, ())
    assert [problem.reason for problem in reading.problems] == ["gpu_lost"]


def test_driver_that_is_unloaded_and_loaded_again(stubbed: Stubbed) -> None:
    """A driver that goes away under an open library is a failed source until a new process finds the new one."""
    stubbed.look()
    gone = stubbed.look("fail nvmlDeviceGetCount_v2 9")
    wait_until_gone(stubbed.workers[0])
    stubbed.clock.advance(11)
    back = stubbed.look()

    assert [problem.reason for problem in gone.problems] == ["driver_not_loaded"]
    assert (back.state, len(back.facts), len(stubbed.workers)) == (SourceState.OK, 2, 2)


def test_recovery_after_a_failure_waits(stubbed: Stubbed) -> None:
    """After a failure there is no new try for a while, and then a new process tries the new state."""
    stubbed.look("init 18")
    too_early = stubbed.look()
    wait_until_gone(stubbed.workers[0])
    stubbed.clock.advance(11)

    assert too_early.state is SourceState.FAILED
    assert len(stubbed.workers) == 1
    assert stubbed.look().state is SourceState.OK
    assert len(stubbed.workers) == 2


def test_hung_call_is_waited_for_and_then_killed(stubbed: Stubbed) -> None:
    """A call that hangs costs one process: it is not asked twice, it is killed, and the next try waits."""
    first = stubbed.look("hang", timeout_seconds=0.01)
    stubbed.clock.advance(30)
    second = stubbed.look("hang", timeout_seconds=0.01)
    stubbed.clock.advance(31)
    third = stubbed.look("hang", timeout_seconds=0.01)

    assert [reading.problems[0].reason for reading in (first, second, third)] == ["timeout", "timeout", "hung"]
    assert {reading.state for reading in (first, second, third)} == {SourceState.FAILED}
    assert len(stubbed.workers) == 1
    wait_until_gone(stubbed.workers[0])
    stubbed.clock.advance(11)
    assert stubbed.look().state is SourceState.OK


def test_late_answer_is_used(stubbed: Stubbed) -> None:
    """A call that took longer than a look may is not made again: its answer belongs to the next look."""
    assert stubbed.look("hang", timeout_seconds=0.01).state is SourceState.FAILED

    assert stubbed.look("").state is SourceState.OK
    assert len(stubbed.workers) == 1


def test_handles_are_released_when_idle(stubbed: Stubbed) -> None:
    """When nobody asks, the process closes the library in an orderly way and ends; the next look starts another."""
    stubbed.idle_seconds = 1.0
    stubbed.look()
    wait_until_gone(stubbed.workers[0])

    assert stubbed.closed.exists()
    assert stubbed.look().state is SourceState.OK
    assert len(stubbed.workers) == 2


def test_process_that_dies_in_a_call(stubbed: Stubbed) -> None:
    """A library that brings its process down is a failed source, and is tried again later."""
    stubbed.look("hang", timeout_seconds=0.01)
    os.kill(stubbed.workers[0].pid, signal.SIGKILL)
    died = stubbed.look()
    wait_until_gone(stubbed.workers[0])
    stubbed.clock.advance(11)

    assert [problem.reason for problem in died.problems] == ["worker_died"]
    assert "-9" in died.problems[0].detail
    assert stubbed.look().state is SourceState.OK


def test_process_ends_with_the_source(stubbed: Stubbed) -> None:
    """A source that is closed leaves no process behind."""
    stubbed.look()
    stubbed.source.close()

    wait_until_gone(stubbed.workers[0])


def test_no_library(stubbed: Stubbed) -> None:
    """Without a driver the source is absent, and no process is started for each look."""
    stubbed.library = stubbed.state.parent
    readings = [stubbed.look() for _ in range(3)]

    assert {reading.state for reading in readings} == {SourceState.ABSENT}
    assert len(stubbed.workers) == 1


def test_missing_library_that_was_asked_for(stubbed: Stubbed) -> None:
    """Where NVML is wanted, its absence is a failure."""
    stubbed.library = stubbed.state.parent
    stubbed.source = stubbed.make(required=True)

    assert [problem.reason for problem in stubbed.look().problems] == ["library_missing"]


def test_dividing_a_gpu_loses_nothing(stubbed: Stubbed) -> None:
    """A GPU that MIG is switched on for has fewer values from then on, and that is no hole."""
    stubbed.look()
    reading = stubbed.look("mig 1")

    assert "metric_missing" not in {problem.reason for problem in reading.blind}
