"""Runs scenarios through the rules and through the embedded policy, in parallel.

``make verdicts`` runs all of them on the held-out seeds and writes ``docs/verdicts.md``: six to ten minutes on two
cores, and the same page on every machine. ``--quick`` prints the page of one seed and a tenth of the hours instead;
with ``--tuning`` the other seeds are used and only mistakes are printed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from scenarios.catalogue import CURVE, CURVE_SEEDS, HELD_OUT_SEEDS, SCENARIOS, TUNING_SEEDS
from scenarios.course import Course
from scenarios.hours import HOURS, RUNS, healthy_hours
from scenarios.report import render
from scenarios.score import score
from scenarios.through_policy import PolicyJudge
from scenarios.through_rules import Series, behind_alerts, told_by_rules
from scenarios.told import Told
from scenarios.vocabulary import Scenario

PAGE = Path(__file__).parents[2] / "docs" / "verdicts.md"
_RANK_MINUTES = 6_000
"""What one promtool takes at a time: it holds all samples in memory."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was told about one run."""

    scenario: Scenario
    seed: int
    begin: float
    """When its first step began; alerts count from the scrape before."""
    rules: tuple[Told, ...]
    policy: tuple[Told, ...]


Job = tuple[Scenario, int]


def play(jobs: Sequence[Job]) -> list[Outcome]:
    """Play some runs, all through one promtool."""
    series = Series(behind_alerts())
    played = []
    for scenario, seed in jobs:
        course, judge = Course(scenario, seed), PolicyJudge()
        for index, look in enumerate(course.looks(), start=1):
            series.add(course.run, index, look)
            judge.look(look)
        played.append((course, tuple(judge.told)))
    with tempfile.TemporaryDirectory() as directory:
        told = told_by_rules(series, Path(directory))
    return [
        Outcome(course.scenario, course.seed, course.begin, tuple(told.get(course.run, ())), policy)
        for course, policy in played
    ]


def play_all(jobs: Iterable[Job], processes: int | None = None) -> list[Outcome]:
    """Play runs in several processes, those of like length together."""
    parcels = list(_parcels(sorted(jobs, key=lambda job: -job[0].minutes)))
    with ProcessPoolExecutor(processes or os.cpu_count()) as pool:
        return [outcome for parcel in pool.map(play, parcels) for outcome in parcel]


def _parcels(jobs: Iterable[Job]) -> Iterator[list[Job]]:
    parcel: list[Job] = []
    size = 0.0
    for job in jobs:
        weight = job[0].ranks * job[0].minutes
        if parcel and (size + weight > _RANK_MINUTES or parcel[0][0].minutes > 1.5 * job[0].minutes):
            yield parcel
            parcel, size = [], 0.0
        parcel.append(job)
        size += weight
    if parcel:
        yield parcel


def main() -> None:
    """Run the suite."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tuning", action="store_true", help="the seeds that thresholds may be tuned on; no page")
    parser.add_argument("--only", default="", help="scenarios with this in their name; no page")
    parser.add_argument("--quick", action="store_true", help="one seed, few hours; prints the page")
    options = parser.parse_args()
    began = time.monotonic()

    def progress(what: str) -> None:
        print(f"{time.monotonic() - began:4.0f} s  {what}", file=sys.stderr, flush=True)

    seeds = TUNING_SEEDS if options.tuning else HELD_OUT_SEEDS[: 1 if options.quick else None]
    chosen = [scenario for scenario in SCENARIOS if options.only in scenario.name]
    progress(f"{len(chosen)} scenarios x {len(seeds)} seeds")
    outcomes = play_all((scenario, seed) for scenario in chosen for seed in seeds)
    for line in score(outcomes).mistakes:
        progress(line)
    if options.tuning or options.only:
        return
    curve_seeds = CURVE_SEEDS[: 2 if options.quick else None]
    progress(f"the curve: {len(CURVE)} slownesses x {len(curve_seeds)} seeds")
    curve = play_all((scenario, seed) for scenario in CURVE for seed in curve_seeds)
    runs = RUNS // 10 if options.quick else RUNS
    progress(f"{runs * HOURS} healthy hours")
    page = render(outcomes, curve, healthy_hours(runs))
    if options.quick:
        print(page)
    else:
        PAGE.write_text(page, encoding="utf-8")
    progress("done" if options.quick else f"written: {PAGE}")


if __name__ == "__main__":
    main()
