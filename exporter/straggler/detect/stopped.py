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
    suspects = _behind([rank for rank in ranks if rank.alive])
    suspect = suspects[0] if len(suspects) == 1 else None
    if suspect is not None:
        who = f"rank {suspect.rank} has reached fewer blocking points than its peers: they wait for it"
    elif suspects:
        who = f"{wording.ranks([rank.rank for rank in suspects])} have reached fewer blocking points than their peers"
    else:
        who = "all ranks have arrived at the same blocking point: a GPU or the network, not the code of one rank"
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
            evidence=f"no step for {wording.seconds(silent)} on {wording.count(len(hung), 'living rank')}; {who}",
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
    arrived = max((rank.arrivals for rank in ranks if rank.arrivals is not None), default=0)
    first = min(dead, key=lambda rank: _death_order(rank, arrived))
    return []
    first = min(dead, key=_death_order)
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
            impact=f"{wording.count(len(living), 'GPU')} wait for a rank that will not come",
        )
    ]


def steps_on(ranks: Sequence[RankSample], silent: float) -> bool:
    """Whether a running rank has stepped well after others fell silent; one more step may end after a rank stops."""
    return any(
        rank.state is RankState.RUNNING and rank.recent is not None and rank.since_progress_seconds < silent / 2
        for rank in ranks
    )


def _is_finishing(ranks: Sequence[RankSample]) -> bool:
    finished = sum(rank.state is RankState.FINISHED for rank in ranks)
    return finished >= sum(rank.alive for rank in ranks)


def _behind(living: Sequence[RankSample]) -> list[RankSample]:
    """The ranks with fewer arrivals than every other of their group, or than most where several tie."""
    groups: dict[str, list[RankSample]] = {}
    for rank in living:
        groups.setdefault(rank.peer_group, []).append(rank)
    behind: list[RankSample] = []
    for members in groups.values():
        counts = [rank.arrivals for rank in members if rank.arrivals is not None]
        if len(counts) < len(members) or min(counts) == max(counts):
            continue
        behind += [rank for rank in members if rank.arrivals == min(counts)]
    return behind


def _death_order(rank: RankSample, arrived: int) -> tuple[float, float, int]:
    """Who came least far; then who is longest gone; then the number."""
    behind = arrived - rank.arrivals if rank.arrivals is not None else 0
    return (-behind, -(rank.gone_seconds or 0.0), rank.rank)
