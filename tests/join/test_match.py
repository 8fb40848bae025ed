"""Each way by which a rank finds its GPU, and each reason why it does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from facts import gpu_facts, identity, rank_facts
from straggler.join.evidence import EVIDENCE, UNMATCHED
from straggler.join.match import match
from straggler.model.gpu import GpuFacts, GpuKey
from straggler.model.rank import RankFacts, RankState

UUIDS = [f"GPU-{index:08x}-0000-0000-0000-000000000000" for index in range(8)]
MIG = "MIG-8f7c2c2e-5d8e-5c3c-9a51-0b9a1f6d3a10"


def gpu(index: int = 0, instance: int | None = None, **changes: Any) -> GpuFacts:
    """One GPU of node ``n1``, or an instance of it."""
    return gpu_facts(index, **({"key": GpuKey(UUIDS[index], instance), "hostname": "n1"} | changes))


def rank(number: int = 0, *, source: str = "rings", state: RankState = RankState.RUNNING, **changes: Any) -> RankFacts:
    """One rank that says no more of its GPU than it is told to."""
    return rank_facts(number, identity=identity(number, **changes), source=source, state=state)


def joined(
    ranks: Sequence[RankFacts], gpus: Sequence[GpuFacts], *, node_proven: bool = False, sharing: bool = False
) -> list[tuple[GpuKey | None, str]]:
    """For each rank its GPU, and by what evidence or why not."""
    views = match(ranks, gpus, node_proven=node_proven, sharing=sharing)
    assert [view.rank for view in views] == list(ranks)
    for view in views:
        if view.gpu is None:
            assert view.evidence == ""
            assert view.unmatched_reason in UNMATCHED
        else:
            assert view.evidence in EVIDENCE
            assert view.unmatched_reason == ""
    return [(view.gpu.key if view.gpu else None, view.evidence or view.unmatched_reason) for view in views]


def test_uuid() -> None:
    """A rank that names its UUID is on that GPU, on any page."""
    assert joined([rank(gpu_uuid=UUIDS[1])], [gpu(0), gpu(1)]) == [(GpuKey(UUIDS[1]), "uuid")]


def test_uuid_in_other_spellings() -> None:
    """Upper case, or without the prefix, as PyTorch prints it, is the same UUID."""
    ranks = [rank(0, gpu_uuid=UUIDS[0].upper()), rank(1, gpu_uuid=UUIDS[1].removeprefix("GPU-"))]

    assert joined(ranks, [gpu(0), gpu(1)]) == [(GpuKey(UUIDS[0]), "uuid"), (GpuKey(UUIDS[1]), "uuid")]


def test_abbreviated_uuid() -> None:
    """The first digits of a UUID are enough if one GPU begins with them."""
    assert joined([rank(gpu_uuid="GPU-00000001")], [gpu(0), gpu(1)]) == [(GpuKey(UUIDS[1]), "uuid")]


def test_abbreviated_uuid_of_two_gpus() -> None:
    """Digits with which two GPUs begin name neither."""
    assert joined([rank(gpu_uuid="GPU-0000000")], [gpu(0), gpu(1)], node_proven=True) == [(None, "ambiguous")]


def test_very_short_uuid_needs_the_node() -> None:
    """One digit names one GPU of a node, and many of a cluster."""
    far = gpu(0, key=GpuKey("GPU-a0000000-0000-0000-0000-000000000000"))

    assert joined([rank(gpu_uuid="GPU-a")], [far]) == [(None, "page_unproven")]
    assert joined([rank(gpu_uuid="GPU-a")], [far], node_proven=True) == [(far.key, "uuid")]
    assert joined([rank(gpu_uuid="GPU-a000000")], [far]) == [(None, "page_unproven")]
    assert joined([rank(gpu_uuid="GPU-a0000000")], [far]) == [(far.key, "uuid")]


def test_mig_instance_by_number() -> None:
    """Parent and GPU instance, named apart or in the old MIG form, name the instance; instance 0 is one."""
    gpus = [gpu(0, 0), gpu(0, 7), gpu(1)]
    ranks = [rank(0, gpu_uuid=UUIDS[0], gpu_instance=0), rank(1, gpu_uuid=f"MIG-{UUIDS[0]}/7/0")]

    assert joined(ranks, gpus) == [(GpuKey(UUIDS[0], 0), "uuid"), (GpuKey(UUIDS[0], 7), "uuid")]


def test_mig_uuid_by_the_exporters_label() -> None:
    """``MIG-…`` is resolved where the page tells the instance's UUID, also as CUDA gives it, like a whole GPU's."""
    gpus = [gpu(0, 3, labels={"dra_mig_device_uuid": MIG}), gpu(0, 4)]
    bare = MIG.removeprefix("MIG-")

    assert joined([rank(gpu_uuid=MIG)], gpus) == [(GpuKey(UUIDS[0], 3), "uuid")]
    assert joined([rank(gpu_uuid=f"GPU-{bare}")], gpus) == [(GpuKey(UUIDS[0], 3), "uuid")]


def test_mig_uuid_that_nobody_resolves() -> None:
    """``MIG-…`` says nothing about parent or number."""
    assert joined([rank(gpu_uuid=MIG)], [gpu(0, 3), gpu(0, 4)], node_proven=True) == [(None, "mig_uuid_unresolved")]


def test_mig_uuid_with_bus_id_and_number() -> None:
    """An unresolved ``MIG-…`` is found by its parent's bus id and its number, on a proven page."""
    mine = rank(gpu_uuid=MIG, pci_bus_id="0000:10:00.0", gpu_instance=4)

    assert joined([mine], [gpu(0, 3), gpu(0, 4)], node_proven=True) == [(GpuKey(UUIDS[0], 4), "pci_bus_id")]


@pytest.mark.parametrize("uuid", [MIG, MIG.replace("MIG-", "GPU-")])
def test_mig_uuid_with_a_pod(uuid: str) -> None:
    """In Kubernetes the pod tells which instance of the GPU in that slot it is, also where CUDA names it like a GPU."""
    gpus = [gpu(0, 3, pod="p", namespace="ml"), gpu(0, 4, pod="q", namespace="ml"), gpu(1)]
    mine = rank(gpu_uuid=uuid, pci_bus_id="0000:10:00.0", pod="p", namespace="ml")

    assert joined([mine], gpus, node_proven=True) == [(GpuKey(UUIDS[0], 3), "pod")]
    assert joined([mine], gpus)[0][0] is None


def test_mig_uuid_is_on_no_whole_gpu() -> None:
    """A rank with an instance's UUID is not put on the whole GPU that its bus id or its pod leads to."""
    gpus = [gpu(0, 3), gpu(1, pod="p")]
    by_slot = rank(gpu_uuid=MIG, pci_bus_id="0000:11:00.0")
    by_pod = rank(gpu_uuid=MIG, pod="p")

    assert joined([by_slot], gpus, node_proven=True) == [(None, "mig_uuid_unresolved")]
    assert joined([by_pod], gpus, node_proven=True) == [(None, "mig_uuid_unresolved")]


def test_pod_against_bus_id() -> None:
    """A rank whose bus id is another GPU's than its pod's has no GPU."""
    gpus = [gpu(0, 3, pod="p"), gpu(1, 3), gpu(1, 4)]
    mine = rank(gpu_uuid=MIG, pci_bus_id=gpu(1).pci_bus_id, pod="p")

    assert joined([mine], gpus, node_proven=True) == [(None, "mig_uuid_unresolved")]


def test_divided_gpu_is_no_ranks() -> None:
    """A rank that names the parent of several instances is on one of them, and nothing tells which."""
    gpus = [gpu(0), gpu(0, 3), gpu(0, 4)]

    assert joined([rank(gpu_uuid=UUIDS[0])], gpus) == [(None, "ambiguous")]


def test_only_instance() -> None:
    """Of a parent with one instance, the rank can only be on that."""
    assert joined([rank(gpu_uuid=UUIDS[0])], [gpu(0), gpu(0, 3)]) == [(GpuKey(UUIDS[0], 3), "uuid")]


def test_instance_that_is_not_there() -> None:
    """A GPU instance that the page lacks is not replaced by another."""
    assert joined([rank(gpu_uuid=UUIDS[0], gpu_instance=9)], [gpu(0, 3)], node_proven=True) == [
        (None, "uuid_not_on_page")
    ]


def test_uuids_in_visible_devices() -> None:
    """local_rank picks the UUID from the list, as launchers do."""
    devices = ",".join([UUIDS[5], UUIDS[4]])
    ranks = [rank(local, visible_devices=devices) for local in range(2)]

    assert joined(ranks, [gpu(4), gpu(5)]) == [(GpuKey(UUIDS[5]), "visible_uuid"), (GpuKey(UUIDS[4]), "visible_uuid")]


def test_own_uuid_before_visible_devices() -> None:
    """What the process says of its device beats the convention about local_rank."""
    mine = rank(0, gpu_uuid=UUIDS[1], visible_devices=f"{UUIDS[0]},{UUIDS[1]}")

    assert joined([mine], [gpu(0), gpu(1)]) == [(GpuKey(UUIDS[1]), "uuid")]


def test_visible_uuid_against_bus_id() -> None:
    """A rank whose bus id is another GPU's than the list and local_rank give has no GPU."""
    mine = rank(0, visible_devices=f"{UUIDS[0]},{UUIDS[1]}", pci_bus_id="00000000:11:00.0")

    assert joined([mine], [gpu(0), gpu(1)]) == [(None, "contradictory")]


@pytest.mark.parametrize("spelling", ["00000000:11:00.0", "0000:11:00.0", "11:00.0", "0000:11:00"])
def test_bus_id_on_a_proven_page(spelling: str) -> None:
    """A bus id in any spelling finds the GPU on the node's own page."""
    assert joined([rank(pci_bus_id=spelling)], [gpu(0), gpu(1)], node_proven=True) == [(GpuKey(UUIDS[1]), "pci_bus_id")]


def test_bus_id_on_an_unproven_page() -> None:
    """Every host has the same bus ids, so without proof there is no GPU."""
    assert joined([rank(pci_bus_id="00000000:11:00.0")], [gpu(0), gpu(1)]) == [(None, "page_unproven")]


def test_a_peers_uuid_proves_the_page() -> None:
    """One rank that finds its UUID proves the page for the others of the node."""
    ranks = [rank(0, gpu_uuid=UUIDS[0]), rank(1, pci_bus_id="00000000:11:00.0")]

    assert joined(ranks, [gpu(0), gpu(1)]) == [(GpuKey(UUIDS[0]), "uuid"), (GpuKey(UUIDS[1]), "pci_bus_id")]


def test_a_dead_peers_uuid_proves_nothing() -> None:
    """The proof is that of living ranks."""
    ranks = [rank(0, gpu_uuid=UUIDS[0], state=RankState.CRASHED), rank(1, pci_bus_id="00000000:11:00.0")]

    assert joined(ranks, [gpu(0), gpu(1)]) == [(None, "rank_gone"), (None, "page_unproven")]


def test_page_of_several_nodes_proves_nothing() -> None:
    """A federated page holds this node's GPUs and others' with the same bus ids."""
    gpus = [gpu(0), gpu(1), gpu(2, hostname="n2")]
    ranks = [rank(0, gpu_uuid=UUIDS[0]), rank(1, pci_bus_id="00000000:11:00.0")]

    assert joined(ranks, gpus, node_proven=True) == [(GpuKey(UUIDS[0]), "uuid"), (None, "page_unproven")]


def test_pushed_rank_may_be_of_another_node() -> None:
    """That the page is this node's proves nothing for a rank that pushed from elsewhere."""
    pushed = rank(0, source="push", node="n9", pci_bus_id="00000000:11:00.0")

    assert joined([pushed], [gpu(0), gpu(1)], node_proven=True) == [(None, "page_unproven")]


def test_pushed_ranks_prove_the_page_for_their_node() -> None:
    """A pushed rank that finds its UUID proves the page for others that name the same node, and for no ring."""
    ranks = [
        rank(0, source="push", node="n9", gpu_uuid=UUIDS[0]),
        rank(1, source="push", node="n9", pci_bus_id="00000000:11:00.0"),
        rank(2, node="n1", pci_bus_id="00000000:12:00.0"),
    ]

    assert joined(ranks, [gpu(0), gpu(1), gpu(2)]) == [
        (GpuKey(UUIDS[0]), "uuid"),
        (GpuKey(UUIDS[1]), "pci_bus_id"),
        (None, "page_unproven"),
    ]


def test_named_uuid_is_never_replaced() -> None:
    """A rank whose UUID is not on the page does not get the GPU with its bus id: that is another node's."""
    mine = rank(0, gpu_uuid=UUIDS[7], pci_bus_id="00000000:10:00.0")

    assert joined([mine], [gpu(0)]) == [(None, "page_of_other_node")]
    assert joined([mine], [gpu(0)], node_proven=True) == [(None, "uuid_not_on_page")]


def test_bus_id_that_no_gpu_has() -> None:
    """Where all GPUs tell their bus id, one that is not among them is not guessed by index."""
    mine = rank(0, pci_bus_id="00000000:99:00.0", visible_devices="0,1")

    assert joined([mine], [gpu(0), gpu(1)], node_proven=True) == [(None, "bus_id_not_on_page")]


def test_bus_id_twice_on_a_page() -> None:
    """Two GPUs with one bus id are of two nodes, whatever the page says."""
    twin = gpu(1, pci_bus_id=gpu(0).pci_bus_id)

    assert joined([rank(pci_bus_id=gpu(0).pci_bus_id)], [gpu(0), twin], node_proven=True) == [(None, "ambiguous")]


def test_index_where_all_gpus_are_visible() -> None:
    """A list of all the node's GPUs, in any order, has the node's indices; so has no list, one rank for each GPU."""
    gpus = [gpu(0, pci_bus_id=""), gpu(1, pci_bus_id="")]
    turned = [rank(local, visible_devices="1,0") for local in range(2)]
    unset = [rank(local, clock="cuda", local_world_size=2) for local in range(2)]

    assert joined(turned, gpus, node_proven=True) == [(GpuKey(UUIDS[1]), "gpu_index"), (GpuKey(UUIDS[0]), "gpu_index")]
    assert joined(unset, gpus, node_proven=True) == [(GpuKey(UUIDS[0]), "gpu_index"), (GpuKey(UUIDS[1]), "gpu_index")]


@pytest.mark.parametrize(
    "changes",
    [
        {"visible_devices": "0"},  # in a container the first visible GPU is 0, whichever it is
        {"visible_devices": "0,1"},
        {"clock": "cuda", "local_world_size": 2},
        {"gpu": 1},
        {"gpu": 1, "local_world_size": 2},
        {"visible_devices": "0,1,3", "local_rank": None},
        {"visible_devices": "0,1,3"},
    ],
)
def test_index_among_fewer_than_all(changes: dict[str, Any]) -> None:
    """A rank that sees some of the GPUs may count only those, so its index names none."""
    gpus = [gpu(index, pci_bus_id="") for index in range(3)]

    assert joined([rank(0, **changes)], gpus, node_proven=True) == [(None, "ambiguous")]


def test_index_among_different_models() -> None:
    """CUDA puts the fastest model first, NVML and DCGM go by the bus: the orders differ."""
    gpus = [gpu(0, pci_bus_id=""), gpu(1, pci_bus_id="", model="NVIDIA L4")]

    assert joined([rank(0, visible_devices="0,1")], gpus, node_proven=True) == [(None, "ambiguous")]


def test_index_with_a_missing_gpu() -> None:
    """When a GPU has fallen off the bus the page's indices and CUDA's no longer agree."""
    gpus = [gpu(0, pci_bus_id=""), gpu(2, pci_bus_id="")]

    assert joined([rank(0, visible_devices="0,1")], gpus, node_proven=True) == [(None, "ambiguous")]


def test_local_rank_alone_names_no_gpu() -> None:
    """Eight processes without CUDA on a node of eight GPUs are on none of them."""
    mine = rank(0, local_world_size=1, clock="host")

    assert joined([mine], [gpu(0)], node_proven=True) == [(None, "no_gpu_named")]


POD: dict[str, Any] = {"pod": "job-worker-0", "namespace": "ml"}


def test_pod_with_one_gpu_and_one_rank() -> None:
    """The only rank of a pod is on the pod's only GPU, here an instance."""
    gpus = [gpu(0, 3, **POD), gpu(0, 4, pod="other", namespace="ml")]

    assert joined([rank(**POD, container="trainer")], gpus, node_proven=True) == [(GpuKey(UUIDS[0], 3), "pod")]


def test_pod_with_as_many_ranks_as_gpus() -> None:
    """In a pod CUDA lists the GPUs in PCI order, so local_rank counts them."""
    gpus = [gpu(5, **POD), gpu(4, **POD), gpu(0)]
    ranks = [rank(local, **POD) for local in range(2)]

    assert joined(ranks, gpus, node_proven=True) == [(GpuKey(UUIDS[4]), "pod"), (GpuKey(UUIDS[5]), "pod")]


@pytest.mark.parametrize(
    ("rank_changes", "gpu_changes"),
    [
        ({"local_rank": 5}, {}),
        ({"visible_devices": "1,0"}, {}),
        ({}, {"model": ""}),
        ({}, {"pci_bus_id": ""}),
        ({"pod": "job-worker-1"}, {}),
    ],
)
def test_pod_in_doubtful_order(rank_changes: dict[str, Any], gpu_changes: dict[str, Any]) -> None:
    """Several GPUs of a pod are told apart only by a local_rank that counts all of them, in the plain order."""
    gpus = [gpu(5, **(POD | gpu_changes)), gpu(4, **(POD | gpu_changes)), gpu(0)]
    ranks = [rank(0, **(POD | rank_changes)), rank(1, **POD)]

    assert (None, "ambiguous") in joined(ranks, gpus, node_proven=True)
    assert "pod" not in [evidence for _, evidence in joined(ranks, gpus, node_proven=True)]


def test_pods_of_two_namespaces() -> None:
    """Pods of one name in two namespaces are two pods."""
    gpus = [gpu(0, pod="p", namespace="a"), gpu(1, pod="p", namespace="b")]

    assert joined([rank(pod="p", namespace="b")], gpus, node_proven=True) == [(GpuKey(UUIDS[1]), "pod")]


def test_pod_without_gpus() -> None:
    """A pod that the page does not know names no GPU."""
    assert joined([rank(pod="p", namespace="b")], [gpu(0)], node_proven=True) == [(None, "no_gpu_named")]


def test_two_ranks_that_name_one_gpu() -> None:
    """Two ranks on one GPU: one of them is wrong, and nothing tells which."""
    ranks = [rank(0, gpu_uuid=UUIDS[0]), rank(1, gpu_uuid=UUIDS[0]), rank(2, gpu_uuid=UUIDS[1])]

    assert joined(ranks, [gpu(0), gpu(1)]) == [
        (None, "gpu_claimed_twice"),
        (None, "gpu_claimed_twice"),
        (GpuKey(UUIDS[1]), "uuid"),
    ]


def test_declared_sharing() -> None:
    """Where sharing is declared, ranks that name one UUID all have it; one that only guesses has not."""
    ranks = [
        rank(0, gpu_uuid=UUIDS[0]),
        rank(1, visible_devices=UUIDS[0]),
        rank(2, pci_bus_id=gpu(0).pci_bus_id),
    ]

    assert joined(ranks, [gpu(0)], sharing=True) == [
        (GpuKey(UUIDS[0]), "uuid"),
        (GpuKey(UUIDS[0]), "visible_uuid"),
        (None, "gpu_claimed_twice"),
    ]


def test_stronger_evidence_wins() -> None:
    """A claim by bus id does not take the GPU from the rank that names its UUID."""
    ranks = [rank(0, pci_bus_id=gpu(0).pci_bus_id), rank(1, gpu_uuid=UUIDS[0])]

    assert joined(ranks, [gpu(0)]) == [(None, "gpu_claimed_twice"), (GpuKey(UUIDS[0]), "uuid")]


def test_gone_rank_frees_its_gpu() -> None:
    """A rank that is gone has no GPU, and does not stand in the way of its successor."""
    ranks = [rank(0, gpu_uuid=UUIDS[0], state=RankState.FINISHED), rank(1, gpu_uuid=UUIDS[0])]

    assert joined(ranks, [gpu(0)]) == [(None, "rank_gone"), (GpuKey(UUIDS[0]), "uuid")]


def test_hung_rank_is_alive() -> None:
    """A hung rank still holds its GPU, and its GPU is what one wants to see."""
    assert joined([rank(0, gpu_uuid=UUIDS[0], state=RankState.HUNG)], [gpu(0)]) == [(GpuKey(UUIDS[0]), "uuid")]


def test_no_gpus_at_all() -> None:
    """Without any GPU facts the reason is not the rank's."""
    assert joined([rank(0, gpu_uuid=UUIDS[0])], [], node_proven=True) == [(None, "no_gpu_facts")]


def test_nothing_to_match() -> None:
    """No ranks give no views."""
    assert match([], [gpu(0)], node_proven=True) == ()


def test_bus_id_of_a_log() -> None:
    """A rank that does not know its bus id is on the GPU that NCCL's log names; its own word counts first."""
    silent, knows = rank(0), rank(1, pci_bus_id="00000000:10:00.0")
    logged = {silent.key: "00000000:11:00.0", knows.key: "00000000:11:00.0"}
    views = match([silent, knows], [gpu(0), gpu(1)], node_proven=True, logged_bus_ids=logged)

    assert [(view.gpu.key.uuid if view.gpu else "", view.evidence) for view in views] == [
        (UUIDS[1], "nccl_bus_id"),
        (UUIDS[0], "pci_bus_id"),
    ]


def test_bus_id_of_a_log_needs_a_proven_page() -> None:
    """Bus ids repeat on every node."""
    (view,) = match([rank(0)], [gpu(0)], node_proven=False, logged_bus_ids={rank(0).key: "00000000:10:00.0"})

    assert (view.gpu, view.unmatched_reason) == (None, "page_unproven")
