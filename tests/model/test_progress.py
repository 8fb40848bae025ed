"""How long silence may last, and what counts as getting ahead."""

from __future__ import annotations

import pytest

from fakes import FakeClock
from straggler.detect.policy import DEFAULT
from straggler.model.progress import HangLimits, Progress
from straggler.wire import layout
from straggler.wire.records import Live

LIMITS = HangLimits(
    steps=DEFAULT.hang_steps, min_seconds=DEFAULT.hang_min_seconds, excluded_seconds=DEFAULT.hang_excluded_seconds
)
LIVE = Live(7, 7, 0, 0, layout.STATUS_RUNNING, None)


@pytest.mark.parametrize(
    ("mean_step_seconds", "excluded", "seconds"),
    [
        (0.05, False, 120.0),
        (12.0, False, 120.0),
        (90.0, False, 900.0),
        (0.05, True, 3600.0),
        (900.0, True, 9000.0),
        (None, False, 3600.0),
        (None, True, 3600.0),
    ],
)
def test_limits(mean_step_seconds: float | None, excluded: bool, seconds: float) -> None:  # noqa: FBT001  # a parameter
    """Ten steps, at least two minutes; an hour in excluded phases and before the first step."""
    assert LIMITS.seconds(mean_step_seconds, excluded=excluded) == seconds


@pytest.mark.parametrize(
    ("serial", "live"),
    [(8, LIVE), (7, LIVE._replace(arrivals=8)), (7, LIVE._replace(excluded_phase=6)), (8, None)],
    ids=["step", "arrival", "phase", "step without a live block"],
)
def test_what_counts_as_progress(serial: int, live: Live | None) -> None:
    """A step, an arrival, and entering an excluded phase are progress."""
    clock = FakeClock()
    progress = Progress(clock.monotonic())
    progress.observe(clock.monotonic(), 7, LIVE)
    clock.advance(10)

    assert progress.observe(clock.monotonic(), serial, live)
    assert progress.age(clock.monotonic()) == 0


def test_sign_of_life_alone_is_no_progress() -> None:
    """A live block that is written again without getting ahead is no progress."""
    clock = FakeClock()
    progress = Progress(clock.monotonic())
    progress.observe(clock.monotonic(), 7, LIVE)
    clock.advance(10)

    assert not progress.observe(clock.monotonic(), 7, LIVE._replace(updated_monotonic_ns=5))
    assert progress.age(clock.monotonic()) == 10


def test_first_look_is_no_progress() -> None:
    """At first sight the age is what was said of it."""
    clock = FakeClock()
    progress = Progress(clock.monotonic(), age_seconds=30)

    assert not progress.observe(clock.monotonic(), 7, LIVE)
    assert progress.age(clock.monotonic()) == 30
