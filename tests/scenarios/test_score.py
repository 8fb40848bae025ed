"""What counts as right, wrong, missed, early."""

from __future__ import annotations

from scenarios.onset import moment_of
from scenarios.score import Score, score
from scenarios.suite import Outcome
from scenarios.told import Told
from scenarios.vocabulary import Expect, Scenario, Slow

SLOW = Scenario(
    name="s",
    troubles=(Slow(ranks=(3,), factor=1.13),),
    expect=(Expect("straggling_rank", "warning", "3"),),
    paged=False,
)


def scored(*told: Told, scenario: Scenario = SLOW) -> Score:
    """One run in which both told this."""
    return score([Outcome(scenario, 1, 10.0, told, told)])


def told(rank: str = "3", severity: str = "warning", first: float = 500.0) -> Told:
    """A straggler."""
    return Told("straggling_rank", severity, rank, first, first + 60)


def test_the_right_rank_is_a_hit_with_a_delay() -> None:
    """From the trouble's beginning, which counts from the run's first step."""
    tally = scored(told()).tallies["rules"]["straggling_rank"]

    assert (tally.precision, tally.recall, tally.delays) == (1.0, 1.0, [500.0 - 370.0])


def test_another_rank_is_missed_and_invented() -> None:
    """Blaming the wrong rank is two mistakes."""
    tally = scored(told(rank="4")).tallies["rules"]["straggling_rank"]

    assert (tally.right, tally.missed, tally.invented) == (0, 1, 1)


def test_an_alert_before_the_trouble_is_no_hit() -> None:
    """What fires on a healthy run is luck, also if trouble comes later."""
    assert scored(told(first=300.0)).tallies["rules"]["straggling_rank"].recall == 0


def test_a_page_that_nobody_wanted_is_wrong() -> None:
    """The right rank in the wrong severity is a mistake of its own."""
    result = scored(told(), told(severity="critical"))

    assert result.pages["rules"]["wrong"] == 1
    assert result.mistakes


def test_silence_is_the_healthy_diagonal() -> None:
    """A run that deserves nothing and gets nothing stands at (nothing, nothing)."""
    result = scored(scenario=Scenario(name="h"))

    assert dict(result.matrix) == {("nothing", "nothing"): 1}


def test_the_least_delay_is_half_a_window_and_the_patience() -> None:
    """13 % slow: three quarters of 32 steps must be slow before their mean is 10 % up; a minute on top."""
    begins, least = moment_of(SLOW, ("straggling_rank", "3"))

    step = 1.0 / 0.77 + 0.13
    assert begins == 360.0
    assert abs(least - (0.10 / 0.13 * 32 * step + 60)) < 0.5
