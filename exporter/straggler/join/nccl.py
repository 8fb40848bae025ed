"""Which rank a log of NCCL speaks of. Pure.

A log names a host, a process and a rank of a communicator, and none of the three is enough. The host may be another
one, since launchers bring the output of all nodes to the first. The process' number is counted in its own container,
so every pod may have the same. The communicator's rank is the global rank only in the one of all ranks. So host and
process must both be a rank's, and where the log has more (all ranks, a bus id) that must agree. A rank that pushes has
no process that could be compared: there, the number among all ranks must be the same. What fits several ranks is told
for none.

Whoever may write into the directory may write a log that speaks of another's rank. So it must belong to the owner of
the rank's ring, or to somebody who could change that anyway. Under Kubernetes everybody may be root: below the ring
directory, where each pod has a directory of its own, the log must lie beside the ring.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from straggler.join.known import agree
from straggler.join.view import RankView
from straggler.model.gpu_identity import normal_bus_id
from straggler.model.nccl import NcclFacts
from straggler.model.rank import RankFacts, RankKey
from straggler.model.reading import Problem

UNLINKED: Final = (
    "no_host",  # the log's lines carry no host
    "other_node",  # of a host that no rank here is on
    "stranger",  # the log belongs to another user than the rank
    "no_such_process",  # of this host, but none of the living ranks: an earlier attempt, or another program
    "contradictory",  # host and process are a rank's, and rank or bus id are another's
    "ambiguous",  # fits several ranks
    "superseded",  # a fresher log speaks of the same rank
)

_HOSTNAME_CHARACTERS: Final = 63
"""A pod's host name is its name, cut to this."""


class Linked(NamedTuple):
    """What logs say of ranks here."""

    by_rank: Mapping[RankKey, NcclFacts]
    unlinked: Mapping[str, int]
    """Ranks in logs that are told for no rank here, by ``UNLINKED``."""

    @property
    def bus_ids(self) -> dict[RankKey, str]:
        """The GPUs that logs name."""
        return {key: facts.pci_bus_id for key, facts in self.by_rank.items() if facts.pci_bus_id}

    def add_to(self, view: RankView) -> RankView:
        """A rank with what its log says, if there is one."""
        facts = self.by_rank.get(view.rank.key)
        return view if facts is None else replace(view, nccl=facts)

    def without_log(self, ranks: Iterable[RankFacts]) -> tuple[Problem, ...]:
        """Living ranks about which no log says anything, though they use GPUs, or others of their run have one.

        A rank without a complaint and a rank without a log look the same to whoever only sees complaints.
        """
        runs = {key.run for key in self.by_rank}
        silent = [
            rank.key
            for rank in ranks
            if rank.alive
            and rank.source == "rings"
            and rank.key not in self.by_rank
            and (rank.identity.clock == "cuda" or rank.key.run in runs)
        ]
        if not silent:
            return ()
        detail = f"rank {silent[0].rank} of {silent[0].run!r}: NCCL_DEBUG=INFO and NCCL_DEBUG_FILE, or nccl.logs"
        return (Problem(reason="rank_without_log", detail=detail, count=len(silent)),)


def link(ranks: Iterable[RankFacts], told: Sequence[NcclFacts], *, trusted: Collection[int]) -> Linked:
    """Find for each living rank what its log says.

    Args:
        ranks: all that the node knows.
        told: all that the logs tell, of any host.
        trusted: users whose logs are believed for any rank.
    """
    hosts: dict[str, list[RankFacts]] = defaultdict(list)
    for rank in ranks:
        if rank.alive:
            for host in _hosts(rank):
                hosts[host].append(rank)
    unlinked: Counter[str] = Counter()
    claims: dict[RankKey, list[NcclFacts]] = defaultdict(list)
    for facts in told:
        found = _rank_of(facts, hosts.get(facts.host.lower(), []), trusted)
        if isinstance(found, str):
            unlinked[found] += 1
        else:
            claims[found.key].append(facts)
    by_rank = {}
    for key, logs in claims.items():
        best = _best(logs, key)
        if best is None:
            unlinked["ambiguous"] += len(logs)
            continue
        by_rank[key] = best
        unlinked["superseded"] += len({(each.path, each.pid) for each in logs}) - 1
    return Linked(by_rank, +unlinked)


def _hosts(rank: RankFacts) -> set[str]:
    """What NCCL may call the host of a rank: the node's name or the pod's, up to the first dot."""
    names = (rank.identity.node, rank.identity.pod)
    return {name.partition(".")[0][:_HOSTNAME_CHARACTERS].lower() for name in names if name}


def _rank_of(facts: NcclFacts, here: Sequence[RankFacts], trusted: Collection[int]) -> RankFacts | str:
    """The rank that is meant, or one of ``UNLINKED``."""
    if not facts.host:
        return "no_host"
    if not here:
        return "other_node"
    own = [rank for rank in here if _may_speak_for(facts, rank, trusted)]
    if not own:
        return "stranger"
    same = [rank for rank in own if rank.pid is not None and rank.pid == facts.pid]
    if not same:
        same = [rank for rank in own if rank.pid is None and _is_that_rank(facts, rank)]
        if not same:
            return "no_such_process"
    fitting = [rank for rank in same if not _contradicts(facts, rank)]
    if not fitting:
        return "contradictory"
    if len(fitting) > 1:
        fitting = [rank for rank in fitting if _is_that_rank(facts, rank)]
    return fitting[0] if len(fitting) == 1 else "ambiguous"


def _may_speak_for(facts: NcclFacts, rank: RankFacts, trusted: Collection[int]) -> bool:
    """Whether whoever wrote the log may have written the ring too."""
    if facts.directory is not None:
        return facts.directory == rank.directory and facts.uid == rank.uid
    return facts.uid in trusted or (rank.uid is not None and rank.uid == facts.uid)


def _is_that_rank(facts: NcclFacts, rank: RankFacts) -> bool:
    """Whether the log has a communicator of all ranks, and in that the rank's number."""
    return facts.nranks is not None and facts.nranks == rank.identity.world_size and facts.rank == rank.identity.rank


def _contradicts(facts: NcclFacts, rank: RankFacts) -> bool:
    identity = rank.identity
    is_world = facts.nranks is not None and facts.nranks == identity.world_size
    if is_world and facts.rank != identity.rank:
        return True
    return not agree(facts.pci_bus_id, normal_bus_id(identity.pci_bus_id))


def _best(logs: Sequence[NcclFacts], key: RankKey) -> NcclFacts | None:
    """Of several the freshest; of several ranks in one process the one that is this rank; ``None``: cannot be told."""
    freshest = max(logs, key=lambda each: each.written or 0.0)
    same = [each for each in logs if (each.path, each.pid) == (freshest.path, freshest.pid)]
    named = [each for each in same if each.nranks is not None] or same
    exact = [each for each in named if each.rank == key.rank] if len(named) > 1 else named
    return exact[0] if len(exact) == 1 else None
