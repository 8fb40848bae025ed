"""Single ranks, whole nodes, and crowds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples import run_of, with_recent
from straggler.detect.lately import Lately
from straggler.detect.policy import DEFAULT
from straggler.detect.verdicts import judge
from straggler.model.rank import RankState


def found(*samples: object, **_: object) -> list[tuple[str, str, int | None, str | None]]:
    """Verdict, severity, rank and node, in order."""
    return [(v.verdict, v.severity, v.rank, v.node) for v in judge(list(samples))]  # type: ignore[arg-type]  # samples


def test_one_slow_rank_is_named() -> None:
    """1.15 times its peers over 32 steps is a warning for that rank and nobody else."""
    own = [1.0] * 8
    own[3] = 1.15

    assert found(*run_of(own)) == [("straggling_rank", "warning", 3, "n0")]


def test_critical_comes_with_its_warning() -> None:
    """Above 1.20 the rank is critical too; the warning stays, for the critical one to inhibit."""
    own = [1.0] * 8
    own[3] = 1.25

    assert found(*run_of(own)) == [
        ("straggling_rank", "warning", 3, "n0"),
        ("straggling_rank", "critical", 3, "n0"),
    ]


@pytest.mark.parametrize(("factor", "is_slow"), [(1.07, False), (1.099, False), (1.101, True), (1.13, True)])
def test_ten_percent_is_the_line(factor: float, *, is_slow: bool) -> None:
    """Below 10 % nobody is named, above it the rank is."""
    own = [1.0] * 15 + [factor]

    assert bool(judge(run_of(own))) is is_slow


def test_mean_alone_is_one_long_stall() -> None:
    """One pause of 45 s among 32 steps of 10 s raises the mean to 1.11 and leaves the median: silent."""
    mean = (31 * 10.0 + 45.0) / 32
    own = [10.0] * 7 + [mean]
    medians = [10.0] * 8
    assert mean / 10 > DEFAULT.warning_ratio

    assert judge(run_of(own, medians=medians)) == ()


def test_median_alone_is_not_enough() -> None:
    """A high median with an ordinary mean is silent."""
    assert judge(run_of([1.0] * 8, medians=[1.0] * 7 + [1.3])) == ()


def test_too_few_steps() -> None:
    """31 steps are no evidence, 32 are."""
    own = [1.0] * 7 + [1.5]

    assert judge(run_of(own, steps=31)) == ()
    assert judge(run_of(own, steps=32)) != ()


def test_tiny_own_time_delays_nobody() -> None:
    """20 % of an own time that is a tenth of the step is 2 % of the step: silent."""
    ranks = [with_recent(rank, step_mean_seconds=1.0) for rank in run_of([0.1] * 7 + [0.12])]

    assert judge(ranks) == ()


def test_two_ranks_warn_only() -> None:
    """With two ranks each is compared with the other: a warning at any ratio, never critical."""
    assert found(*run_of([1.0, 2.0])) == [("straggling_rank", "warning", 1, "n0")]


def test_alone_no_verdict() -> None:
    """A rank without peers is never slow."""
    assert judge(run_of([5.0])) == ()


def test_other_stage_is_no_peer() -> None:
    """A rank is compared with its own stage: in a light one it is found below the heavy one's time."""
    own = [1.0, 1.0, 1.0, 1.3, 1.35, 1.35, 1.35, 1.35]
    verdicts = judge(run_of(own, groups=["0"] * 4 + ["1"] * 4))

    assert {(v.verdict, v.rank, v.peer_group) for v in verdicts} == {
        ("straggling_rank", 3, "0"),
        ("heavy_stage", None, "1"),
    }


def test_whole_node_is_one_verdict() -> None:
    """All eight ranks of one node at 1.19 give one straggling_node and no rank, also with only two nodes."""
    assert found(*run_of([1.0] * 8 + [1.19] * 8)) == [("straggling_node", "warning", None, "n1")]


def test_node_is_critical_when_all_its_ranks_are() -> None:
    """One rank below 1.20 keeps the whole node at a warning."""
    assert [severity for _, severity, *_ in found(*run_of([1.0] * 24 + [1.3] * 8))] == ["warning", "critical"]
    assert [severity for _, severity, *_ in found(*run_of([1.0] * 24 + [1.3] * 7 + [1.15]))] == ["warning"]


def test_part_of_a_node_is_its_ranks() -> None:
    """Two slow ranks of eight on a node are two ranks, not a node."""
    own = [1.0] * 8 + [1.3, 1.3] + [1.0] * 6

    assert {(v.verdict, v.rank) for v in judge(run_of(own))} == {("straggling_rank", 8), ("straggling_rank", 9)}


def test_node_of_one_rank_is_told_as_that_rank() -> None:
    """Where each node has one rank a slow one is one rank: that its node is slow as a whole says nothing more."""
    assert {verdict for verdict, *_ in found(*run_of([1.0] * 7 + [1.3], ranks_per_node=1))} == {"straggling_rank"}


def test_crowd_is_the_jobs_shape() -> None:
    """Eight slow ranks of 64 on eight nodes are one warning about the job and no rank."""
    own = [1.3 if rank % 8 == 7 else 1.0 for rank in range(64)]
    (verdict,) = judge(run_of(own))

    assert (verdict.verdict, verdict.severity, verdict.rank, verdict.peer_group) == (
        "heavy_stage",
        "warning",
        None,
        "0",
    )
    assert "8 of 64 ranks" in verdict.evidence


def test_crowd_on_unknown_nodes_is_the_jobs_shape() -> None:
    """Whoever does not know where slow ranks are cannot say that they are on one node."""
    own = [1.3 if rank % 8 == 7 else 1.0 for rank in range(64)]
    (verdict,) = judge([replace(rank, node="") for rank in run_of(own)])

    assert (verdict.verdict, verdict.rank) == ("heavy_stage", None)


@pytest.mark.parametrize(("delay", "cause"), [(0.0, "data_loading"), (0.5, "unknown")])
def test_cause_of_a_node_is_what_its_ranks_agree_on(delay: float, cause: str) -> None:
    """Four ranks that wait for data and four without a CPU are no one thing that is wrong with the node."""
    ranks = []
    for rank in run_of([1.0] * 8 + [1.5] * 8):
        lately = Lately(step_seconds=1.51, own_seconds=rank.own_mean, now_seconds=rank.own_mean, run_delay_seconds=0.0)
        if rank.node == "n1":
            lately = replace(lately, data_seconds=0.5, run_delay_seconds=delay * (rank.rank % 2))
        ranks.append(replace(rank, lately=lately))
    verdicts = judge(ranks)

    assert {(verdict.verdict, verdict.cause) for verdict in verdicts} == {("straggling_node", cause)}


def test_two_stragglers_are_two() -> None:
    """Two slow ranks on two nodes are fewer than a crowd, whatever their share: both are named."""
    own = [1.0] * 16
    own[1] = own[9] = 1.3

    assert {(v.verdict, v.rank) for v in judge(run_of(own))} == {("straggling_rank", 1), ("straggling_rank", 9)}


def test_few_of_many_are_named() -> None:
    """Three slow ranks of 64 on three nodes are below a tenth: three ranks."""
    own = [1.0] * 64
    for rank in (3, 20, 50):
        own[rank] = 1.3

    assert {(v.verdict, v.rank) for v in judge(run_of(own))} == {("straggling_rank", rank) for rank in (3, 20, 50)}


def test_unmeasured_rank_is_no_peer() -> None:
    """A rank without own time is compared with nobody and drags no reference; that it is unseen is said."""
    ranks = run_of([1.0] * 6 + [1.5, 1.0])
    ranks[0] = replace(with_recent(ranks[0], own_mean_seconds=None, own_median_seconds=None), own_reason="cuda_graph")
    verdicts = judge(ranks)

    assert {(v.verdict, v.rank) for v in verdicts} == {("straggling_rank", 6), ("blind", None)}
    assert "rank 0" in verdicts[-1].evidence
    assert "cuda_graph" in verdicts[-1].evidence


def test_dead_rank_is_no_peer() -> None:
    """What a dead rank last said counts no more."""
    ranks = run_of([1.0] * 7 + [1.5])
    ranks[7] = replace(ranks[7], state=RankState.FINISHED)

    assert judge(ranks) == ()


def test_runs_do_not_mix() -> None:
    """Ranks of another run are no peers, however they are numbered."""
    slow_run = run_of([2.0] * 4, run="b")

    assert judge([*run_of([1.0] * 4, run="a"), *slow_run]) == ()


def test_verdict_says_what_on_call_asks() -> None:
    """The numbers beside the peers', who waits, and what it costs are in the text."""
    (verdict, critical) = judge(run_of([0.034] * 7 + [0.047]))

    assert critical.severity == "critical"
    assert verdict.evidence == (
        "own time 47.0 ms a step (1.38 x), median 47.0 ms, against 34.0 ms of its 7 peers, over 32 steps; "
        "it waits 10.0 ms a step, they 23.0 ms"
    )
    assert verdict.impact == "7 GPUs wait for it, 23 % of each step is lost"
    assert verdict.slowdown_ratio == pytest.approx(47 / 34)
    assert verdict.lost_share == pytest.approx(13 / 57)


def test_a_slow_mean_that_explains_little_of_the_waiting_is_chance() -> None:
    """Uneven batches: a rank is 12 % above its peers, who wait for each other four times longer than that: silent."""
    own = [1.0] * 7 + [1.12]
    ranks = [with_recent(rank, wait_mean_seconds=0.5, step_mean_seconds=1.5) for rank in run_of(own)]

    assert [verdict.verdict for verdict in judge(ranks)] == ["rotating_imbalance"]
