"""Running, hung, crashed or finished, from what was seen and when."""

from __future__ import annotations

from typing import Any

import pytest

from fakes import FakeClock
from straggler.model.progress import HangLimits
from straggler.model.rank import RankState
from straggler.sources.rings.assess import Liveness, Sight
from straggler.wire import layout
from straggler.wire.records import Live

LIMITS = HangLimits(steps=10, min_seconds=120, excluded_seconds=3600)
RUNNING, HUNG, CRASHED, FINISHED = RankState.RUNNING, RankState.HUNG, RankState.CRASHED, RankState.FINISHED


class Observer:
    """Looks at one imagined ring; each look says only what is different from the last."""

    def __init__(self, age_seconds: float = 0.0, limits: HangLimits = LIMITS) -> None:
        self.clock = FakeClock()
        self.liveness = Liveness(limits, now=self.clock.monotonic(), age_seconds=age_seconds)
        self.values: dict[str, Any] = {"held": True, "serial": 100, "mean_step_seconds": 0.05}
        self.ring = Live(100, 100, 0, 0, layout.STATUS_RUNNING, None)

    def look(self, after: float = 0.0, **changes: Any) -> RankState:
        """Let time pass, then look."""
        self.clock.advance(after)
        self.ring = self.ring._replace(**{key: value for key, value in changes.items() if key in Live._fields})
        self.values |= {key: value for key, value in changes.items() if key not in Live._fields}
        return self.liveness.assess(Sight(now=self.clock.monotonic(), live=self.ring, **self.values))


def test_stepping_rank_runs() -> None:
    """A rank that gets ahead is running, however much time passes."""
    observer = Observer()

    assert {observer.look(after=100, serial=100 + look) for look in range(50)} == {RUNNING}


def test_silence_is_a_hang_after_the_limit() -> None:
    """120 s without a step or an arrival is no hang, more is."""
    observer = Observer()
    observer.look()

    assert observer.look(after=120) is RUNNING
    assert observer.look(after=1) is HUNG


def test_slow_steps_get_ten_of_their_own() -> None:
    """With steps of 90 s the limit is 900 s, not 120."""
    observer = Observer()
    observer.look(mean_step_seconds=90.0)

    assert observer.look(after=899) is RUNNING
    assert observer.look(after=2) is HUNG


def test_arrivals_are_progress() -> None:
    """A rank that keeps arriving at collectives is not hung though its step takes long."""
    observer = Observer()

    assert {observer.look(after=100, arrivals=100 + look) for look in range(10)} == {RUNNING}


def test_hang_ends_with_a_step() -> None:
    """After a hang one step makes it running again."""
    observer = Observer()
    observer.look()
    assert observer.look(after=500) is HUNG

    assert observer.look(after=1, serial=101) is RUNNING


@pytest.mark.parametrize("phase", layout.EXCLUDED)
def test_checkpoint_and_eval_may_take_an_hour(phase: int) -> None:
    """In checkpoint or eval silence is a hang only after the longer limit."""
    observer = Observer()
    observer.look(excluded_phase=phase)

    assert observer.look(after=3600) is RUNNING
    assert observer.look(after=1) is HUNG


def test_compilation_may_take_an_hour() -> None:
    """Before the first step the longer limit holds."""
    observer = Observer()
    observer.look(serial=0, arrivals=0, mean_step_seconds=None)

    assert observer.look(after=3600) is RUNNING
    assert observer.look(after=1) is HUNG


def test_leaving_the_checkpoint_starts_the_clock_anew() -> None:
    """The end of a checkpoint is progress: the normal limit counts from there."""
    observer = Observer()
    observer.look(excluded_phase=layout.PHASE_INDEX["checkpoint"])
    observer.look(after=3000, excluded_phase=None)

    assert observer.look(after=119) is RUNNING


def test_finished_after_goodbye() -> None:
    """A normal goodbye is the end, whether or not the process lingers."""
    observer = Observer()
    observer.look()

    assert observer.look(after=1, status=layout.STATUS_FINISHED) is FINISHED
    assert observer.look(after=10_000, held=False) is FINISHED


def test_crashed_after_an_exception() -> None:
    """A goodbye because of an exception is a crash at once."""
    observer = Observer()
    observer.look()

    assert observer.look(after=1, status=layout.STATUS_EXCEPTION) is CRASHED


def test_lost_lock_and_no_step_is_a_crash() -> None:
    """Once the lock was seen and is lost, two steps of silence are enough."""
    observer = Observer()
    observer.look()
    assert observer.look(after=5, serial=150, held=False) is RUNNING, "it may have stepped after losing the lock"

    assert observer.look(after=5) is CRASHED


def test_lost_lock_and_a_step_after_it_is_no_crash() -> None:
    """A step after the loss shows that the lock was dropped by somebody's open and close: from then on age decides."""
    observer = Observer()
    observer.look(mean_step_seconds=30.0)
    observer.look(after=5, held=False)
    assert observer.look(after=25, serial=101) is RUNNING

    assert observer.look(after=299) is RUNNING
    assert observer.look(after=2) is HUNG


def test_false_crash_is_taken_back() -> None:
    """If a step comes after all, the rank is running again, and the lock is not believed any more."""
    observer = Observer()
    observer.look()
    assert observer.look(after=5, held=False) is CRASHED

    assert observer.look(after=5, serial=101) is RUNNING
    assert observer.look(after=5) is RUNNING
    assert observer.liveness.gone_since is None


def test_long_step_is_waited_for_after_a_lost_lock() -> None:
    """With steps of 40 s a lost lock counts after 80 s of silence, with steps of ten minutes after 120 s."""
    for step_seconds, grace in ((40.0, 80.0), (600.0, 120.0)):
        observer = Observer()
        observer.look(mean_step_seconds=step_seconds)

        assert observer.look(after=grace, held=False) is RUNNING
        assert observer.look(after=1) is CRASHED


def test_killed_in_a_checkpoint() -> None:
    """A process killed in a checkpoint is not waited for an hour."""
    observer = Observer()
    observer.look(excluded_phase=layout.PHASE_INDEX["checkpoint"])

    assert observer.look(after=5, held=False) is CRASHED


def test_killed_before_the_first_step() -> None:
    """A process killed while it starts is known dead ten seconds later."""
    observer = Observer()
    observer.look(serial=0, arrivals=0, mean_step_seconds=None)
    observer.look(after=5, held=False)

    assert observer.look(after=6) is CRASHED


@pytest.mark.parametrize("held", [False, None])
def test_faked_lock_leaves_it_to_age(held: bool | None) -> None:  # noqa: FBT001  # a parameter of the test
    """Where no lock was ever seen, a rank that was seen stepping is hung when it stops, and given up after an hour."""
    observer = Observer()
    observer.look(held=held)
    observer.look(after=1, serial=101)

    assert observer.look(after=120) is RUNNING
    assert observer.look(after=1) is HUNG
    assert observer.look(after=3600) is CRASHED


def test_faked_lock_while_compiling() -> None:
    """Where no lock was ever seen and no step either, it is start-up."""
    observer = Observer()

    assert observer.look(held=False, serial=0, arrivals=0, mean_step_seconds=None) is RUNNING
    assert observer.look(after=3000) is RUNNING


def test_ring_without_any_sign_of_life_was_dead_before() -> None:
    """Unlocked, and nothing moves from the first look on: dead since the file was last written to."""
    observer = Observer(age_seconds=60)

    assert observer.look(held=False) is CRASHED
    assert observer.liveness.gone_since == observer.clock.monotonic() - 60


def test_crash_that_was_seen_begins_when_it_is_seen() -> None:
    """A rank that was seen alive is gone from the look that finds it dead."""
    observer = Observer()
    observer.look()
    observer.look(after=5, held=False)

    assert observer.liveness.gone_since == observer.clock.monotonic()


def test_wall_clock_does_not_matter() -> None:
    """A jump of the wall clock neither hangs nor revives anybody."""
    observer = Observer()
    observer.look()
    observer.clock.jump(1e6)

    assert observer.look(after=10) is RUNNING


def test_unanswered_lock_question_is_no_loss() -> None:
    """A lock that cannot be asked for any more is not a lost one."""
    observer = Observer()
    observer.look()

    assert observer.look(after=60, held=None) is RUNNING


def test_hook_that_is_off_lives_as_long_as_its_lock() -> None:
    """A hook that switched itself off says nothing of the rank; its ring is over when the process is."""
    observer = Observer()
    observer.look()

    assert observer.look(after=5000, status=layout.STATUS_OFF) is RUNNING
    assert observer.look(after=1, held=False) is FINISHED
