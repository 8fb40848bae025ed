"""Pending, firing, kept, resolved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes import FakeClock
from straggler.detect.persistence import Persistence, Stage, Standing, patience
from straggler.detect.policy import DEFAULT
from straggler.detect.verdict import SUBJECTS, Verdict

SLOW = Verdict(verdict="straggling_rank", severity="warning", run="r", peer_group="0", rank=3, node="n0")


class Watch:
    """A persistence and its clock, looked at every five seconds."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.states = Persistence(DEFAULT, self.clock)

    def look(self, *verdicts: Verdict, seconds: float = 5.0) -> list[Standing]:
        """Let time pass, then take in what holds."""
        self.clock.advance(seconds)
        return list(self.states.update(verdicts))

    def hold(self, seconds: float, *verdicts: Verdict) -> list[Standing]:
        """Keep holding for so long; gives the last look."""
        standings: list[Standing] = []
        for _ in range(int(seconds / 5)):
            standings = self.look(*verdicts)
        return standings


def test_pending_then_firing() -> None:
    """A minute without a break, then it fires; since stays when it began, fired is when the minute was over."""
    watch = Watch()
    (first,) = watch.look(SLOW)
    began = watch.clock.time()

    assert (first.stage, first.fired) == (Stage.PENDING, None)
    assert watch.hold(55, SLOW)[0].stage is Stage.PENDING
    (fired,) = watch.look(SLOW)
    assert (fired.stage, fired.since, fired.fired) == (Stage.FIRING, began, began + 60)
    assert fired.verdict == replace(SLOW, since=began)


def test_one_absence_forgets_what_is_pending() -> None:
    """A pending verdict that fails once begins anew."""
    watch = Watch()
    watch.hold(55, SLOW)

    assert watch.look() == []
    assert watch.look(SLOW)[0].stage is Stage.PENDING


def test_kept_firing_bridges_a_gap() -> None:
    """A firing verdict stays for five minutes after it last held, and goes on as the same one."""
    watch = Watch()
    watch.hold(70, SLOW)
    (gap,) = watch.hold(295)

    assert (gap.stage, gap.holds) == (Stage.FIRING, False)
    (back,) = watch.look(SLOW)
    assert (back.stage, back.holds, back.since) == (Stage.FIRING, True, gap.since)


def test_resolved_once() -> None:
    """After five minutes it is resolved, told once and forgotten."""
    watch = Watch()
    watch.hold(70, SLOW)
    (resolved,) = watch.hold(300)

    assert (resolved.stage, resolved.ended) == (Stage.RESOLVED, watch.clock.time())
    assert watch.look() == []


def test_wall_clock_jump_changes_no_duration() -> None:
    """Durations are monotonic: an hour's jump of the time of day fires nothing."""
    watch = Watch()
    watch.look(SLOW)
    watch.clock.jump(3600)

    assert watch.look(SLOW)[0].stage is Stage.PENDING


def test_changing_numbers_are_one_verdict() -> None:
    """Ratio and text may change from look to look; the newest are told."""
    watch = Watch()
    watch.hold(60, replace(SLOW, slowdown_ratio=1.2))
    (standing,) = watch.look(replace(SLOW, slowdown_ratio=1.3))

    assert standing.stage is Stage.FIRING
    assert standing.verdict.slowdown_ratio == 1.3


def test_other_rank_is_another_verdict() -> None:
    """A slow rank that alternates with another never fires."""
    watch = Watch()
    for _ in range(60):
        watch.look(SLOW)
        standings = watch.look(replace(SLOW, rank=4))

        assert [standing.stage for standing in standings] == [Stage.PENDING]


def test_suspect_may_change() -> None:
    """A hang stays one hang when another rank becomes the suspect."""
    watch = Watch()
    hang = Verdict(verdict="hang", severity="critical", run="r", rank=3)
    (first,) = watch.look(hang)
    (second,) = watch.look(replace(hang, rank=5))

    assert (first.stage, second.stage) == (Stage.FIRING, Stage.FIRING)
    assert second.since == first.since


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_verdict_has_its_patience(name: str) -> None:
    """No verdict waits longer than a quarter of an hour, and each is kept for the policy's five minutes."""
    waits = patience(Verdict(verdict=name, severity="warning", run="r"), DEFAULT)

    assert 0 <= waits.hold <= 900
    assert waits.keep == DEFAULT.keep_firing_seconds


def test_critical_waits_longer() -> None:
    """A page waits two minutes where a ticket waits one."""
    assert patience(SLOW, DEFAULT).hold == 60
    assert patience(replace(SLOW, severity="critical"), DEFAULT).hold == 120


def test_unknown_verdict_is_refused() -> None:
    """A name that is not public cannot be made."""
    with pytest.raises(ValueError, match="is no verdict"):
        Verdict(verdict="slowish", severity="warning", run="r")
