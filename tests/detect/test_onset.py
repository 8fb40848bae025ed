"""First and last slow step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from straggler.detect.onset import first_slow, last_slow


@pytest.mark.parametrize(
    ("ratios", "first"),
    [
        ([1.0, 1.0, 1.5, 1.5, 1.5], 2),
        ([1.5, 1.5], 0),
        ([1.0, 1.6, 1.0, 1.0, 1.5, 1.5, 1.5], 4),  # one slow step long before
        ([1.0, 1.5, 1.5, 1.1, 1.5, 1.5], 1),  # one fast step within
    ],
)
def test_first_slow(ratios: list[float], first: int) -> None:
    """The best split, whatever single steps do; the last slow step is its mirror."""
    assert first_slow(ratios, 1.5) == first
    assert last_slow(ratios[::-1], 1.5) == len(ratios) - 1 - first


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=50), st.floats(1.01, 5))
def test_always_a_step(ratios: list[float], level: float) -> None:
    """Whatever the ratios, the answer is one of the steps."""
    assert 0 <= first_slow(ratios, level) < len(ratios)
    assert 0 <= last_slow(ratios, level) < len(ratios)
