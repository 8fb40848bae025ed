"""The window that verdicts compare, worked out by hand."""

from __future__ import annotations

import pytest

from ring_files import record
from straggler.wire import layout
from straggler.wire.recent import Recent, sample, summarize
from straggler.wire.records import StepRecord

MS = 1_000_000


def steps(*waits_ms: int, step_ms: int = 100) -> list[StepRecord]:
    """Consecutive steps of 100 ms, each waiting so long."""
    return [
        record(serial, step_ns=step_ms * MS, wait_ns=wait * MS)._replace(end_monotonic_ns=serial * step_ms * MS)
        for serial, wait in enumerate(waits_ms, 1)
    ]


def test_mean_median_and_least() -> None:
    """Own times of 90, 80 and 40 ms: mean 70, median 80; waits of 10, 20 and 60: mean 30, least 10."""
    assert summarize(steps(10, 20, 60)) == pytest.approx(Recent(3, 0.1, 0.07, 0.08, 0.03, 0.01))


def test_one_stall_moves_the_mean_and_not_the_median() -> None:
    """Of 32 steps one takes 45 s: the mean says so, the median does not. That is why verdicts ask for both."""
    stall = record(32, step_ns=45_000 * MS, wait_ns=0)
    recent = summarize([*steps(*[10] * 31), stall._replace(end_monotonic_ns=48_100 * MS)])

    assert recent is not None
    assert recent.own_mean_seconds == pytest.approx((31 * 0.09 + 45) / 32)
    assert recent.own_median_seconds == pytest.approx(0.09)


def test_checkpoint_is_neither_own_nor_wait() -> None:
    """A step of 100 ms with 60 of checkpoint and 10 of waiting has 30 of own time."""
    phases = [0] * layout.PHASE_COUNT
    phases[layout.WAIT], phases[layout.PHASE_INDEX["checkpoint"]] = 10 * MS, 60 * MS
    recent = summarize([steps(10)[0]._replace(phase_ns=tuple(phases))])

    assert recent is not None
    assert (recent.own_mean_seconds, recent.wait_mean_seconds) == pytest.approx((0.03, 0.01))


@pytest.mark.parametrize("flag", [layout.FLAG_PROFILED, layout.FLAG_FAILED])
def test_profiled_and_failed_steps_do_not_count(flag: int) -> None:
    """A step under a profiler, or ended by an exception, is left out."""
    first, second = steps(10, 90)
    second = second._replace(flags=layout.FLAG_OWN | flag)

    assert sample(second) is None
    assert summarize([first, second]) == summarize([first])


def test_own_time_is_over_the_measured_steps() -> None:
    """Where own time was measured in some steps only, own and wait are over those, the step mean over all."""
    first, second = steps(10, 0)
    second = second._replace(flags=0, own_reason=1, wall_ns=300 * MS)

    assert summarize([first, second]) == pytest.approx(Recent(1, 0.2, 0.09, 0.09, 0.01, 0.01))


def test_unmeasured_own_time_is_absent() -> None:
    """Without any measured step own and wait are absent, and the step mean is over all."""
    unmeasured = [step._replace(flags=0, own_reason=1) for step in steps(0, 0)]

    assert summarize(unmeasured) == pytest.approx(Recent(2, 0.1, None, None, None, None))


@pytest.mark.parametrize(("step_ms", "count"), [(10, 1000), (100, 100), (400, 32), (90_000, 32)])
def test_window_is_ten_seconds_or_32_steps(step_ms: int, count: int) -> None:
    """Whichever holds more steps."""
    recent = summarize(steps(*[0] * 1500, step_ms=step_ms))

    assert recent is not None
    assert recent.steps == count


def test_nothing() -> None:
    """No step, no window."""
    assert summarize([]) is None
