"""A part of the suite: the rules and the embedded policy say what a few runs of each kind deserve, and say the same.

``make verdicts`` is the whole of it.
"""

from __future__ import annotations

import pytest

from scenarios.catalogue import HELD_OUT_SEEDS, SCENARIOS
from scenarios.hours import watch
from scenarios.score import score
from scenarios.suite import play

NAMES = (
    "healthy, jitter 8 %",
    "checkpoint of rank 0 alone",
    "killed and restarted by the launcher",
    "one stall of two minutes",
    "normal end, the last ranks write results",
    "7 % slow",
    "13 % slow",
    "30 % slow",
    "slow one of two ranks",
    "slow node of two",
    "heavy last stage, known",
    "uneven sequence lengths",
    "rotating loader stalls",
    "loader too slow for all",
    "hang in one rank",
    "out of memory, others wait",
    "a frozen ring",
    "DCGM frozen",
    "hot GPU that keeps up",
    "half of the PCIe lanes",
)


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_run_gets_what_it_deserves() -> None:
    """Nothing is missed, nothing invented, and both ways agree, alert by alert."""
    chosen = [scenario for scenario in SCENARIOS if scenario.name in NAMES]
    assert len(chosen) == len(NAMES)

    result = score(play([(scenario, HELD_OUT_SEEDS[0]) for scenario in chosen]))

    assert result.mistakes == []
    assert result.disagreements == []
    assert all(pages["missed"] == pages["wrong"] == 0 for pages in result.pages.values())


@pytest.mark.slow
def test_nobody_is_woken_by_a_healthy_run() -> None:
    """Five hours of a healthy run give no alert at all."""
    steps, told = watch(3)

    assert steps > 1000
    assert told == []
