"""What cannot be seen must be said."""

from __future__ import annotations

from dataclasses import replace

from samples import run_of, with_recent
from straggler.detect.blindness import blind, missing_rank
from straggler.detect.policy import DEFAULT
from straggler.detect.sample import RankSample
from straggler.model.rank import RankState


def told(ranks: list[RankSample]) -> tuple[list[str], list[tuple[str, str]]]:
    """Evidence of missing ranks; source and reason of blindness."""
    return (
        [verdict.evidence for verdict in missing_rank("r", ranks, DEFAULT)],
        [(verdict.source, verdict.reason) for verdict in blind("r", ranks, DEFAULT)],
    )


def test_complete_run_is_silent() -> None:
    """All ranks seen and measured: nothing."""
    assert told(run_of([1.0] * 8)) == ([], [])


def test_unseen_rank_is_missing() -> None:
    """One rank fewer than the world, while the others step, is missing; its number is named."""
    (evidence,), reasons = told(run_of([1.0] * 8)[:-1])

    assert "8 ranks, 7 are seen" in evidence
    assert "rank 7" in evidence
    assert reasons == []


def test_half_unseen_is_blind() -> None:
    """From half of the world on, the monitoring of the run is blind."""
    missing, reasons = told(run_of([1.0] * 8)[:4])

    assert len(missing) == 1
    assert reasons == [("ranks", "unseen_ranks")]


def test_huge_world_names_few() -> None:
    """Of a million unseen ranks eight are named, at once."""
    ranks = [replace(rank, world_size=1_000_000_000) for rank in run_of([1.0] * 2)]
    (evidence,), _ = told(ranks)

    assert evidence.endswith("ranks 2, 3, 4, 5, 6, 7, 8, 9 and more")


def test_frozen_ring_is_unseen() -> None:
    """A hung rank among stepping peers is as unseen as one that is not there."""
    ranks = run_of([1.0] * 8)
    ranks[3] = replace(ranks[3], state=RankState.HUNG, since_progress_seconds=300.0)
    (evidence,), _ = told(ranks)

    assert "rank 3" in evidence


def test_run_that_stands_still_misses_nobody() -> None:
    """Without steps the barrier proves nothing: whoever is not there may be dead."""
    assert told([replace(rank, since_progress_seconds=400.0) for rank in run_of([1.0] * 8)[:6]]) == ([], [])


def test_resized_run_is_not_missed_too_early() -> None:
    """While ranks disagree about the world size the least counts."""
    ranks = run_of([1.0] * 4)
    ranks[0] = replace(ranks[0], world_size=8)

    assert told(ranks) == ([], [])


def test_ranks_beyond_the_world_stand_for_nobody_in_it() -> None:
    """Of a run that has shrunk old ranks may still be seen: those that are missing are missing all the same."""
    ranks = [replace(rank, world_size=4) for rank in run_of([1.0] * 8) if rank.rank in (0, 1, 6, 7)]
    (evidence,), _ = told(ranks)

    assert "4 ranks, 2 are seen" in evidence
    assert "ranks 2, 3" in evidence


def test_dead_ranks_need_no_own_time() -> None:
    """A rank that has ended measures nothing any more, and nobody is blind for it."""
    ranks = run_of([1.0] * 8)
    ended = with_recent(ranks[3], own_mean_seconds=None, own_median_seconds=None)
    ranks[3] = replace(ended, state=RankState.FINISHED, own_reason="cuda_graph")

    assert told(ranks)[1] == []


def test_dead_rank_is_not_missing() -> None:
    """A rank whose end was seen is not unseen."""
    ranks = run_of([1.0] * 4)
    ranks[1] = replace(ranks[1], state=RankState.CRASHED, recent=None)

    assert told(ranks) == ([], [])


def test_unmeasured_by_reason() -> None:
    """Own time that is not measured is one verdict per reason, naming the ranks."""
    ranks = run_of([1.0] * 6)
    for number, reason in ((1, "cuda_graph"), (2, "cuda_graph"), (4, "no_wait_phase")):
        ranks[number] = replace(with_recent(ranks[number], own_mean_seconds=None), own_reason=reason)
    verdicts = blind("r", ranks, DEFAULT)

    assert [(verdict.reason, verdict.source) for verdict in verdicts] == [
        ("cuda_graph", "own_time"),
        ("no_wait_phase", "own_time"),
    ]
    assert "ranks 1, 2" in verdicts[0].evidence
