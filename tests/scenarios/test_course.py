"""The simulation itself: a barrier is a barrier, and the same seed is the same run."""

from __future__ import annotations

import pytest

from scenarios.catalogue import CURVE_SEEDS, HELD_OUT_SEEDS, SCENARIOS, TUNING_SEEDS
from scenarios.course import Course, Look
from scenarios.vocabulary import Gap, Hang, Kill, Restart, Scenario, Slow, Unseen
from straggler.join.view import RankView
from straggler.model.rank import RankState


def last(scenario: Scenario, seed: int = 1) -> Look:
    """How it looks at the end."""
    return list(Course(scenario, seed).looks())[-1]


def ranks(look: Look) -> list[RankView]:
    """All ranks on all pages."""
    return [view for page in look.pages for view in page.views]


def test_forty_scenarios_with_names_of_their_own() -> None:
    """The suite has at least forty, no two alike, and keeps seeds that nothing is tuned on."""
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS) >= 40
    assert not set(TUNING_SEEDS) & set(HELD_OUT_SEEDS)
    assert not set(TUNING_SEEDS) & set(CURVE_SEEDS)


def test_all_ranks_take_equal_steps() -> None:
    """Wall times are the same on all ranks; the slow one has more of its own and waits less."""
    look = last(Scenario(name="s", troubles=(Slow(ranks=(3,), factor=1.3, begins=0.0),), jitter=0.0, minutes=3.0))
    recents = [view.rank.recent for view in ranks(look) if view.rank.recent]

    assert len({round(recent.step_mean_seconds, 6) for recent in recents}) == 1
    assert max(recents, key=lambda recent: recent.own_mean_seconds or 0) is recents[3]
    assert min(recents, key=lambda recent: recent.wait_mean_seconds or 0) is recents[3]
    assert (recents[3].own_mean_seconds or 0) / (recents[0].own_mean_seconds or 1) == pytest.approx(1.3, rel=0.06)


def test_the_same_seed_is_the_same_run() -> None:
    """Courses repeat to the last bit; another seed is another run."""
    scenario = Scenario(name="s", minutes=2.0)

    assert ranks(last(scenario)) == ranks(last(scenario))
    assert ranks(last(scenario)) != ranks(last(scenario, seed=2))


def test_a_hang_stops_everybody() -> None:
    """After two minutes all living ranks are hung, and the one to blame has arrived once less."""
    look = last(Scenario(name="s", troubles=(Hang(rank=5, at=2.0),), minutes=5.0))
    arrivals = [view.rank.totals.arrivals for view in ranks(look) if view.rank.totals]

    assert {view.rank.state for view in ranks(look)} == {RankState.HUNG}
    assert [rank for rank, count in enumerate(arrivals) if count < max(arrivals)] == [5]


def test_a_dead_rank_is_seen_crashed() -> None:
    """The lock is lost and nothing moves: crashed, while the others live."""
    look = last(Scenario(name="s", troubles=(Kill(rank=2, at=2.0),), minutes=3.0))

    assert [view.rank.identity.rank for view in ranks(look) if view.rank.state is RankState.CRASHED] == [2]


def test_a_restart_counts_steps_anew() -> None:
    """After a resize there are fewer ranks, with fewer steps, and the old ones of the emptied node are gone."""
    look = last(Scenario(name="s", ranks=16, troubles=(Restart(at=2.0, ranks=8),), minutes=9.0))

    assert [view.rank.identity.rank for view in ranks(look)] == list(range(8))
    assert {view.rank.identity.world_size for view in ranks(look)} == {8}


def test_nobody_sees_the_unseen() -> None:
    """A rank without a hook is on no page; a failed scrape loses the page for Prometheus alone."""
    unseen = Scenario(name="s", troubles=(Unseen(ranks=(7,)), Gap(node=0, seconds=60.0, at=1.0)), minutes=1.5)
    looks = list(Course(unseen, 1).looks())

    assert [view.rank.identity.rank for view in ranks(looks[-1])] == list(range(7))
    assert [page.scraped for look in looks for page in look.pages] == [True] * 4 + [False] * 2
