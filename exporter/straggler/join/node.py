"""What is known to be on this node, and what of it nobody shows. Pure.

dcgm-exporter's page may be another node's: a Kubernetes Service answers from anywhere. NVML is this node's for certain,
though it may see a part of the GPUs only, as a container does. So a page that shares a GPU with NVML is of this node; a
page that shares none is not, and no rank of this node is matched with anything on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from straggler.model.gpu import GpuFacts
from straggler.model.rank import RankFacts
from straggler.model.reading import Problem

PAGE = "dcgm"
OWN = "nvml"

_ACTIVITY = "sm_active_absent"

NODE_BLIND_REASONS = (
    "page_of_other_node",  # it has none of the GPUs that NVML finds here
    "gpu_not_on_page",  # NVML finds GPUs here that the page does not show
    "fewer_gpus_than_ranks",  # by its local_world_size a run uses more GPUs than anybody shows
)


class OwnGpus(NamedTuple):
    """The GPUs that ranks of this node may be on."""

    gpus: tuple[GpuFacts, ...]
    node_proven: bool
    """Whether they are known to be of this node."""


def own_gpus(gpus: Sequence[GpuFacts], by_source: Mapping[str, Sequence[GpuFacts]], *, node_proven: bool) -> OwnGpus:
    """Leave out what is another node's.

    Args:
        gpus: of all sources, merged.
        by_source: what each source told of, by its name.
        node_proven: whether the page is known to be of this node without NVML's help.
    """
    here, on_page = _uuids(by_source.get(OWN, ())), _uuids(by_source.get(PAGE, ()))
    if node_proven or not here:
        return OwnGpus(tuple(gpus), node_proven)
    if here & on_page or not on_page:
        return OwnGpus(tuple(gpus), node_proven=True)
    return OwnGpus(tuple(gpu for gpu in gpus if gpu.key.uuid in here), node_proven=True)


def unseen_gpus(
    by_source: Mapping[str, Sequence[GpuFacts]],
    ranks: Iterable[RankFacts],
    *,
    node_proven: bool,
    sharing: bool,
    installed: frozenset[str] = frozenset(),
) -> dict[str, tuple[Problem, ...]]:
    """Tell which GPUs must be here and are not shown.

    Args:
        by_source: as for ``own_gpus``; only sources that are well.
        ranks: of this node, and pushed ones, which may be of any.
        node_proven: whether the page is known to be of this node without NVML's help.
        sharing: whether several ranks may be on one GPU.
        installed: bus ids of the GPUs that the kernel's driver has; they repeat on every node, so they are compared
            with a page that is known to be of this one.

    Returns:
        By source whose fault it is, conditions with ``NODE_BLIND_REASONS``.
    """
    here, on_page = _uuids(by_source.get(OWN, ())), _uuids(by_source.get(PAGE, ()))
    unseen: dict[str, tuple[Problem, ...]] = {}
    if here and on_page and here - on_page:
        if here & on_page or node_proven:
            detail = f"the driver has {min(here - on_page)} and the page has not: look at dcgm-exporter's log"
            unseen[PAGE] = (Problem(reason="gpu_not_on_page", detail=detail, count=len(here - on_page)),)
        else:
            detail = f"it has none of this node's {len(here)} GPUs: use the node's own exporter (dcgm.url)"
            unseen[PAGE] = (Problem(reason="page_of_other_node", detail=detail),)
    elif node_proven and (lacking := _not_on(by_source.get(PAGE, ()), installed)):
        detail = f"the driver has {min(lacking)} and the page has not: look at dcgm-exporter's log"
        unseen[PAGE] = (Problem(reason="gpu_not_on_page", detail=detail, count=len(lacking)),)
    shown = len(_carriers([gpu for facts in by_source.values() for gpu in facts]))
    used = 0 if sharing else _gpus_in_use(ranks)
    if 0 < shown < used:
        name = PAGE if on_page else OWN
        detail = f"runs use {used} GPUs here, {shown} are shown (several ranks on one GPU? set gpu_sharing)"
        problem = Problem(reason="fewer_gpus_than_ranks", detail=detail, count=used - shown)
        unseen[name] = (*unseen.get(name, ()), problem)
    return unseen


def still_blind(blind: Mapping[str, Sequence[Problem]], gpus: Sequence[GpuFacts]) -> dict[str, tuple[Problem, ...]]:
    """Drop from what a source cannot see what another has shown: SM activity, for each GPU that a rank can be on.

    Args:
        blind: what each source cannot see, by its name, in order of precedence.
        gpus: of all sources, merged.

    Returns:
        By source. SM activity that nobody has is told by the first that misses it, and not by each.
    """
    carriers = _carriers(gpus)
    without = sum("sm_active_ratio" not in gpu.values for gpu in carriers) if carriers else None
    told: dict[str, tuple[Problem, ...]] = {}
    for name, problems in blind.items():
        kept = []
        for problem in problems:
            if problem.reason == _ACTIVITY and without is not None:
                if without:
                    kept.append(replace(problem, count=min(problem.count, without)))
            else:
                kept.append(problem)
        told[name] = tuple(kept)
        if any(problem.reason == _ACTIVITY for problem in kept):
            without = 0
    return told


def _not_on(page: Sequence[GpuFacts], installed: frozenset[str]) -> frozenset[str]:
    """Bus ids that a page lacks; none where it has none at all, as old exporters have not."""
    shown = {gpu.pci_bus_id for gpu in page}
    return installed - shown if page and "" not in shown else frozenset()


def _gpus_in_use(ranks: Iterable[RankFacts]) -> int:
    """How many GPUs the living runs use here, by their own word; a run in several pods is counted once."""
    sizes: dict[str, int] = {}
    for rank in ranks:
        identity = rank.identity
        if rank.alive and rank.source == "rings" and identity.clock == "cuda" and identity.local_world_size:
            sizes[identity.run] = max(sizes.get(identity.run, 0), identity.local_world_size)
    return sum(sizes.values())


def _carriers(gpus: Iterable[GpuFacts]) -> list[GpuFacts]:
    """What a rank can be on: whole GPUs and instances, not the GPUs that are divided. Each once."""
    told = {gpu.key: gpu for gpu in gpus}
    divided = {key.uuid for key in told if key.gpu_instance is not None}
    return [gpu for key, gpu in told.items() if key.gpu_instance is not None or key.uuid not in divided]


def _uuids(gpus: Iterable[GpuFacts]) -> frozenset[str]:
    return frozenset(gpu.key.uuid for gpu in gpus)
