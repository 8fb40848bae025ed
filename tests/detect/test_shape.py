"""Heavy stages, rotating imbalance, loaders."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples import COLLECTIVE, run_of, with_recent
from straggler.detect.sample import RankSample
from straggler.detect.verdicts import judge


def found(ranks: list[RankSample]) -> list[tuple[str, str, str | None]]:
    """Verdict, severity and peer group."""
    return [(verdict.verdict, verdict.severity, verdict.peer_group) for verdict in judge(ranks)]


def test_heavy_last_stage() -> None:
    """A last stage of 1.63 times the work is information about that stage, and no rank's fault."""
    own = [1.0] * 6 + [1.63, 1.63]

    assert found(run_of(own, groups=list("00112233"))) == [("heavy_stage", "info", "3")]


def test_one_rank_per_stage_cannot_tell() -> None:
    """With a single rank the verdict is the same, and says that a slow GPU would look the same."""
    (verdict,) = judge(run_of([1.0, 1.0, 1.0, 1.5], groups=list("0123")))

    assert (verdict.verdict, verdict.peer_group) == ("heavy_stage", "3")
    assert "a slow GPU would look the same" in verdict.evidence


def test_slow_rank_makes_no_heavy_stage() -> None:
    """A stage is taken at its fastest rank: half of a stage slow is two stragglers, no stage."""
    own = [1.0] * 4 + [1.0, 1.5] + [1.0] * 2

    assert {verdict for verdict, _, _ in found(run_of(own, groups=list("00112233")))} == {"straggling_rank"}


def test_light_stage_makes_no_heavy_ones() -> None:
    """One stage with less work than three alike ones is their usual bubble and no news."""
    assert found(run_of([0.8, 0.8] + [1.0] * 6, groups=list("00112233"))) == []


@pytest.mark.parametrize(("above_least", "told"), [(0.10, False), (0.19, True)])
def test_rotating_imbalance(above_least: float, *, told: bool) -> None:
    """Mean waiting far above the least wait, with equal means, is imbalance; a little of it is jitter."""
    ranks = [
        with_recent(rank, step_mean_seconds=1.0, wait_mean_seconds=0.1 + above_least, wait_min_seconds=0.1)
        for rank in run_of([0.7] * 8)
    ]

    assert bool(found(ranks)) is told
    if told:
        assert found(ranks) == [("rotating_imbalance", "warning", None)]


@pytest.mark.parametrize(("now", "minutes", "told"), [(0.0, 0.3, True), (0.3, 0.0, False)])
def test_imbalance_is_that_of_the_last_minutes(now: float, minutes: float, *, told: bool) -> None:
    """Stalls come by chance: one window full of them is not told, and one without any takes nothing back."""
    ranks = [
        replace(with_recent(rank, wait_mean_seconds=COLLECTIVE + now), run_imbalance=(minutes, 0.0))
        for rank in run_of([1.0] * 8)
    ]

    assert bool(found(ranks)) is told


def test_straggler_is_no_imbalance() -> None:
    """The same waiting with one mean that stands out is that rank's, told or not yet told."""
    ranks = run_of([1.0] * 7 + [1.5], medians=[1.0] * 8)
    assert ranks[0].recent is not None
    assert ranks[0].recent.wait_mean_seconds == pytest.approx(0.5 + COLLECTIVE)

    assert found(ranks) == []


def test_pipeline_bubbles_are_no_imbalance() -> None:
    """Light stages wait for the heavy one in every step: their least wait is as long as their mean."""
    ranks = run_of([1.0] * 6 + [1.63, 1.63], groups=list("00112233"))

    assert "rotating_imbalance" not in {verdict for verdict, _, _ in found(ranks)}


@pytest.mark.parametrize(("shares", "told"), [([0.25] * 8, True), ([0.14] * 8, False), ([0.9] + [0.02] * 7, False)])
def test_input_stall(shares: list[float], *, told: bool) -> None:
    """The median rank's waiting for data counts: one rank's loader is that rank's."""
    ranks = [replace(rank, data_share=share) for rank, share in zip(run_of([1.0] * 8), shares, strict=True)]

    assert (("input_stall", "warning", None) in found(ranks)) is told
