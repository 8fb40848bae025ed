"""PyTorch: ``straggler.torch.instrument()`` measures each rank's own time in a training loop that stays as it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

__all__ = ["Instrumented", "add", "instrument", "stop"]


class Instrumented(NamedTuple):
    """What ``instrument`` was given, as it is to be used from then on."""

    model: torch.nn.Module | None
    optimizer: Any
    loader: Any


def instrument(
    model: torch.nn.Module | None = None, optimizer: Any = None, loader: Iterable[Any] | None = None
) -> Instrumented:
    """Measure every optimizer step of this process from now on, and publish it for the sidecar.

    Call it once, early: before the model is wrapped or compiled. Without arguments it sees DistributedDataParallel,
    FSDP, every ``torch.optim`` optimizer and every torch ``DataLoader`` by itself. It replaces functions of torch
    (docs/pytorch.md lists them), changes no model, registers no communication hook, never synchronizes with a GPU and
    never raises; where it fails it says so once and takes itself out.

    Args:
        model: a plain model, whose forward is to be a phase of its own.
        optimizer: something with a ``step`` method that is no ``torch.optim.Optimizer``.
        loader: an iterable that is no torch ``DataLoader``; use the one in the result.

    Returns:
        The three arguments; ``loader`` is wrapped if it needs to be.
    """
    from straggler.hook.torch.install import start  # noqa: PLC0415 - imports torch

    instrument_of_process = start()
    if model is not None:
        instrument_of_process.watch_model(model)
    if optimizer is not None:
        instrument_of_process.watch_optimizer(optimizer)
    return Instrumented(model, optimizer, instrument_of_process.watch_loader(loader))


def add(
    *,
    tokens: float | None = None,
    samples: float | None = None,
    flops: float | None = None,
    allreduce_bytes: float | None = None,
) -> None:
    """Say what the step that runs has done, as often as it is known: amounts add up. Plain numbers, no tensors.

    From the thread that trains; before the first optimizer step nothing is counted. What is said here goes before what
    ``STRAGGLER_TOKENS``, ``STRAGGLER_SAMPLES`` and ``STRAGGLER_FLOPS_…`` say of the same step.

    Args:
        tokens: trained on by this rank.
        samples: likewise.
        flops: floating point operations of the model on this rank, without recomputation.
        allreduce_bytes: given to all-reduce, beside the gradients of a DistributedDataParallel, which are seen.
    """
    from straggler.hook.torch.install import current  # noqa: PLC0415 - imports torch

    instrument_of_process = current()
    if instrument_of_process is not None:
        instrument_of_process.throughput.add(
            {"tokens": tokens, "samples": samples, "flops": flops, "allreduce_bytes": allreduce_bytes}
        )


def stop() -> None:
    """Say goodbye in the ring and take every patch back; what is running ends unmeasured.

    Not inside a hook of torch's. docs/pytorch.md says what a later ``instrument`` knows.
    """
    from straggler.hook.torch.install import stop as stop_instrument  # noqa: PLC0415 - imports torch

    stop_instrument()
