"""What is remembered of a rank for its cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from facts import gpu_facts, totals, view
from straggler.detect.lately import Lately
from straggler.detect.policy import DEFAULT
from straggler.detect.trail import Trail
from straggler.join.view import RankView
from straggler.model.gpu import GpuFacts
from straggler.model.host import RankHost


def after(steps: int, *, own: float = 0.1, delay: float | None = None, gpu: GpuFacts | None = None) -> RankView:
    """A rank that has made so many steps of this own time, and has waited so long for a CPU in all."""
    rank = view(0, gpu=gpu, totals=totals(steps=steps, step_seconds=steps * 0.2, own_seconds=steps * own))
    if delay is None:
        return rank
    return replace(rank, host=RankHost(key=rank.rank.key, values={"run_delay_seconds_total": delay}))


def seen(lately: Lately | None) -> Lately:
    """What is known by now."""
    assert lately is not None
    return lately


def test_a_source_may_come_later_than_the_rank() -> None:
    """The process of a rank is found after its ring: its waiting counts from then on, over the steps made since."""
    trail = Trail(DEFAULT)
    trail.look(0, after(0))
    trail.look(10, after(100, delay=50.0))
    lately = seen(trail.look(20, after(200, delay=51.0)))

    assert lately.run_delay_seconds == pytest.approx(0.01)
    assert lately.own_seconds == pytest.approx(0.1)


def test_minutes_are_the_policys() -> None:
    """Seconds a step forget what is older than the policy looks back, in a short demonstration as in a long run."""
    trail = Trail(replace(DEFAULT, cause_seconds=10.0))
    for second in range(0, 60, 2):
        trail.look(second, after(second, delay=0.0))
    for second in range(60, 70, 2):
        trail.look(second, after(second, delay=0.5 * (second - 60)))

    assert seen(trail.look(70, after(70, delay=5.0))).run_delay_seconds == pytest.approx(0.5)


def test_nothing_is_held_down_longer_than_always() -> None:
    """A page about GPUs is made at other moments than it is looked at: a counter may gain more than our clock."""
    trail = Trail(DEFAULT)
    trail.look(0, after(1, gpu=gpu_facts(clocks_event_seconds={"hw_thermal": 0.0})))
    warm = trail.look(12, after(2, gpu=gpu_facts(clocks_event_seconds={"hw_thermal": 4.0})))
    hot = trail.look(14, after(3, gpu=gpu_facts(clocks_event_seconds={"hw_thermal": 40.0})))

    assert seen(warm).held == {"thermal": pytest.approx(4 / 12)}
    assert seen(hot).held == {"thermal": 1.0}
