"""Kinds of ``NCCL WARN`` lines. The first that fits counts. Pure.

Sources: NVIDIA/nccl, the WARN() calls of transport/net_ib*, misc/{socket,ibvwrap,cudawrap,nvmlwrap,shmutils}.cc,
init.cc, bootstrap.cc and proxy.cc at v2.10 to v2.30; aws/aws-ofi-nccl.
"""

from __future__ import annotations

import re
from typing import Final

KINDS: Final = (
    # NET/IB : Got completion from peer 192.0.2.9<55921> with status=12 opcode=1 len=0 vendor err 129 (Send)     (v2.18)
    # NET/IB : Got completion with error 4, opcode 8983, len 0, vendor err 81                                    (v2.10)
    # NET/OFI Request 0x7f.. completed with error. RC: 110. Error: Connection timed out                   (aws-ofi-nccl)
    ("net_completion", re.compile(r"Got completion |completed with error", re.IGNORECASE)),
    # NET/IB : mlx5_0:1 Got async event : port error                                                        (v2.4 on)
    ("net_async_event", re.compile(r"async (?:fatal )?event", re.IGNORECASE)),
    # NET/IB: socketProgress: Connection closed by remote peer job-worker-3.headless<41000>                  (v2.14 on)
    # Net : Call to recv from 192.0.2.7<41000> failed : Connection reset by peer                             (v2.8)
    ("remote_closed", re.compile(r"closed by (?:remote )?peer|Connection reset by peer|Broken pipe", re.IGNORECASE)),
    # Call to ibv_modify_qp failed with error Connection timed out                                           (v2.8 on)
    # NET/IB : Unable to open device mlx5_3                                                                  (v2.4 on)
    ("net_setup", re.compile(r"\bibv_|\bNET/\w{1,32} ?: ?(?:Unable|No |Invalid|Could not)|\bGID\b|\bfi_\w+")),
    # Cuda failure 2 'out of memory'                                                                         (v2.18 on)
    # nvmlDeviceGetHandleByPciBusId() failed: Not Found                                                      (v2.14 on)
    ("cuda", re.compile(r"C(?:UDA|uda) (?:failure|error|driver)|\bcu(?:da)?[A-Z]\w+|\bnvml[A-Z]\w+")),
    # Error while creating shared memory segment /dev/shm/nccl-Vpq2kN (size 9637888)        (v2.14 on)
    # Error: failed to extend /dev/shm/nccl-Vpq2kN to 5967876 bytes; Failed to CUDA host alloc 4096 bytes    (v2.10 on)
    (
        "memory",
        re.compile(
            r"shared memory|/dev/shm/|No space left|Failed to (?:CUDA (?:host )?)?[mc]?alloc|Cannot allocate memory|"
            r"posix_fallocate"
        ),
    ),
    # Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000                                   (v2.8 on)
    # Mismatched NCCL version detected : rank 0 version 22105 rank 1 version 22203 …                         (v2.4 on)
    # Missing "iommu=pt" from kernel command line …; NUMA auto balancing enabled …                         (RCCL)
    (
        "configuration",
        re.compile(
            r"Mismatch|Duplicate GPU|Invalid (?:argument|config|usage|rank)|set by environment|\biommu=|\bNUMA "
        ),
    ),
    # [Proxy Service 3] Failed to execute operation Connect from rank 3, retcode 3                           (v2.12 on)
    ("proxy", re.compile(r"\bProxy\b|\[Service thread\]", re.IGNORECASE)),
    # socketFinalizeAccept: wrong type 4 != 3                                                                (v2.15 on)
    # Call to connect to 192.0.2.7<41000> failed : Connection refused; Bootstrap : no socket interface found (v2.8 on)
    ("socket", re.compile(r"socket|Call to (?:connect|accept|bind|recv|send|poll)|Connection (?:refused|timed out)")),
)
"""``model.nccl.WARNING_KINDS`` but ``other``, each with what tells it."""

_MAX_CHARACTERS: Final = 400


def kind_of(text: str) -> str:
    """The kind of a warning.

    Args:
        text: what stands after ``NCCL WARN``.
    """
    text = text[:_MAX_CHARACTERS]
    return next((kind for kind, pattern in KINDS if pattern.search(text)), "other")
