"""A Hugging Face Trainer, evaluation and a checkpoint in the middle: ``transformers_job.py adapter|plain|twice``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

sys.path.append(str(Path(__file__).parents[1]))
from framework_jobs import RANKS, STEPS, Net


class Model(nn.Module):
    """With a loss, as the Trainer wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        output = self.net(x)
        return {"loss": output.square().mean(), "output": output}


def main(how: str) -> None:
    """One epoch."""
    callbacks: list[TrainerCallback] = []
    if how != "plain":
        from straggler.adapters.transformers import StragglerCallback

        callbacks.append(StragglerCallback())
    data: Any = [{"x": torch.randn(4)} for _ in range(STEPS * RANKS * 2)]
    trainer = Trainer(
        model=Model(),
        args=TrainingArguments(
            output_dir=os.environ["OUT"],
            use_cpu=True,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=2,
            num_train_epochs=1,
            eval_strategy="steps",
            eval_steps=STEPS // 2,
            save_strategy="steps",
            save_steps=STEPS // 3,
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
        ),
        train_dataset=data,
        eval_dataset=data[:RANKS],
        callbacks=callbacks,
    )
    for _ in range(2 if how == "twice" else 1):
        trainer.train()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort an interpreter that ends in order; that is not what is tested


if __name__ == "__main__":
    main(sys.argv[1])
