"""Lightning with its own launcher, validation and a checkpoint in the middle: ``adapter``, ``plain`` or ``twice``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

sys.path.append(str(Path(__file__).parents[1]))
from framework_jobs import RANKS, STEPS, Net


class Module(LightningModule):
    """A few lines, as anybody has them."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def training_step(self, batch: Any, _index: int) -> Any:
        return self.net(batch).square().mean()

    def validation_step(self, batch: Any, _index: int) -> None:
        self.net(batch)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters())


def main(how: str) -> None:
    """One epoch."""
    callbacks: list[Callback] = [ModelCheckpoint(dirpath=os.environ["OUT"], every_n_train_steps=STEPS // 2)]
    if how != "plain":
        from straggler.adapters.lightning import StragglerCallback

        callbacks.append(StragglerCallback())
    data = torch.utils.data.DataLoader(torch.randn(STEPS * RANKS, 4), batch_size=1)
    for _ in range(2 if how == "twice" else 1):
        trainer = Trainer(
            accelerator="cpu",
            devices=RANKS,
            strategy="ddp",
            max_epochs=1,
            val_check_interval=STEPS // 2,
            limit_val_batches=1,
            num_sanity_val_steps=1,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=callbacks,
        )
        trainer.fit(Module(), data, data)
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort an interpreter that ends in order; that is not what is tested


if __name__ == "__main__":
    main(sys.argv[1])
