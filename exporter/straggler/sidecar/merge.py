"""One rank and one GPU out of several sources' facts about them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from straggler.model.gpu import GpuFacts, GpuKey
from straggler.model.rank import RankFacts, RankKey


def merge_ranks(sources: Iterable[Sequence[RankFacts]]) -> tuple[RankFacts, ...]:
    """One entry for each rank: a living one before one that is gone, then the earlier source's.

    A ring says more than a push (lock, arrivals at once), so rings come first; but a rank that crashed here and came
    back where it can only push is alive.
    """
    merged: dict[RankKey, RankFacts] = {}
    for facts in sources:
        for rank in facts:
            known = merged.get(rank.key)
            if known is None or (rank.alive and not known.alive):
                merged[rank.key] = rank
    return tuple(merged.values())


def merge_gpus(sources: Iterable[Sequence[GpuFacts]]) -> tuple[GpuFacts, ...]:
    """One entry for each GPU: the earlier source's values, and of later ones what is still missing.

    DCGM comes first, so its profiling values win. The driver counts the time in each clocks event reason, whoever asks
    it, but DCGM's usual fields do not tell software's from hardware's reaction to heat, so NVML adds what it has.
    """
    merged: dict[GpuKey, GpuFacts] = {}
    for facts in sources:
        for gpu in facts:
            known = merged.get(gpu.key)
            merged[gpu.key] = gpu if known is None else _complete(known, gpu)
    return tuple(merged.values())


def _complete(first: GpuFacts, second: GpuFacts) -> GpuFacts:
    return replace(
        first,
        values={**second.values, **first.values},
        clocks_event_seconds={**second.clocks_event_seconds, **first.clocks_event_seconds},
        clocks_event_reasons={**second.clocks_event_reasons, **first.clocks_event_reasons},
        gpu=second.gpu if first.gpu is None else first.gpu,
        pci_bus_id=first.pci_bus_id or second.pci_bus_id,
        model=first.model or second.model,
        mig_profile=first.mig_profile or second.mig_profile,
        pod=first.pod or second.pod,
        namespace=first.namespace or second.namespace,
        container=first.container or second.container,
        mig_uuids=first.mig_uuids or second.mig_uuids,
        xid_events={**second.xid_events, **first.xid_events},
        source=f"{first.source}+{second.source}" if second.values.keys() - first.values.keys() else first.source,
    )


def most_alive(ranks: Iterable[RankFacts], count: int) -> tuple[RankFacts, ...]:
    """So many of the ranks, living ones first."""
    return tuple(sorted(ranks, key=lambda rank: (not rank.alive, rank.key))[:count])
