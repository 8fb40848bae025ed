"""How a GPU was found, and why none was: the values of the labels ``evidence`` and ``reason``."""

from __future__ import annotations

from typing import Final

EVIDENCE: Final = (
    "uuid",  # the rank names its GPU's UUID, or its MIG instance
    "visible_uuid",  # CUDA_VISIBLE_DEVICES lists UUIDs, and local_rank says which
    "pci_bus_id",
    "nccl_bus_id",  # the rank does not know its bus id, and NCCL's log does
    "gpu_index",  # the index on the node, where the rank can see all of the node's GPUs
    "pod",
)
"""Strongest first. The first two hold anywhere; the others only where the page is proven to be of the rank's node."""

UNMATCHED: Final = (
    "rank_gone",  # the process is not alive: its GPU may be another's by now
    "no_gpu_facts",  # no source told of any GPU
    "no_gpu_named",  # the rank knows nothing of its GPU: a CPU run, or a hook without CUDA
    "uuid_not_on_page",  # the rank's GPU is not among those of its node: off the bus, or not exported
    "bus_id_not_on_page",  # the same, known by its bus id
    "mig_uuid_unresolved",  # only NVML, or the exporter's dra_mig_device_uuid, knows which instance a MIG UUID is
    "page_of_other_node",  # the rank's GPU is not on the page, and no other of its node's is
    "page_unproven",  # only bus id, index or pod are known, and the page may be of another node, where they repeat
    "gpu_claimed_twice",  # two ranks name one GPU, and sharing is not declared
    "contradictory",  # two pieces of evidence lead to different GPUs
    "ambiguous",  # several GPUs fit
)
