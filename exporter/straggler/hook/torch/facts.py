"""What PyTorch and the frameworks on it know about this rank. Nothing is imported and CUDA is never woken up for it.

Frameworks are asked only if they have been imported already (``sys.modules``), and their answers are taken as
hearsay: whatever they raise means that they do not know.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from straggler.hook.guard import attempt
from straggler.hook.torch import lasting

_PIPELINE_NAMES = ("pp", "pipe", "pipeline", "stage")


class Known(NamedTuple):
    """What ``StepTimer`` is told. Only what is known is in the dictionaries."""

    device: str
    """Type of the device that computes: ``cpu``, ``cuda`` (also AMD's), ``xpu``, ``mps``, …"""
    numbers: dict[str, Any]
    """``rank``, ``world_size``, ``peer_group``."""
    texts: dict[str, Any]
    """``framework``, ``gpu_uuid``, ``pci_bus_id``."""


def find(device: str = "") -> Known:
    """Ask everybody.

    Args:
        device: type of the device that ``backward`` began on: the one that computes, which with CPU offload the
            parameters' is not. Default: CUDA where it is in use.
    """
    numbers: dict[str, Any] = {}
    if dist.is_available() and dist.is_initialized():
        # An inherited RANK may be that of another launcher.
        numbers.update(rank=dist.get_rank(), world_size=dist.get_world_size())
    stage = None if os.environ.get("STRAGGLER_PEER_GROUP") else _stage()
    if stage is not None:
        numbers["peer_group"] = str(stage)
    in_use = torch.cuda.is_initialized()
    device = device or ("cuda" if in_use else "cpu")
    texts: dict[str, Any] = {"framework": f"torch {torch.__version__}"}
    if in_use:
        texts.update(_answer(_gpu) or {})
    return Known(device, numbers, texts)


def remember_mesh(mesh: Any) -> bool:
    """A device mesh was made; whether it has a pipeline dimension, and so tells the stage."""
    names = list(getattr(mesh, "mesh_dim_names", None) or ())
    coordinate = mesh.get_coordinate() if any(name in _PIPELINE_NAMES for name in names) else None
    for name in _PIPELINE_NAMES:
        if coordinate is not None and name in names:
            lasting.of_process.stage = int(coordinate[names.index(name)])
            return True
    return False


def _stage() -> int | None:
    """The pipeline stage of this rank; ``None`` if nobody knows of stages."""
    for ask in (_megatron, _device_mesh, _deepspeed):
        stage = _answer(ask)
        if stage is not None:
            return int(stage)
    return None


def _answer(ask: Callable[[], Any]) -> Any:
    answers: list[Any] = []
    attempt(lambda: answers.append(ask()))
    return answers[0] if answers else None


def _megatron() -> int | None:
    for name in ("megatron.core.parallel_state", "megatron.core.mpu", "megatron.mpu"):
        state = sys.modules.get(name)
        if state is None or not state.model_parallel_is_initialized():
            continue
        if state.get_pipeline_model_parallel_world_size() > 1:
            return int(state.get_pipeline_model_parallel_rank())
    return None


def _device_mesh() -> int | None:
    return lasting.of_process.stage


def _deepspeed() -> int | None:
    groups = sys.modules.get("deepspeed.utils.groups")
    grid = getattr(groups, "mpu", None)
    for question, size in (
        ("get_pipe_parallel_rank", "get_pipe_parallel_world_size"),
        ("get_pipeline_model_parallel_rank", "get_pipeline_model_parallel_world_size"),
    ):
        if hasattr(grid, question) and getattr(grid, size)() > 1:
            return int(getattr(grid, question)())
    return None


def _gpu() -> dict[str, str]:
    return gpu_texts(torch.cuda.get_device_properties(torch.cuda.current_device()))


def gpu_texts(properties: Any) -> dict[str, str]:
    """UUID and PCI address from the properties of the CUDA device in use, spelt as the driver's tools do.

    The device's own answer needs no mapping through ``CUDA_VISIBLE_DEVICES``. Under MIG the UUID is the instance's,
    which ``nvidia-smi -L`` writes with the prefix ``MIG-``; only the device's name tells the two apart. torch 2.1 knows
    neither: there the sidecar maps by index.
    """
    told: dict[str, str] = {}
    uuid = str(getattr(properties, "uuid", "") or "")
    if uuid and getattr(torch.version, "hip", None) is None:
        prefix = "MIG-" if " MIG " in properties.name else "GPU-"
        told["gpu_uuid"] = uuid if uuid.startswith(("GPU-", "MIG-")) else prefix + uuid
    if hasattr(properties, "pci_bus_id") and hasattr(properties, "pci_device_id"):
        domain = getattr(properties, "pci_domain_id", 0)
        told["pci_bus_id"] = f"{domain:08X}:{properties.pci_bus_id:02X}:{properties.pci_device_id:02X}.0"
    return told
