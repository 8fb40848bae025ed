"""The trimmed window says the same as all records would."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ring_files import record
from straggler.model.window import MAX_STEPS, Window
from straggler.wire import layout
from straggler.wire.recent import summarize
from straggler.wire.records import StepRecord

OWN = layout.FLAG_OWN
KINDS = [
    {"flags": OWN},
    {"flags": OWN | layout.FLAG_PROFILED},
    {"flags": OWN | layout.FLAG_FAILED},
    {"flags": 0, "own_reason": 1},
]


def made(plan: list[tuple[float, int]]) -> list[StepRecord]:
    """Records that last so many seconds, of such a kind."""
    records = []
    end = 0
    for serial, (seconds, kind) in enumerate(plan, 1):
        end += int(seconds * 1e9)
        changes: dict[str, Any] = KINDS[kind]
        records.append(record(serial, step_ns=int(seconds * 1e9), wait_ns=0, **changes)._replace(end_monotonic_ns=end))
    return records


@given(
    plan=st.lists(st.tuples(st.sampled_from([0.01, 0.2, 0.5, 3.0]), st.integers(0, 3)), max_size=150),
    parts=st.integers(1, 20),
)
def test_trimming_changes_nothing(plan: list[tuple[float, int]], parts: int) -> None:
    """However the records come in, the window's summary is that of all of them."""
    window = Window()
    records = made(plan)
    for start in range(0, len(records), parts):
        window.extend(records[start : start + parts])
        assert window.recent == summarize(records[: start + parts])


def test_keeps_32_long_steps() -> None:
    """Of long steps the last 32 stay."""
    window = Window()
    window.extend(made([(90.0, 0)] * 100))

    assert len(window) == 32
    assert window.recent is not None
    assert window.recent.steps == 32


def test_keeps_10_seconds_of_short_steps() -> None:
    """Of short steps the last 10 s stay."""
    window = Window()
    window.extend(made([(0.01, 0)] * 3000))

    assert window.recent is not None
    assert window.recent.steps == 1000


def test_is_bounded() -> None:
    """However short the steps, no more than a ring's worth is kept."""
    window = Window()
    window.extend(record(serial, step_ns=1000, wait_ns=0) for serial in range(1, 3 * MAX_STEPS))

    assert len(window) == MAX_STEPS


def test_profiled_steps_do_not_count() -> None:
    """Where all steps ran under a profiler there is no window, but a pace."""
    window = Window()
    window.extend(made([(2.0, 1)] * 40))

    assert window.recent is None
    assert window.newest is not None
    assert window.mean_step_seconds == pytest.approx(2.0)


def test_empty() -> None:
    """Before the first step nothing is known."""
    window = Window()

    assert (window.recent, window.newest, window.mean_step_seconds) == (None, None, None)
