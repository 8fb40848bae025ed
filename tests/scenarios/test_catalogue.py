"""The scenarios themselves: enough of them, each verdict among them, and no seed used twice."""

from __future__ import annotations

from collections import Counter

from scenarios.catalogue import CURVE, CURVE_SEEDS, HELD_OUT_SEEDS, SCENARIOS, TUNING_SEEDS
from straggler.detect.verdict import VERDICTS


def test_names_are_one_each() -> None:
    """A run is known by its scenario's name: two of one name would be one run with twice the ranks."""
    names = Counter(scenario.name for scenario in (*SCENARIOS, *CURVE))

    assert [name for name, count in names.items() if count > 1] == []


def test_every_verdict_is_deserved_twice() -> None:
    """A verdict that no run deserves has a recall of 1 whatever the rules do; one run would be an anecdote."""
    deserved = Counter(verdict for scenario in SCENARIOS for verdict in {expect.verdict for expect in scenario.expect})

    assert {verdict for verdict in VERDICTS if deserved[verdict] < 2} == set()


def test_no_seed_of_the_figures_was_tuned_on() -> None:
    """Thresholds are tuned on other runs than those that are printed."""
    assert not {*HELD_OUT_SEEDS, *CURVE_SEEDS} & set(TUNING_SEEDS)
    assert len({*HELD_OUT_SEEDS, *CURVE_SEEDS}) == len(HELD_OUT_SEEDS) + len(CURVE_SEEDS)
