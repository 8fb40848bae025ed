"""The run against its own past."""

from __future__ import annotations

import pytest

from samples import COLLECTIVE, run_of, with_recent
from straggler.detect.policy import DEFAULT
from straggler.detect.regression import Level, level, usual
from straggler.detect.sample import RankSample
from straggler.detect.verdicts import judge


def found(ranks: list[RankSample], before: Level) -> list[tuple[str, str]]:
    """Verdict and severity, with this past."""
    return [(verdict.verdict, verdict.severity) for verdict in judge(ranks, DEFAULT, {"r": before})]


def past(own: float = 1.0, least_wait: float = COLLECTIVE) -> Level:
    """How the run used to do."""
    return Level(step=own + least_wait, own={"0": own}, least_wait=least_wait)


def test_level_by_hand() -> None:
    """Mean step, median own time per group, least wait of all."""
    ranks = run_of([1.0, 3.0, 2.0, 5.0], groups=["0", "0", "0", "1"])
    ranks[2] = with_recent(ranks[2], wait_min_seconds=0.001)

    assert level(ranks, DEFAULT) == Level(step=5.01, own={"0": 2.0, "1": 5.0}, least_wait=0.001)
    assert level(run_of([1.0], steps=3), DEFAULT) is None


def test_usual_is_the_lower_quartile() -> None:
    """Of past levels each figure's lower quartile; a group that came later has a shorter past."""
    levels = [
        Level(step=s, own={"0": s} if s < 4 else {"0": s, "1": 9.0}, least_wait=s / 10) for s in (1.0, 2, 3, 4, 5)
    ]

    assert usual(levels) == Level(step=2.0, own={"0": 2.0, "1": 9.0}, least_wait=0.2)


@pytest.mark.parametrize(("own", "told"), [(1.19, False), (1.21, True)])
def test_slow_everywhere(own: float, *, told: bool) -> None:
    """All ranks a fifth slower than they used to be is one warning; peers alone show nothing."""
    assert (("slow_everywhere", "warning") in found(run_of([own] * 8), past())) is told


def test_one_slow_group_is_not_everywhere() -> None:
    """The least grown group decides."""
    before = Level(step=1.01, own={"0": 1.0, "1": 1.0}, least_wait=COLLECTIVE)

    now = run_of([1.0, 1.0, 1.5, 1.5], groups=["0", "0", "1", "1"])

    assert found(now, before) == [("heavy_stage", "info")]


def test_straggler_is_not_everywhere() -> None:
    """One slow rank lengthens everybody's step and nobody else's own time."""
    verdicts = {verdict for verdict, _ in found(run_of([1.0] * 7 + [1.5]), past())}

    assert verdicts == {"straggling_rank"}


@pytest.mark.parametrize(("least", "told"), [(0.2, False), (0.22, True)])
def test_slow_transport(least: float, *, told: bool) -> None:
    """The least wait grown by a fifth of the usual step is the network."""
    ranks = [
        with_recent(rank, wait_min_seconds=least, wait_mean_seconds=least, step_mean_seconds=1 + least)
        for rank in run_of([1.0] * 8)
    ]

    assert (("slow_transport", "warning") in found(ranks, past())) is told


def test_slow_from_the_start_is_information() -> None:
    """More than half of the step in the least wait needs no past to be worth knowing."""
    ranks = [
        with_recent(rank, wait_min_seconds=1.1, wait_mean_seconds=1.1, step_mean_seconds=2.1)
        for rank in run_of([1.0] * 8)
    ]

    assert [(verdict.verdict, verdict.severity) for verdict in judge(ranks)] == [("slow_transport", "info")]


def test_no_past_no_verdict() -> None:
    """A run without a past is compared with nothing."""
    assert judge(run_of([9.0] * 8)) == ()
