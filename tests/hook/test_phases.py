"""Where time goes: phases, steps, and what is neither."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from straggler.hook.book import AS_BOOKED
from straggler.hook.marks import OUTSIDE
from straggler.hook.stopwatch import make_stopwatch
from straggler.wire import layout

Make = Callable[..., Any]


def test_phases_add_up_to_the_step(rank: Make) -> None:
    """What is in no phase is ``other``, and all together is the step."""
    one = rank()
    with one.timer.step():
        one.clock.ms(1)
        with one.timer.phase("forward"):
            one.clock.ms(10)
        one.clock.ms(2)
        with one.timer.phase("backward"):
            one.clock.ms(16)

    assert one.phases() == {"forward": 10, "backward": 16, "other": 3}
    assert one.records[0].wall_ns == 29_000_000


def test_inner_time_is_taken_out_of_the_outer(rank: Make) -> None:
    """A phase inside another, even of the same name, counts once."""
    one = rank()
    with one.timer.step(), one.timer.phase("backward"):
        one.clock.ms(3)
        with one.timer.phase("wait"):
            one.clock.ms(5)
            with one.timer.phase("backward"):
                one.clock.ms(1)
        with one.timer.phase("backward"):
            one.clock.ms(4)
        one.clock.ms(2)

    assert one.phases() == {"backward": 10, "wait": 5}


def test_a_step_begins_where_the_last_ended(rank: Make) -> None:
    """Time between two ``step()`` blocks belongs to the later step, and so does the batch that was fetched there."""
    one = rank()
    one.step()
    one.clock.ms(7)
    with one.timer.phase("data"):
        one.clock.ms(6)
    one.step()

    assert one.phases() == {"data": 6, "wait": 5, "other": 17}


def test_the_first_step_begins_with_the_first_call(rank: Make) -> None:
    """What happens before the loop is no part of a step; the first batch is."""
    one = rank()
    one.clock.ms(60_000)
    for _ in one.timer.data(slow_loader(one, 6)):
        one.step()

    assert one.phases(0) == {"data": 6, "wait": 5, "other": 10}
    assert len(one.records) == 2


def slow_loader(one: Any, milliseconds: float) -> Iterator[int]:
    """Two batches that take their time."""
    for batch in range(2):
        one.clock.ms(milliseconds)
        yield batch


def test_gradient_accumulation_is_one_step(rank: Make) -> None:
    """Several batches, forward and backward passes before one optimizer step make one step."""
    one = rank()
    batches = iter(one.timer.data(slow_loader(one, 1)))
    with one.timer.step():
        for _ in range(2):
            next(batches)
            with one.timer.phase("forward"):
                one.clock.ms(10)

    assert one.phases() == {"data": 2, "forward": 20}
    assert one.records[0].total_steps == 1


@pytest.mark.parametrize("name", ["checkpoint", "eval"])
@pytest.mark.parametrize("inside_step", [True, False])
def test_excluded_time_keeps_all_inside_it(rank: Make, name: str, inside_step: bool) -> None:  # noqa: FBT001
    """Forward passes and barriers of a validation are neither own time nor waiting, inside a step and between two."""
    one = rank()
    one.step()

    def exclude() -> None:
        with one.timer.phase(name):
            one.clock.ms(100)
            for _ in one.timer.data(slow_loader(one, 10)):
                with one.timer.phase("forward"):
                    one.clock.ms(20)
            with one.timer.phase("wait"):
                one.clock.ms(30)

    if inside_step:
        with one.timer.step():
            exclude()
            one.clock.ms(8)
    else:
        exclude()
        with one.timer.step():
            one.clock.ms(8)

    record = one.records[-1]
    assert one.phases() == {name: 190, "other": 8}
    assert record.own_ns == 8_000_000
    assert (record.total_own_ns, record.total_wait_ns) == (18_000_000, 5_000_000)
    assert record.arrivals == 2, "the barrier still was an arrival"


def test_steps_inside_excluded_time_are_none(rank: Make) -> None:
    """A validation that runs the training loop's own function makes no steps."""
    one = rank()
    one.step()
    with one.timer.exclude():
        one.step()
        one.timer.tick()
    one.step()

    assert [record.step for record in one.records] == [1, 2]
    assert one.phases() == {"eval": 15, "wait": 5, "other": 10}


def test_live_block_says_where_the_rank_is(rank: Make) -> None:
    """Entering and leaving checkpoint and eval, and each arrival, are written at once."""
    one = rank()
    one.step()
    seen = []
    with one.timer.phase("checkpoint"):
        seen.append(one.ring.live.excluded_phase)
        with one.timer.phase("eval"):
            seen.append(one.ring.live.excluded_phase)
    seen.append(one.ring.live.excluded_phase)
    with one.timer.step(), one.timer.phase("wait"):
        assert one.ring.live.arrivals == 2
        one.timer.arrive()
        assert one.ring.live.arrivals == 3

    checkpoint = layout.PHASE_INDEX["checkpoint"]
    assert seen == [checkpoint, checkpoint, None]


def test_unknown_phases_are_other_with_one_warning(rank: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Names that are no phase count as ``other``, are reported once, and cost no memory."""
    one = rank()
    with caplog.at_level(logging.WARNING), one.timer.step():
        for layer in range(100):
            with one.timer.phase(f"layer{layer}"):
                one.clock.ms(1)

    assert one.phases() == {"other": 100}
    assert [record.message for record in caplog.records] == [
        "phase 'layer0' counts as 'other': the phases are " + ", ".join(layout.PHASES)
    ]


def test_phase_objects_are_kept() -> None:
    """Asking for a phase makes nothing new."""
    from straggler import StepTimer

    timer = StepTimer(run="r", rank=0)
    assert timer.phase("forward") is timer.phase("forward")


def test_tick_marks_steps_from_call_to_call(rank: Make) -> None:
    """The first ``tick`` only begins; each later one ends a step, with the phases between."""
    one = rank()
    for _ in range(3):
        one.timer.tick(tokens=8)
        with one.timer.phase("forward"):
            one.clock.ms(10)
    one.timer.tick(tokens=8)

    assert [record.wall_ns for record in one.records] == [10_000_000] * 3
    assert one.records[-1].total_tokens == 24


def test_tick_after_data_ends_the_first_step(rank: Make) -> None:
    """At the end of a loop over ``data()`` even the first ``tick`` ends a step, with its batch."""
    one = rank()
    for _ in one.timer.data(slow_loader(one, 6)):
        one.clock.ms(10)
        one.timer.tick()

    assert [record.wall_ns for record in one.records] == [16_000_000] * 2


def test_steps_are_counted_on(rank: Make) -> None:
    """Numbers go on from where a resumed training stopped, unless the loop says its own."""
    one = rank(step=1000)
    one.step()
    with one.timer.step(5000):
        pass
    one.timer.tick()

    assert [record.step for record in one.records] == [1001, 5000, 5001]
    assert [record.serial for record in one.records] == [1, 2, 3]


def test_amounts_are_added_up(rank: Make) -> None:
    """Tokens and the like are totals, from ``step`` and from ``add_``; what was never said is unknown, not zero."""
    one = rank()
    with one.timer.step(tokens=10, flops=1e12):
        one.timer.add_tokens(5)
    first = one.records[-1]
    with one.timer.step(samples=2, allreduce_bytes=1 << 30, profiled=True):
        one.timer.add_flops(1)
        one.timer.add_samples(1)
        one.timer.add_allreduce_bytes(1)

    last = one.records[-1]
    assert (first.total_tokens, first.total_flops) == (15, 1e12)
    assert first.flags & layout.FLAG_TOKENS
    assert not first.flags & (layout.FLAG_SAMPLES | layout.FLAG_ALLREDUCE | layout.FLAG_PROFILED)
    assert (last.total_samples, last.total_allreduce_bytes, last.total_flops) == (3, (1 << 30) + 1, 1e12 + 1)
    assert last.flags & layout.FLAG_PROFILED
    assert last.total_profiled_steps == 1


class Tensor:
    """Would wait for a GPU if it were asked for its value."""

    def __index__(self) -> int:
        """Wait."""
        raise AssertionError("asked")

    __float__ = __int__ = __le__ = __ge__ = __bool__ = __index__


class NumpyArray:
    """Two numbers of numpy's."""

    ndim = 1


class NumpyScalar(int):
    """One number of numpy's."""

    ndim = 0


NumpyArray.__module__ = NumpyScalar.__module__ = "numpy"


@pytest.mark.parametrize(
    ("value", "taken"),
    [(7, 7), (7.0, 7), (NumpyScalar(7), 7), (0, 0)]
    + [(value, None) for value in (-1, 1e300, float("nan"), "7", [7], Tensor(), NumpyArray(), object())],
)
def test_only_plain_numbers_are_amounts(
    rank: Make, caplog: pytest.LogCaptureFixture, value: Any, taken: int | None
) -> None:
    """Anything else is ignored with one line, without asking it for its value, and the step counts all the same."""
    one = rank()
    for _ in range(3):
        with one.timer.step(tokens=value, samples=value):
            pass

    last = one.records[-1]
    assert last.total_steps == 3
    assert last.total_tokens == last.total_samples == 3 * (taken or 0)
    assert bool(last.flags & layout.FLAG_TOKENS) == (taken is not None)
    assert len(caplog.records) == (0 if taken is not None else 2)


def test_step_inside_step_is_ignored(rank: Make, caplog: pytest.LogCaptureFixture) -> None:
    """An adapter and a loop that both mark the step make one of it, said once."""
    one = rank()
    for _ in range(300):
        with one.timer.step():
            one.step()
            one.timer.tick()

    assert len(one.records) == 300
    assert len(caplog.records) == 2


def test_a_step_that_is_never_left_ends_where_the_next_begins(rank: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Progress stays visible when steps are entered and never left: each ends as failed, and one line says so."""
    one = rank()
    for _ in range(5):
        one.timer.step().__enter__()
        one.clock.ms(10)
    one.step()

    assert [bool(record.flags & layout.FLAG_FAILED) for record in one.records] == [True] * 5 + [False]
    assert [record.wall_ns for record in one.records] == [10_000_000] * 5 + [15_000_000]
    assert len(caplog.records) == 1


def test_a_step_that_is_never_left_but_kept(rank: Make) -> None:
    """The same where the loop keeps the objects."""
    one = rank()
    kept = []
    for _ in range(6):
        kept.append(one.timer.step())
        kept[-1].__enter__()
        one.clock.ms(10)

    assert 2 <= len(one.records) <= 5


def test_generator_with_a_step_is_dropped(rank: Make) -> None:
    """A generator that is closed in the middle of a step leaves it as an exception does."""
    one = rank()

    def trainer() -> Iterator[None]:
        while True:
            with one.timer.step():
                one.clock.ms(10)
                yield

    for _ in trainer():
        break
    one.step()

    assert [bool(record.flags & layout.FLAG_FAILED) for record in one.records] == [True, False]


def test_publish_step_of_an_instrument(rank: Make) -> None:
    """A step timed elsewhere is recorded as given; what its phases leave open is ``other``; own time is as said."""
    one = rank()
    phases = [0] * layout.PHASE_COUNT
    phases[layout.WAIT] = 4_000_000
    one.timer.set_identity(clock="cuda", gpu_uuid="GPU-1", framework="torch 9")
    one.timer.publish_step(10_000_000, phases, host_data_ns=77, tokens=3, end_monotonic_ns=123)
    one.timer.publish_step(1, phases, own_reason="hidden_collectives", failed=True)

    first, second = one.records
    assert (first.own_ns, first.wall_ns, first.host_data_ns, first.end_monotonic_ns) == (6_000_000, 10_000_000, 77, 123)
    assert first.phase_ns[layout.OTHER] == 6_000_000
    assert (second.wall_ns, second.own_ns, second.own_reason) == (4_000_000, None, 3)
    assert (second.total_steps, second.total_unmeasured_steps, second.total_host_data_ns) == (2, 1, 77)
    assert (one.ring.identity.clock, one.ring.identity.gpu_uuid) == ("cuda", "GPU-1")


NAMES = st.sampled_from(layout.PHASES)
ACTIONS = st.lists(
    st.tuples(st.sampled_from(["enter", "leave", "leave other", "pass", "step"]), NAMES, st.integers(0, 1000)),
    max_size=60,
)


class Rare:
    """Takes what a stopwatch reports."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, list[int]]] = []

    def admit(self) -> bool:
        """Nobody else is here."""
        return False

    def enter_step(self, step: Any) -> None:
        """Not used here."""

    leave_step = enter_step

    def arrive(self, now: int) -> None:
        """Not looked at."""

    def phase_left_open(self, index: int, now: int) -> None:
        """Not looked at."""

    def excluded_changed(self, index: int | None, now: int) -> None:
        """Not looked at."""

    def record(
        self, _end: int, wall: int, phases: list[int], _amounts: Any, flags: int, reason: int, host: int
    ) -> None:
        """Keep it."""
        assert (flags, reason, host) == (0, AS_BOOKED, 0)
        self.steps.append((wall, phases))

    def warn(self, about: str, text: str) -> None:
        """Nothing to say."""


@given(ACTIONS)
def test_any_order_of_calls_books_each_moment_once(actions: list[tuple[str, str, int]]) -> None:
    """Phases entered and left in any order never add up to more than the step, and no step loses time to another."""
    from threading import get_ident

    now = 1000
    rare = Rare()
    watch = make_stopwatch(lambda: now, rare)
    watch.set_owner(get_ident())
    watch.set_stepper(get_ident())
    watch.restart(now)
    opened: list[Any] = []
    for action, name, passed in actions:
        now += passed
        index = layout.PHASE_INDEX[name]
        mark = watch.phases.get(name) or watch.excluded_phase(index)
        if action == "enter":
            mark.__enter__()
            opened.append(mark)
        elif action == "leave" and opened:
            opened.pop().__exit__(None, None, None)
        elif action == "leave other":
            mark.__exit__(None, None, None)
        elif action == "step":
            watch.end_step(None, None)
            assert watch.phase() == OUTSIDE
    watch.end_step(None, None)

    assert sum(wall for wall, _ in rare.steps) == now - 1000
    for wall, phases in rare.steps:
        assert min(phases) >= 0
        assert sum(phases) <= wall
