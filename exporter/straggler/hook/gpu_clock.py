"""Whether a GPU computes behind the host's back.

On a GPU the host's clock sees kernels being launched, not run: a phase ``wait`` around a collective of NCCL ends before
the collective begins. Own time taken by that clock would be a lie, so there is none, unless the loop says that it
synchronizes at the end of each phase.
"""

from __future__ import annotations

import os

_DEVICES = ("/dev/nvidia", "/dev/kfd")
_NOT_DEVICES = ("/dev/nvidiactl", "/dev/nvidia-")
"""Opened by whoever only asks how many GPUs there are (and ``nvidia-uvm``, ``nvidia-caps``)."""


def gpu_is_open(descriptors: str = "/proc/self/fd") -> bool:
    """Whether this process has a GPU's device file open, as every CUDA or ROCm context does.

    Reads link names only, so no file system is touched; without ``/proc`` the answer is no. About 1 us a descriptor.
    """
    try:
        numbers = os.listdir(descriptors)  # noqa: PTH208 - pathlib costs 5 ms of import
    except OSError:
        return False
    return any(_is_gpu(f"{descriptors}/{number}") for number in numbers)


def _is_gpu(link: str) -> bool:
    try:
        target = os.readlink(link)  # noqa: PTH115 - as above
    except OSError:
        return False  # closed in the meantime
    return target.startswith(_DEVICES) and not target.startswith(_NOT_DEVICES)
