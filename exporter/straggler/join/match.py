"""Which rank is on which GPU.

A wrong join is worse than none: the alert then names a healthy GPU, and somebody drains it. So each rank is matched by
the strongest thing it says about its GPU, and only that; where this leads nowhere or to several GPUs, the rank stays
without one, with a reason that is counted.

What a rank may say, strongest first (``evidence.EVIDENCE``):

1. *UUID.* It names one GPU in the world, so it holds on any page. Also the forms of CUDA_VISIBLE_DEVICES: an
   abbreviated UUID, if one GPU fits; ``MIG-GPU-<uuid>/<gi>/<ci>``; and ``MIG-<uuid>``, which only NVML or the
   exporter's label ``dra_mig_device_uuid`` can resolve. A rank that names a whole UUID is never matched by anything
   weaker: if its GPU is not on the page, then a GPU with the same bus id is another node's. Except that CUDA names a
   MIG instance like a GPU: on a proven page with instances an unknown UUID may be one's, and bus id or pod may lead to
   it.
2. *UUIDs in CUDA_VISIBLE_DEVICES*, of which ``local_rank`` picks one, as all launchers do.

What follows means something only on one node. Every host has a GPU 0 and a bus 1B, a Kubernetes Service may answer
from elsewhere, and a federated page holds many nodes. So it needs proof that the page is of the rank's node: the caller
knows (``node_proven``: a loopback address), or a rank of that node found its UUID there. A page with several host names
is of no node. Pushed ranks may be of any node, and need a peer on their own.

3. *PCI bus id*, of the rank itself, or else of NCCL's log of the rank (``nccl.link``).
4. *Index.* Only where the rank can see **every** GPU of the page, all of one model: inside a container or a Slurm
   cgroup, index 0 is the first *visible* GPU, and CUDA orders different models by speed. With all of them visible, and
   equal, CUDA's order, NVML's and DCGM's are one.
5. *Pod.* Where the kubelet told the exporter the pod: one GPU and one rank in it; or as many of each, in order.

Nobody is matched by elimination. At each level two ranks that claim one GPU both get none, and a GPU that is claimed at
a stronger level is gone for weaker ones; so a GPU never has two ranks. The exception is declared by whoever runs the
sidecar (``sharing``): then ranks that themselves name the same UUID all have it. Each rank is judged on its own before
claims are compared, so the order of ranks and of GPUs does not matter.

A MIG instance is a GPU of its own here. The GPU that is divided is not: no rank runs on the whole of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from straggler.join.evidence import EVIDENCE
from straggler.join.known import Found, KnownGpus, agree, are_equal_whole_gpus
from straggler.join.view import RankView
from straggler.join.visible import named_gpu, read_name, visible_entries, visible_gpu
from straggler.model.gpu import GpuFacts, GpuKey
from straggler.model.gpu_identity import is_full_uuid, normal_bus_id
from straggler.model.rank import RankFacts, RankKey
from straggler.wire.records import Identity

_Claim = tuple[str, Found]
"""Evidence, and what it leads to."""


_NO_LOGS: Mapping[RankKey, str] = {}


def match(
    ranks: Sequence[RankFacts],
    gpus: Sequence[GpuFacts],
    *,
    node_proven: bool,
    sharing: bool = False,
    logged_bus_ids: Mapping[RankKey, str] = _NO_LOGS,
) -> tuple[RankView, ...]:
    """Join ranks with GPUs.

    Args:
        ranks: all that the node knows, living or not.
        gpus: all that the sources told of; one entry for each key.
        node_proven: whether the GPUs are known to be of the node whose rings are read.
        sharing: whether several ranks may be on one GPU, if each names it by UUID.
        logged_bus_ids: normal bus ids, as NCCL's logs have them.

    Returns:
        One view for each rank, in the order of ``ranks``.
    """
    known = KnownGpus(gpus)
    living = [rank for rank in ranks if rank.alive]
    proof = _Proof(living, known, node_proven=node_proven)
    claims = [_claim(rank, known, living, proof, logged_bus_ids.get(rank.key, "")) for rank in ranks]
    lost = _claimed_twice(claims, sharing=sharing)
    return tuple(
        _view(rank, known, ("", Found(None, "gpu_claimed_twice")) if index in lost else claims[index])
        for index, rank in enumerate(ranks)
    )


class _Proof:
    """For which ranks the page is known to be of their node."""

    def __init__(self, living: Sequence[RankFacts], known: KnownGpus, *, node_proven: bool) -> None:
        on_page = [rank for rank in living if any(known.has_uuid(uuid) for uuid in _uuids(rank))]
        self._of_one_node = known.is_of_one_node
        self._for_rings = node_proven or any(rank.source == "rings" for rank in on_page)
        self._nodes = {rank.identity.node for rank in on_page if rank.identity.node}

    def holds_for(self, rank: RankFacts) -> bool:
        """Rings are read on this node; a push may come from any."""
        if not self._of_one_node:
            return False
        return self._for_rings if rank.source == "rings" else rank.identity.node in self._nodes


def _uuids(rank: RankFacts) -> list[str]:
    """All whole UUIDs that a rank names; those of its neighbours in CUDA_VISIBLE_DEVICES are of the same node."""
    names = [read_name(entry) for entry in visible_entries(rank.identity.visible_devices)]
    return [named.uuid for named in (named_gpu(rank.identity), *names) if named and is_full_uuid(named.uuid)]


def _claim(rank: RankFacts, known: KnownGpus, living: Sequence[RankFacts], proof: _Proof, logged: str) -> _Claim:
    """Follow the strongest evidence that a rank has."""
    if not rank.alive:
        return "", Found(None, "rank_gone")
    if not known.by_key:
        return "", Found(None, "no_gpu_facts")
    proven = proof.holds_for(rank)
    evidence, named = "uuid", named_gpu(rank.identity)
    visible = visible_gpu(rank.identity)
    if named is None and visible is not None:
        evidence, named = "visible_uuid", visible.named
    if named is None:
        return _weaker_claim(rank, known, living, logged, proven=proven)
    found = known.by_name(named, proven=proven)
    if found.reason == "mig_uuid_unresolved" and proven:
        # What the name does not tell, bus id or pod may; but the rank is on an instance, never on a whole GPU.
        weaker = _weaker_claim(rank, known, living, logged, proven=proven)
        key = weaker[1].key
        return weaker if key is not None and key.gpu_instance is not None else ("", found)
    if evidence == "visible_uuid" and not _agrees_with_bus_id(rank, found, known):
        found = Found(None, "contradictory")
    return evidence, found


def _agrees_with_bus_id(rank: RankFacts, found: Found, known: KnownGpus) -> bool:
    bus_id = normal_bus_id(rank.identity.pci_bus_id)
    return found.key is None or agree(known.by_key[found.key].pci_bus_id, bus_id)


def _weaker_claim(
    rank: RankFacts, known: KnownGpus, living: Sequence[RankFacts], logged: str, *, proven: bool
) -> _Claim:
    """Follow what means something only on one node."""
    identity = rank.identity
    bus_id = normal_bus_id(identity.pci_bus_id)
    sees_gpus = identity.gpu is not None or bool(identity.visible_devices) or identity.clock == "cuda"
    if not (bus_id or logged or sees_gpus or identity.pod):
        return "", Found(None, "no_gpu_named")
    if not proven:
        return "", Found(None, "page_unproven")
    if bus_id or logged:
        found = known.by_bus_id(bus_id or logged, identity.gpu_instance)
        if found.key is not None or (found.reason == "bus_id_not_on_page" and known.knows_all_bus_ids):
            return "pci_bus_id" if bus_id else "nccl_bus_id", found
    if sees_gpus:
        found = _by_index(identity, known)
        if found.key is not None:
            return "gpu_index", found
    if not identity.pod:
        return "", Found(None, "ambiguous")
    found = _of_pod(rank, known, living)
    return "pod", found if _agrees_with_bus_id(rank, found, known) else Found(None, "contradictory")


def _by_index(identity: Identity, known: KnownGpus) -> Found:
    """Find the GPU by the index that the rank knows, or that CUDA_VISIBLE_DEVICES or else ``local_rank`` gives it."""
    visible = visible_gpu(identity)
    if visible is not None:
        index, total = visible.gpu_index, visible.total
    elif not identity.visible_devices:
        index, total = identity.local_rank, identity.local_world_size or 0
    else:
        return Found(None, "ambiguous")
    index = index if identity.gpu is None else identity.gpu
    return Found(None, "ambiguous") if index is None else known.by_index(index, total)


def _of_pod(rank: RankFacts, known: KnownGpus, living: Sequence[RankFacts]) -> Found:
    identity = rank.identity
    gpus = known.of_pod(identity.namespace, identity.pod, identity.container)
    ranks = [other.identity for other in living if _same_pod(rank, other)]
    count = len(gpus)
    if not gpus or len(ranks) != count:
        return Found(None, "ambiguous" if gpus else "no_gpu_named")
    if count == 1:
        return Found(gpus[0].key)
    plain = ("", ",".join(map(str, range(count))))
    in_order = {other.local_rank for other in ranks} == set(range(count)) and all(
        "".join(other.visible_devices.split()) in plain for other in ranks
    )
    if not in_order or not are_equal_whole_gpus(gpus) or not all(gpu.pci_bus_id for gpu in gpus):
        return Found(None, "ambiguous")
    return Found(gpus[identity.local_rank or 0].key)


def _same_pod(rank: RankFacts, other: RankFacts) -> bool:
    mine, theirs = rank.identity, other.identity
    return (
        mine.pod == theirs.pod and agree(mine.namespace, theirs.namespace) and agree(mine.container, theirs.container)
    )


def _claimed_twice(claims: Sequence[_Claim], *, sharing: bool) -> set[int]:
    """The claims, by index, that lose: to a stronger one, or both to each other."""
    lost: set[int] = set()
    taken: set[GpuKey] = set()
    for evidence in EVIDENCE:
        claimants: dict[GpuKey, list[int]] = defaultdict(list)
        for index, (kind, found) in enumerate(claims):
            if kind == evidence and found.key is not None:
                claimants[found.key].append(index)
        may_share = sharing and evidence in ("uuid", "visible_uuid")
        for key, indices in claimants.items():
            if not may_share and (key in taken or len(indices) > 1):
                lost.update(indices)
        taken.update(claimants)
    return lost


def _view(rank: RankFacts, known: KnownGpus, claim: _Claim) -> RankView:
    evidence, found = claim
    if found.key is None:
        return RankView(rank=rank, gpu=None, evidence="", unmatched_reason=found.reason)
    return RankView(rank=rank, gpu=known.by_key[found.key], evidence=evidence, unmatched_reason="")
