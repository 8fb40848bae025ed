"""What NCCL's log says about one rank: how it reaches its peers.

NCCL writes it once, when a communicator is made, and warnings later. A straggler, and a rank that hangs, may write
nothing at all: a log without a complaint is no proof of health.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

TRANSPORTS: Final = (
    "p2p",  # NVLink or PCIe, GPU to GPU
    "shm",  # the host's memory: GPUs that cannot reach each other
    "ib",  # InfiniBand or RoCE, by NCCL itself or a plugin (IBext)
    "libfabric",  # AWS EFA and whatever else OFI reaches
    "socket",  # TCP
    "collnet",  # reduced in the switch (SHARP)
    "other",  # another plugin's
)
"""All values of the label ``transport``."""

WARNING_KINDS: Final = (
    "net_completion",  # a NIC gave work back with an error: retries exceeded, a peer that is gone, a bad link
    "net_async_event",  # the NIC itself reported an event: port down, device fatal, wrong GID
    "net_setup",  # a queue pair, memory region or GID could not be made
    "remote_closed",  # a peer closed its connection: look at the peer's log, the cause is there
    "socket",  # a TCP call failed: connect, accept, timeout
    "cuda",  # a CUDA or NVML call failed
    "memory",  # shared memory or memory could not be had
    "configuration",  # mismatched or invalid settings, versions or arguments
    "proxy",  # the proxy thread failed
    "other",
)
"""All values of the label ``kind``: the families of ``NCCL WARN`` lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclFacts:
    """One rank's communicator with the most ranks, and what its process logged besides.

    ``None`` and ``""`` mean that the log does not say, never no or zero: a log may begin late, end early or lack
    subsystems.
    """

    host: str
    """As NCCL writes it: the host's name up to its first dot (under Kubernetes the pod's); ``""`` where lines carry
    none."""
    pid: int | None
    """In the process's own PID namespace."""
    rank: int | None = None
    """In the communicator: the global rank only if that has all ranks of the run. ``None`` where the log names none."""
    nranks: int | None = None
    """Of the communicator."""
    pci_bus_id: str = ""
    """Normal; of the rank's GPU."""
    version: str = ""
    """E.g. ``2.21.5``."""
    cuda_version: str = ""
    """That NCCL was built for, e.g. ``12.4``."""
    network: str = ""
    """What NCCL says it uses between nodes, by its own name: ``IB``, ``Socket``, ``IBext_v8``, ``AWS Libfabric``."""
    channels: Mapping[str, int] = field(default_factory=dict)
    """How many channels use each of ``TRANSPORTS`` for at least one of the rank's connections, over all its living
    communicators; only those in use."""
    gdr_ratio: float | None = None
    """Share of the network channels on which the rank receives that end in GPU memory (GPUDirect RDMA). Receiving only:
    NCCL does not send that way on many platforms by its own choice."""
    gdr_disabled: tuple[str, ...] = ()
    """Adapters for which NCCL said that GPUDirect RDMA is off."""
    rdma_devices: tuple[str, ...] = ()
    """Adapters that NCCL found, e.g. ``mlx5_0:1``, whether or not it uses them."""
    no_rdma_device: bool = False
    """Whether NCCL looked for adapters and said that there is none."""
    nvls: bool | None = None
    """Whether NVLink SHARP is in use: it made channels of that kind, or said that it cannot."""
    rings: int | None = None
    trees: int | None = None
    is_complete: bool = False
    """Whether the communicator's making was seen to end."""
    warnings: Mapping[str, int] = field(default_factory=dict)
    """``NCCL WARN`` lines of the process since the log was first read, by ``WARNING_KINDS``."""
    written: float | None = None
    """When the log last grew, in seconds since the epoch."""
    uid: int | None = None
    """Who owns the log."""
    path: str = ""
    """The log, for people."""
    directory: str | None = None
    """As ``RankFacts.directory``, where the log lies below the ring directory; ``None`` elsewhere."""
