"""The running window says what the shared definition says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from straggler.detect.window import Window
from straggler.wire.recent import Sample, summarize_samples

STEPS = st.lists(
    st.tuples(
        st.integers(min_value=0, max_value=2_000_000_000),  # time to the next step
        st.integers(min_value=0, max_value=10**12),
        st.none() | st.integers(min_value=0, max_value=10**12),
        st.integers(min_value=0, max_value=10**12),
    ),
    max_size=120,
)


@given(STEPS)
def test_window_equals_summarize(steps: list[tuple[int, int, int | None, int]]) -> None:
    """After any steps, measured or not, both give the same figures to the last bit."""
    window, samples, end = Window(), list[Sample](), 0
    for gap, wall, own, wait in steps:
        end += gap
        samples.append(Sample(end, wall, own, wait))
        window.add(samples[-1])

        assert window.recent() == summarize_samples(samples)
