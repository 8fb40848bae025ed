"""Ranks that no longer step: hung or crashed."""

from __future__ import annotations

from collections.abc import Sequence

from straggler.detect import wording
from straggler.detect.policy import Policy
from straggler.detect.sample import RankSample
from straggler.detect.verdict import CRITICAL, Verdict
from straggler.model.rank import RankState


def hang(run: str, ranks: Sequence[RankSample], policy: Policy) -> list[Verdict]:
    """One per run. The suspect is the rank with strictly the fewest arrivals at blocking points.

    If all arrived alike, the host code of no rank is to blame: it is a GPU or the network. Arrivals are compared inside
    a peer group, since other stages block at other points. No hang are: a rank in checkpoint or eval that makes the
    others wait, until its own longer patience ends; a silent rank whose peers step, since the barrier proves that it
    steps too and only its ring is frozen; the last ranks of a run that finishes, for as long as a checkpoint may take.
    """
    hung = [rank for rank in ranks if rank.state is RankState.HUNG]
    if not hung or any(rank.state is RankState.RUNNING and rank.excluded_phase for rank in ranks):
        return []
    silent = min(rank.since_progress_seconds for rank in hung)
    if steps_on(ranks, silent) or (_is_finishing(ranks) and silent <= policy.hang_excluded_seconds):
        return []
    behind = _most_behind([rank for rank in ranks if rank.alive], ranks)
    suspect = behind[0] if len(behind) == 1 else None
    living = sum(rank.alive for rank in ranks)
    return [
        Verdict(
            verdict="hang",
            severity=CRITICAL,
            run=run,
            peer_group=suspect.peer_group if suspect else None,
            rank=suspect.rank if suspect else None,
            node=suspect.node if suspect else None,
            waiting=living - 1 if suspect else living,
            gpu_uuid=suspect.gpu_uuid if suspect else "",
            evidence=f"no step for {wording.seconds(silent)} on {wording.count(len(hung), 'living rank')}; "
            + _who_is_missing(behind, ranks),
            impact=f"{wording.count(living, 'GPU')} do nothing until the job is restarted",
        )
    ]


def crash(run: str, ranks: Sequence[RankSample]) -> list[Verdict]:
    """One per run, naming the first to die, only while others remain: all gone together is an end.

    Survivors that have made fewer steps than the dead are no survivors but a restart. (The launcher's attempt would say
    it too, but differs between nodes.)
    """
    living = [rank for rank in ranks if rank.alive]
    furthest = max((rank.steps_total or 0 for rank in living), default=0)
    dead = [rank for rank in ranks if rank.state is RankState.CRASHED and (rank.steps_total or 0) <= furthest]
    if not dead or not living:
        return []
    candidates = _most_behind(dead, ranks) or dead
    first = max(candidates, key=lambda rank: (rank.gone_seconds or 0.0, -rank.rank))
    return [
        Verdict(
            verdict="crash",
            severity=CRITICAL,
            run=run,
            peer_group=first.peer_group,
            rank=first.rank,
            node=first.node,
            waiting=len(living),
            gpu_uuid=first.gpu_uuid,
            evidence=f"rank {first.rank} is gone without a goodbye"
            + (f" after step {first.step}" if first.step is not None else "")
            + (f", the first of {len(dead)}" if len(dead) > 1 else "")
            + f"; {wording.count(len(living), 'rank')} still alive",
            impact=f"{wording.count(len(living), 'GPU')} wait{'s' if len(living) == 1 else ''} for a rank that "
            "will not come",
        )
    ]


def steps_on(ranks: Sequence[RankSample], silent: float) -> bool:
    """Whether a running rank has stepped well after others fell silent; one more step may end after a rank stops."""
    return any(
        rank.state is RankState.RUNNING and rank.recent is not None and rank.since_progress_seconds < silent / 2
        for rank in ranks
    )


def _is_finishing(ranks: Sequence[RankSample]) -> bool:
    """Whether most ranks have finished and some are gone: after a polite restart all would be there again."""
    finished = max(sum(rank.state is RankState.FINISHED for rank in ranks), *(rank.run_finished for rank in ranks))
    alive = sum(rank.alive for rank in ranks)
    sizes = [rank.world_size for rank in ranks if rank.alive and rank.world_size is not None]
    return finished >= alive and (not sizes or alive < min(sizes))


def _most_behind(candidates: Sequence[RankSample], ranks: Sequence[RankSample]) -> list[RankSample]:
    """Of the candidates, those who are furthest behind the furthest of their peer group; none if nobody is behind."""
    furthest: dict[str, int] = {}
    for rank in ranks:
        if rank.arrivals is not None:
            furthest[rank.peer_group] = max(rank.arrivals, furthest.get(rank.peer_group, 0))
    behind = {rank.rank: furthest[rank.peer_group] - rank.arrivals for rank in candidates if rank.arrivals is not None}
    most = max(behind.values(), default=0)
    return [rank for rank in candidates if most > 0 and behind.get(rank.rank) == most]


def _who_is_missing(behind: Sequence[RankSample], ranks: Sequence[RankSample]) -> str:
    living = [rank for rank in ranks if rank.alive and rank.arrivals is not None]
    if len(behind) == 1:
        who = f"rank {behind[0].rank} has reached fewer blocking points than its peers: they wait for it"
    elif behind:
        who = f"{wording.ranks([rank.rank for rank in behind])} have reached equally few blocking points"
    elif len(living) == len({rank.peer_group for rank in living}):
        who = "arrivals cannot tell who is missing: no two ranks of one peer group are seen"
    else:
        who = "all have arrived at the same blocking point: a GPU or the network, not the code of one rank"
    gone = [rank.rank for rank in ranks if rank.state is RankState.CRASHED]
    return f"{who}; but {wording.ranks(gone)} crashed, and may be the one to blame" if gone else who
