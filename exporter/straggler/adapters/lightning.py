"""Lightning: ``Trainer(callbacks=[StragglerCallback()])``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from straggler.hook.torch import install

if TYPE_CHECKING or "pytorch_lightning" not in sys.modules or "lightning" in sys.modules:
    from lightning.pytorch.callbacks import Callback
else:  # the same library under its other name; a trainer takes callbacks of its own one only
    from pytorch_lightning.callbacks import Callback


class StragglerCallback(Callback):  # type: ignore[misc]  # unknown where Lightning is not installed
    """Measures each rank's own time from the first to the last step of ``fit``.

    Validation, and what a checkpoint takes besides ``torch.save`` (gathering it, writing it to its place), are in the
    phases ``eval`` and ``checkpoint``. At the end of ``fit`` the rank is said to have finished; the next ``fit`` is
    measured anew. Make it before the model is compiled.
    """

    def __init__(self) -> None:
        super().__init__()
        install.start()

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Also in processes that the trainer has spawned, and before the model is wrapped."""
        del pl_module
        if stage == "fit":
            install.start().watch_checkpoint(type(trainer), "save_checkpoint")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Lightning goes back to training without ``train()``."""
        del trainer, pl_module
        instrument = install.current()
        if instrument is not None:
            instrument.evaluation_ends()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The rank has finished; evaluating goes on unmeasured."""
        del trainer, pl_module
        install.stop()
