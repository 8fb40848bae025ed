"""Shares over minutes, how long a rank is gone, and the past."""

from __future__ import annotations

from typing import Any

import pytest

from facts import gpu_facts, identity, totals, view
from straggler.detect.history import History
from straggler.detect.policy import DEFAULT
from straggler.detect.sample import RankSample
from straggler.join.view import RankView
from straggler.model.rank import RankState
from straggler.wire.recent import Recent


def look(history: History, now: float, *views: RankView) -> RankSample:
    """The first rank after one look."""
    return history.observe(now, views)[0]


def after(steps: float, data: float, **changes: Any) -> RankView:
    """A rank with these totals."""
    return view(0, totals=totals(step_seconds=steps, phase_seconds={"data": data}), **changes)


def test_data_share_is_of_the_last_minutes() -> None:
    """The share is of what was added since, not of the whole run."""
    history = History(DEFAULT)
    assert look(history, 0, after(1000.0, 10.0)).data_share is None

    assert look(history, 60, after(1060.0, 40.0)).data_share == pytest.approx(0.5)


def test_share_forgets_after_five_minutes() -> None:
    """Older figures leave the share."""
    history = History(DEFAULT)
    look(history, 0, after(0.0, 0.0))
    samples = [look(history, minute * 60, after(minute * 60.0, 60.0)) for minute in range(1, 11)]

    assert samples[0].data_share == pytest.approx(1.0)
    assert samples[-1].data_share == pytest.approx(0.0)


def test_restart_begins_anew() -> None:
    """Totals that fall are another process: no share until it is looked at twice."""
    history = History(DEFAULT)
    look(history, 0, after(1000.0, 500.0))

    assert look(history, 30, after(5.0, 1.0)).data_share is None
    assert look(history, 60, after(25.0, 3.0)).data_share == pytest.approx(0.1)


def test_throttled_share() -> None:
    """Seconds in which a reason held the clock down, over the seconds between looks; a new reason has no share yet."""
    history = History(DEFAULT)
    look(history, 0, view(0, gpu=gpu_facts(clocks_event_seconds={"hw_thermal": 100.0})))
    sample = look(history, 40, view(0, gpu=gpu_facts(clocks_event_seconds={"hw_thermal": 110.0, "sync_boost": 3.0})))

    assert sample.throttled_share == pytest.approx({"hw_thermal": 0.25})


def test_swapped_gpu_begins_anew() -> None:
    """A counter that falls is another GPU."""
    history = History(DEFAULT)
    look(history, 0, view(0, gpu=gpu_facts(clocks_event_seconds={"hw_thermal": 100.0})))

    assert look(history, 40, view(0, gpu=gpu_facts(clocks_event_seconds={"hw_thermal": 1.0}))).throttled_share == {}


def test_gone_since() -> None:
    """How long a crashed rank has been seen as such; a restarted one is not."""
    history = History(DEFAULT)
    dead = view(0, state=RankState.CRASHED, recent=None)
    look(history, 100, view(0))

    assert look(history, 110, dead).gone_seconds == 0.0
    assert look(history, 125, dead).gone_seconds == 15.0
    assert look(history, 130, view(0)).gone_seconds is None


def run_at(own: float) -> list[RankView]:
    """Two ranks with this own time and a tenth of a second of waiting."""
    return [
        view(number, identity=identity(number), recent=Recent(32, own + 0.1, own, own, 0.1, 0.1)) for number in range(2)
    ]


def test_past_needs_half_an_hour() -> None:
    """A run younger than that has no past; then it is the lower quartile, the last ten minutes left out."""
    history = History(DEFAULT)
    past: dict[str, Any] = {}
    for minute in range(41):
        own = 2.0 if minute >= 31 else 1.0
        past = history.past(minute * 60.0, history.observe(minute * 60.0, run_at(own)))

        assert bool(past) is (minute >= 30)
    assert past["r"].own == {"0": 1.0}
    assert past["r"].least_wait == pytest.approx(0.1)


def test_run_that_left_is_forgotten() -> None:
    """After the grace of gone ranks a run's past is gone too: memory does not grow with the number of runs."""
    history = History(DEFAULT)
    for minute in range(35):
        history.past(minute * 60.0, history.observe(minute * 60.0, run_at(1.0)))
    history.past(34 * 60.0 + DEFAULT.gone_counters_seconds + 1, [])

    assert history.past(40 * 60.0, history.observe(40 * 60.0, run_at(1.0))) == {}


def test_finished_ranks_are_remembered_for_an_hour() -> None:
    """The page forgets them after minutes; the last ranks may write results for longer."""
    history = History(DEFAULT)
    look(history, 0, view(0), view(1, state=RankState.FINISHED), view(2, state=RankState.FINISHED))

    assert look(history, 3500, view(0)).run_finished == 2
    assert look(history, 3700, view(0)).run_finished == 0
