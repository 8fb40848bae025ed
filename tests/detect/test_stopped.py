"""Hung and crashed: who is named, and when nobody is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from samples import run_of
from straggler.detect.policy import DEFAULT
from straggler.detect.sample import RankSample
from straggler.detect.stopped import crash, hang
from straggler.model.rank import RankState

Change = Callable[[RankSample], RankSample]


def hung(ranks: list[RankSample], silent: float = 300.0, **arrivals: int) -> list[RankSample]:
    """All ranks hung; ``r3=999`` sets what rank 3 has arrived at, 1000 is usual."""
    return [
        replace(
            rank,
            state=RankState.HUNG,
            since_progress_seconds=silent,
            arrivals=arrivals.get(f"r{rank.rank}", rank.arrivals),
        )
        for rank in ranks
    ]


def suspect(ranks: list[RankSample]) -> int | None:
    """Whom the one hang names."""
    (verdict,) = hang("r", ranks, DEFAULT)
    assert verdict.severity == "critical"
    return verdict.rank


def test_strictly_fewest_arrivals() -> None:
    """One rank behind is the suspect; the evidence says why."""
    ranks = hung(run_of([1.0] * 8), r5=999)

    assert suspect(ranks) == 5
    assert "rank 5 has reached fewer blocking points" in hang("r", ranks, DEFAULT)[0].evidence


def test_all_arrived() -> None:
    """Equal arrivals name nobody: it is a GPU or the network."""
    ranks = hung(run_of([1.0] * 8))

    assert suspect(ranks) is None
    assert "a GPU or the network" in hang("r", ranks, DEFAULT)[0].evidence


def test_two_equally_behind_are_both_told() -> None:
    """Two ranks with equally few arrivals are in the text, and none is the suspect."""
    ranks = hung(run_of([1.0] * 8), r2=998, r5=998, r6=999)

    assert suspect(ranks) is None
    assert "ranks 2, 5 have reached equally few" in hang("r", ranks, DEFAULT)[0].evidence


def test_stages_arrive_differently() -> None:
    """Arrivals are compared inside a peer group: another stage's smaller count is no delay."""
    ranks = hung(run_of([1.0] * 4, groups=["0", "0", "1", "1"]), r0=2000, r1=2000, r2=1000, r3=999)

    assert suspect(ranks) == 3


def test_nobody_to_compare_with() -> None:
    """One rank per group tells nothing about who is missing, and that is said."""
    ranks = hung(run_of([1.0] * 2, groups=["0", "1"]), r1=5)

    assert suspect(ranks) is None
    assert "cannot tell" in hang("r", ranks, DEFAULT)[0].evidence


def test_crashed_rank_is_mentioned() -> None:
    """Where somebody has crashed, the text says that it may be the one to blame."""
    ranks = hung(run_of([1.0] * 4))
    ranks[2] = replace(ranks[2], state=RankState.CRASHED)

    assert "rank 2 crashed" in hang("r", ranks, DEFAULT)[0].evidence


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda rank: replace(rank, state=RankState.RUNNING, excluded_phase="checkpoint"), "a checkpoint"),
        (lambda rank: replace(rank, state=RankState.RUNNING, excluded_phase="eval"), "an evaluation"),
        (lambda rank: replace(rank, state=RankState.RUNNING, since_progress_seconds=0.5), "peers that step"),
    ],
    ids=["checkpoint", "eval", "frozen ring"],
)
def test_good_reasons_to_wait(change: Change, why: str) -> None:
    """Waiting for a checkpoint or an evaluation, or a silent ring among stepping peers, is no hang."""
    ranks = hung(run_of([1.0] * 4))
    ranks[0] = change(ranks[0])

    assert hang("r", ranks, DEFAULT) == [], why


def test_hung_checkpoint_is_a_hang() -> None:
    """When the rank in the checkpoint has lost its own patience, it is a hang."""
    ranks = hung(run_of([1.0] * 4), silent=4000.0)
    ranks[0] = replace(ranks[0], excluded_phase="checkpoint")

    assert len(hang("r", ranks, DEFAULT)) == 1


@pytest.mark.parametrize(("silent", "told"), [(600.0, 0), (3601.0, 1)])
def test_last_ranks_of_a_run_that_ends(silent: float, told: int) -> None:
    """After half of the ranks have finished, the others may write results for an hour."""
    ranks = hung(run_of([1.0] * 4), silent=silent)
    ranks[:2] = [replace(rank, state=RankState.FINISHED) for rank in ranks[:2]]

    assert len(hang("r", ranks, DEFAULT)) == told


@pytest.mark.parametrize(("alive", "told"), [(4, 1), (2, 0)])
def test_an_earlier_attempt_that_finished_is_no_end(alive: int, told: int) -> None:
    """Ranks that finished within the hour are an end only if some are gone: after a restart all are there again."""
    ranks = [replace(rank, run_finished=4) for rank in hung(run_of([1.0] * 4))[:alive]]

    assert len(hang("r", ranks, DEFAULT)) == told


def test_step_that_ends_late_is_no_stepping() -> None:
    """A rank that fell silent a little after the others does not step on: still a hang."""
    ranks = hung(run_of([1.0] * 4), silent=125.0)
    ranks[0] = replace(ranks[0], state=RankState.RUNNING, since_progress_seconds=118.0)

    assert len(hang("r", ranks, DEFAULT)) == 1


def dead(rank: RankSample, **changes: float) -> RankSample:
    """The same rank, crashed; 500 steps are usual."""
    return replace(rank, state=RankState.CRASHED, recent=None, **changes)  # type: ignore[arg-type]  # numbers all


def alive() -> list[RankSample]:
    """Eight living ranks."""
    return [replace(rank, steps_total=500) for rank in run_of([1.0] * 8)]


def test_crash_names_the_first_to_die() -> None:
    """Of several dead the one that came least far is named; of equals the one that is longest gone."""
    ranks = alive()
    ranks[1] = dead(ranks[1], arrivals=1000, gone_seconds=9.0)
    ranks[4] = dead(ranks[4], arrivals=999, gone_seconds=4.0)
    ranks[6] = dead(ranks[6], arrivals=999, gone_seconds=6.0)
    (verdict,) = crash("r", ranks)

    assert (verdict.rank, verdict.severity, verdict.waiting) == (6, "critical", 5)
    assert "the first of 3" in verdict.evidence


def test_all_gone_is_an_end() -> None:
    """When nobody is left, it was an end and no crash."""
    assert crash("r", [dead(rank) for rank in alive()]) == []


def test_finished_is_no_crash() -> None:
    """A rank that said goodbye is not dead."""
    ranks = alive()
    ranks[1] = replace(ranks[1], state=RankState.FINISHED)

    assert crash("r", ranks) == []


def test_restart_is_no_crash() -> None:
    """Survivors with fewer steps than the dead are a new attempt."""
    ranks = [replace(rank, steps_total=3) for rank in alive()]
    ranks[2] = dead(ranks[2], steps_total=500)

    assert crash("r", ranks) == []
