"""Hundreds of hours of healthy training: does anybody get woken?

Every run is drawn anew: how many ranks and nodes, how long a step, how much jitter, uneven batches, garbage collection,
checkpoints, evaluation. All steps are simulated one by one and judged by the embedded policy once a minute.
"""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from random import Random
from typing import NamedTuple

from scenarios.course import Course
from scenarios.through_policy import PolicyJudge
from scenarios.vocabulary import Pause, Scenario, Stalls, Trouble, Uneven, WarmUp

RUNS, HOURS = 100, 5
_LOOK_SECONDS = 60.0


class Hours(NamedTuple):
    """What was told in all that time."""

    run_hours: int
    rank_steps: int
    alerts: Counter[tuple[str, str]]
    """By verdict and severity."""


def healthy_run(number: int, hours: float = HOURS) -> Scenario:
    """Draw one healthy run."""
    dice = Random(f"healthy hours {number}")
    troubles: list[Trouble] = [WarmUp(steps=3, seconds=dice.uniform(5, 90))]
    if dice.random() < 0.7:
        troubles.append(
            Pause(
                phase="checkpoint",
                every=dice.uniform(10, 60),
                seconds=dice.uniform(5, 120),
                everyone=dice.random() < 0.7,
            )
        )
    if dice.random() < 0.3:
        troubles.append(Pause(phase="eval", every=dice.uniform(20, 90), seconds=dice.uniform(20, 200)))
    if dice.random() < 0.4:
        troubles.append(Stalls(seconds=dice.uniform(0.1, 0.5), chance=dice.uniform(0.001, 0.01)))
    if dice.random() < 0.3:
        troubles.append(Uneven(sigma=dice.uniform(0.02, 0.07)))
    return Scenario(
        name=f"healthy hours {number}",
        troubles=tuple(troubles),
        ranks=dice.choice((2, 4, 8, 8, 8, 16, 16, 32)),
        own_seconds=dice.choice((0.8, 1.5, 3.0, 6.0, 12.0)),
        exchange_share=dice.uniform(0.08, 0.35),
        jitter=dice.uniform(0.0, 0.08),
        spread=dice.uniform(0.0, 0.015),
        minutes=60.0 * hours,
    )


def watch(number: int) -> tuple[int, list[tuple[str, str]]]:
    """Simulate one run; gives the steps of all its ranks and what was told."""
    course, judge = Course(healthy_run(number), seed=0), PolicyJudge()
    steps = 0
    for look in course.looks(_LOOK_SECONDS):
        judge.look(look)
        steps = sum(view.rank.totals.steps for page in look.pages for view in page.views if view.rank.totals)
    return steps, [(alert.verdict, alert.severity) for alert in judge.told]


def healthy_hours(runs: int = RUNS, processes: int | None = None) -> Hours:
    """Simulate so many of them."""
    with ProcessPoolExecutor(processes or os.cpu_count()) as pool:
        watched = list(pool.map(watch, range(runs)))
    return Hours(
        runs * HOURS, sum(steps for steps, _ in watched), Counter(what for _, told in watched for what in told)
    )
