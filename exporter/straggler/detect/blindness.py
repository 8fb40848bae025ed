"""What cannot be seen: ranks that nobody reports, own time that nobody measures. Both look like health unless said."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from straggler.detect import wording
from straggler.detect.policy import Policy
from straggler.detect.sample import RankSample
from straggler.detect.stopped import steps_on
from straggler.detect.verdict import WARNING, Verdict
from straggler.model.rank import RankState

_MOST_NAMED = 8


def missing_rank(run: str, ranks: Sequence[RankSample], policy: Policy) -> list[Verdict]:
    """Fewer ranks seen than the run was started with, while those seen do step.

    The barrier proves that the missing ones live: they are unseen, most often because a node is not scraped or carries
    no hook; a rank that is hung while the others step has a frozen ring and is as unseen. So it is a hole in the
    monitoring and a warning, no crash.
    """
    size, unseen = _unseen(ranks, policy)
    if unseen <= 0:
        return []
    seen = _seen(ranks)
    named = list(islice((rank for rank in range(size) if rank not in seen), _MOST_NAMED))
    more = " and more" if unseen > len(named) else ""
    return [
        Verdict(
            verdict="missing_rank",
            severity=WARNING,
            run=run,
            evidence=f"the run has {size} ranks, {size - unseen} are seen and step. {unseen} must live, or the others "
            f"would stand still, but nothing reports them: {wording.ranks(named)}{more}",
            impact=f"{wording.count(unseen, 'rank')} can be slow without being found",
        )
    ]


def blind(run: str, ranks: Sequence[RankSample], policy: Policy) -> list[Verdict]:
    """Living ranks whose own time is not measured, one verdict per reason; and runs of which half is unseen."""
    reasons: dict[str, list[int]] = {}
    for rank in ranks:
        if rank.alive and rank.recent is not None and rank.recent.own_mean_seconds is None:
            reasons.setdefault(rank.own_reason, []).append(rank.rank)
    verdicts = [
        _blind(run, "own_time", reason, f"own time of {wording.ranks(numbers)} is not measured ({reason})")
        for reason, numbers in sorted(reasons.items())
    ]
    size, unseen = _unseen(ranks, policy)
    if unseen > 0 and unseen >= policy.blind_unseen_share * size:
        verdicts.append(
            _blind(
                run, "ranks", "unseen_ranks", f"{unseen} of {size} ranks are reported by nobody, though the run steps"
            )
        )
    return verdicts


def _blind(run: str, source: str, reason: str, evidence: str) -> Verdict:
    return Verdict(
        verdict="blind",
        severity=WARNING,
        run=run,
        source=source,
        reason=reason,
        evidence=evidence,
        impact="a straggler among these ranks would not be found; training itself is not affected",
    )


def _unseen(ranks: Sequence[RankSample], policy: Policy) -> tuple[int, int]:
    """The world size and how many of its ranks are unseen; (0, 0) unless the run is known to step."""
    sizes = [rank.world_size for rank in ranks if rank.alive and rank.world_size is not None]
    steps = [rank.step_mean for rank in ranks if rank.recent is not None]
    silent = [rank.since_progress_seconds for rank in ranks if rank.state is RankState.HUNG]
    patience = 2 * max(policy.missing_seconds, *steps) if steps else 0.0
    if not sizes or not steps_on(ranks, min(silent, default=patience)):
        return 0, 0
    size = min(sizes)  # while a run is resized, nobody is missed too early
    return size, size - sum(rank < size for rank in _seen(ranks))


def _seen(ranks: Sequence[RankSample]) -> set[int]:
    return {rank.rank for rank in ranks if rank.state is not RankState.HUNG}
