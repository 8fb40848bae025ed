"""What troubles do to the work of one step: from healthy own times to those that really happened."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from scenarios.vocabulary import (
    Everywhere,
    Hot,
    Loading,
    OneStall,
    Scenario,
    Slow,
    Stalls,
    Trouble,
    Uneven,
    WarmUp,
)

_LEAST = 0.1
"""Noise never makes a step shorter than this share of it."""


@dataclass(slots=True)
class Work:
    """All ranks' work in one step, seconds by index."""

    step: int
    minute: float
    """Since the run's first step."""
    own: list[float]
    """Without waiting for peers; the data phase included."""
    data: list[float]
    exchange: float


Effect = Callable[[Work], None]


class Labour:
    """Makes the work of each step.

    Args:
        scenario: what the run is like.
        dice: of this run.
        stages: the stage of each rank, by index.
    """

    def __init__(self, scenario: Scenario, dice: Random, stages: Sequence[int]) -> None:
        self._dice = dice
        self._jitter = scenario.jitter
        self._bases = [
            scenario.own_seconds * scenario.stages[stage] * dice.gauss(1.0, scenario.spread) for stage in stages
        ]
        self._data = scenario.data_share * scenario.own_seconds
        share = scenario.exchange_share
        self._exchange = scenario.own_seconds * max(scenario.stages) * share / (1 - share)
        self._effects = [effect for trouble in scenario.troubles if (effect := self._effect(trouble, scenario))]

    def work(self, step: int, minute: float) -> Work:
        """Throw the dice for one step; ``step`` counts from 1 in each attempt."""
        gauss, jitter = self._dice.gauss, self._jitter
        own = [base * max(_LEAST, 1.0 + gauss(0.0, jitter)) for base in self._bases]
        work = Work(step, minute, own, [self._data] * len(own), self._exchange * gauss(1.0, 0.02))
        for effect in self._effects:
            effect(work)
        return work

    def _effect(self, trouble: Trouble, scenario: Scenario) -> Effect | None:
        dice = self._dice
        if isinstance(trouble, Slow):
            return _slow(trouble)
        if isinstance(trouble, Uneven):
            return _uneven(trouble.sigma, dice)
        if isinstance(trouble, Hot):
            return _hot(trouble, dice)
        if isinstance(trouble, Stalls):
            return _stalls(trouble, dice)
        if isinstance(trouble, OneStall):
            return _one_stall(trouble)
        if isinstance(trouble, WarmUp):
            return _warm_up(trouble, dice)
        if isinstance(trouble, Everywhere):
            return _everywhere(trouble)
        if isinstance(trouble, Loading):
            return _loading(trouble, scenario)
        return None


def _slow(trouble: Slow) -> Effect:
    def apply(work: Work) -> None:
        since = work.minute - trouble.begins
        if since >= 0 and work.minute < trouble.ends and math.fmod(since, trouble.period) < trouble.on:
            for rank in trouble.ranks:
                work.own[rank] *= trouble.factor

    return apply


def _uneven(sigma: float, dice: Random) -> Effect:
    def apply(work: Work) -> None:
        work.own[:] = [own * math.exp(dice.gauss(0.0, sigma)) for own in work.own]

    return apply


def _hot(trouble: Hot, dice: Random) -> Effect:
    hot = 0

    def apply(work: Work) -> None:
        nonlocal hot
        if work.step % trouble.steps == 1:
            hot = dice.randrange(len(work.own))
        work.own[hot] *= trouble.factor

    return apply


def _stalls(trouble: Stalls, dice: Random) -> Effect:
    def apply(work: Work) -> None:
        for rank in range(len(work.own)):
            if dice.random() < trouble.chance:
                seconds = trouble.seconds * dice.uniform(0.5, 1.5)
                work.own[rank] += seconds
                if trouble.phase == "data":
                    work.data[rank] += seconds

    return apply


def _one_stall(trouble: OneStall) -> Effect:
    over = False

    def apply(work: Work) -> None:
        nonlocal over
        if not over and work.minute >= trouble.at:
            work.own[trouble.rank] += trouble.seconds
            over = True

    return apply


def _warm_up(trouble: WarmUp, dice: Random) -> Effect:
    def apply(work: Work) -> None:
        if work.step <= trouble.steps:
            work.own[:] = [own + trouble.seconds * dice.uniform(0.5, 1.0) for own in work.own]

    return apply


def _everywhere(trouble: Everywhere) -> Effect:
    def apply(work: Work) -> None:
        if work.minute >= trouble.begins:
            work.own[:] = [own * trouble.own for own in work.own]
            work.exchange *= trouble.exchange

    return apply


def _loading(trouble: Loading, scenario: Scenario) -> Effect:
    healthy = scenario.own_seconds / (1 - scenario.exchange_share)
    extra = healthy * trouble.share / (1 - trouble.share)

    def apply(work: Work) -> None:
        if work.minute >= trouble.begins:
            work.own[:] = [own + extra for own in work.own]
            work.data[:] = [data + extra for data in work.data]

    return apply
