"""Accelerate: ``accelerator = watch(Accelerator())``, before ``prepare``."""

from __future__ import annotations

from typing import TypeVar

from accelerate import Accelerator

from straggler.hook.torch import install

A = TypeVar("A", bound=Accelerator)


def watch(accelerator: A) -> A:
    """Measure each rank's own time until ``accelerator.end_training()``, which says that the rank has finished.

    ``save_state`` and ``save_model`` are in the phase ``checkpoint`` as a whole.

    Args:
        accelerator: whose ``prepare`` has not been called yet.

    Returns:
        The same one.
    """
    instrument = install.start()
    for name in ("save_state", "save_model"):
        instrument.watch_checkpoint(type(accelerator), name)
    end_training = accelerator.end_training

    def end() -> None:
        install.stop()
        end_training()

    accelerator.end_training = end
    return accelerator
