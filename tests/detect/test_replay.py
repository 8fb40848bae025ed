"""Recordings judged: the three known causes, and what hindsight adds."""

from __future__ import annotations

import pytest

from recordings import bad_worker, healthy, heavy_last_stage, job, slow_rank, uneven_sequences
from straggler.detect.policy import DEFAULT
from straggler.detect.replay import Replay, replay
from straggler.model.recorded import RecordedStep

SEEDS = range(12)


def judged(rows: list[RecordedStep]) -> Replay:
    """What the default policy says."""
    return replay(rows, DEFAULT, "r")


def blamed(result: Replay) -> set[int | None]:
    """Ranks (or ``None`` for a node) that are held responsible, pending or not."""
    return {
        finding.verdict.rank
        for finding in (*result.findings, *result.pending)
        if finding.verdict.verdict in {"straggling_rank", "straggling_node"}
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_bad_worker_is_named_alone(seed: int) -> None:
    """One slow worker among four stages: that rank, since the first step, and nobody else."""
    result = judged(bad_worker(seed))
    (finding,) = result.findings

    assert (finding.verdict.verdict, finding.verdict.rank, finding.since_step) == ("straggling_rank", 0, 0)
    assert finding.until_step is None
    assert finding.confirmed
    assert finding.verdict.slowdown_ratio == pytest.approx(2.35, rel=0.01)


@pytest.mark.parametrize("seed", SEEDS)
def test_uneven_sequences_blame_nobody(seed: int) -> None:
    """Where another rank is slow in each step no rank is blamed; the job is told so, and which stage has more work."""
    result = judged(uneven_sequences(seed))

    assert blamed(result) == set()
    assert {finding.verdict.verdict for finding in (*result.findings, *result.pending)} == {
        "rotating_imbalance",
        "heavy_stage",
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_heavy_stage_blames_nobody(seed: int) -> None:
    """A stage with more work is a heavy stage and no pair of bad ranks."""
    result = judged(heavy_last_stage(seed))
    (finding,) = result.findings

    assert blamed(result) == set()
    assert (finding.verdict.verdict, finding.verdict.peer_group) == ("heavy_stage", "3")
    assert finding.verdict.slowdown_ratio == pytest.approx(1.63, rel=0.01)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("jitter", [0.0, 0.03, 0.08])
def test_healthy_is_silent(seed: int, jitter: float) -> None:
    """64 steps of eight ranks with up to 8 % of noise give no verdict, pending ones included."""
    result = judged(job(8, 64, healthy(jitter), seed=seed))

    assert result.findings == ()
    assert result.pending == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_onset_and_end_within_two_steps(seed: int) -> None:
    """A rank slow by 30 % from step 100 to 299 is dated by single steps, though the window looks back over 32."""
    result = judged(job(8, 500, slow_rank(5, 1.3, since=100, until=300), seed=seed))
    (finding,) = result.findings

    assert finding.verdict.rank == 5
    assert finding.since_step == pytest.approx(100, abs=2)
    assert finding.until_step == pytest.approx(299, abs=2)
    assert finding.verdict.slowdown_ratio == pytest.approx(1.3, rel=0.02)


def test_window_mixes_are_not_in_the_ratio() -> None:
    """The slowdown is over the slow steps alone: exactly 1.5 without noise, though first windows saw less."""
    (finding,) = judged(job(8, 300, slow_rank(2, 1.5, since=120, jitter=0.0))).findings

    assert (finding.since_step, finding.until_step) == (120, None)
    assert finding.verdict.slowdown_ratio == pytest.approx(1.5)


def test_short_trouble_is_not_told() -> None:
    """Slow for 40 of 300 steps of 1.5 s: shorter than the alert's patience of a minute beyond the window."""
    assert judged(job(8, 300, slow_rank(2, 1.5, since=100, until=130))).findings == ()


def test_one_long_stall_is_silent() -> None:
    """A pause of 45 s among 10 s steps is no slowness, however long a window it dominates."""

    def own(step: int, rank: int, _rng: object) -> float:
        return 45.0 if (step, rank) == (60, 3) else 10.0

    assert judged(job(8, 120, own)).findings == ()


def test_steps_of_ten_milliseconds() -> None:
    """Short steps are judged over ten seconds of them, and dated to the step."""

    def own(step: int, rank: int, _rng: object) -> float:
        return 0.012 if rank == 1 and step >= 4000 else 0.008

    (finding,) = judged(job(4, 14_000, own, rest=0.002)).findings

    assert (finding.verdict.rank, finding.since_step, finding.confirmed) == (1, 4000, True)


def test_slow_node_is_one_finding() -> None:
    """Eight slow ranks of one node are one straggling_node with the node's name."""

    def own(step: int, rank: int, _rng: object) -> float:
        return 1.19 if rank >= 8 and step >= 50 else 1.0

    (finding,) = judged(job(16, 300, own)).findings

    assert (finding.verdict.verdict, finding.verdict.node, finding.since_step) == ("straggling_node", "n1", 50)
    assert finding.verdict.slowdown_ratio == pytest.approx(1.19)


def test_recording_too_short_to_confirm() -> None:
    """40 short steps can confirm nothing; what holds to the end is told all the same, and that it is unconfirmed."""

    def own(_step: int, rank: int, _rng: object) -> float:
        return 0.039 if rank == 2 else 0.026

    result = judged(job(8, 40, own, rest=0.018))
    (finding,) = result.findings

    assert (finding.verdict.rank, finding.confirmed) == (2, False)


def test_trouble_at_the_end_is_pending() -> None:
    """In a long recording, what began in its last minute is pending and no verdict yet."""
    result = judged(job(8, 300, slow_rank(6, 1.5, since=260)))

    assert result.findings == ()
    assert [finding.verdict.rank for finding in result.pending] == [6]


def test_thirty_one_steps_are_too_few() -> None:
    """One step short of the window nothing is judged, and the result says so."""
    result = judged(job(8, 31, slow_rank(1, 2.0)))

    assert not result.enough_steps
    assert result.findings == result.pending == ()


def test_cost_of_one_steady_straggler() -> None:
    """N x (max - median): seven ranks wait 0.5 s of 1.7 s and the straggler spends them: 8 x 0.5 / (8 x 1.7)."""
    result = judged(job(8, 64, slow_rank(2, 1.5, jitter=0.0)))

    assert result.lost_share == pytest.approx(0.5 / 1.7)
    assert result.lost_gpu_seconds == pytest.approx(64 * 8 * 0.5)
    assert not result.is_upper_bound


def test_cost_without_a_straggler_is_nothing() -> None:
    """What even the slowest rank waits is the network, and nobody's slowness."""
    assert judged(job(8, 64, healthy(0.0))).lost_share == 0.0


def test_missing_rows_are_counted_and_bridged() -> None:
    """A rank without rows in some steps is judged over those that it has, and the holes are counted."""
    rows = [row for row in job(8, 200, slow_rank(3, 1.4)) if not (row.rank == 3 and row.step % 10 == 7)]
    result = judged(rows)

    assert result.missing_rows == 20
    assert [finding.verdict.rank for finding in result.findings] == [3]


def test_rank_that_left_is_not_compared() -> None:
    """A rank without any row in the last 32 steps counts no more as a peer or as slow."""
    rows = [row for row in job(8, 400, slow_rank(3, 1.4)) if not (row.rank == 3 and row.step >= 150)]
    (finding,) = judged(rows).findings

    assert finding.until_step is not None
    assert finding.until_step <= 181


def test_times_of_day_carry_the_patience() -> None:
    """36 steps of 1.6 s are too short to confirm anything, but not if they were sampled 20 s apart."""
    rows = job(8, 36, slow_rank(4, 1.4, jitter=0.0), began=1_700_000_000.0)
    sampled = [row._replace(end=1_700_000_000.0 + 20 * row.step) for row in rows]

    assert [finding.confirmed for finding in judged(rows).findings] == [False]
    assert [finding.confirmed for finding in judged(sampled).findings] == [True]


def test_order_of_rows_does_not_matter() -> None:
    """Rank by rank, step by step, or backwards: the same result."""
    rows = job(8, 150, slow_rank(5, 1.3))

    assert judged(rows) == judged(sorted(rows, key=lambda row: (row.rank, -row.step)))


def test_unmeasured_own_time_is_blind_and_costless() -> None:
    """Rows without own time give no cost, and say that they cannot be judged."""
    result = judged([row._replace(own_ns=None) for row in job(4, 400, healthy())])

    assert result.lost_share is None
    assert [finding.verdict.verdict for finding in result.findings] == ["blind"]
