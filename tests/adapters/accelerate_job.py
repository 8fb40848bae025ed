"""A loop with Accelerate, evaluation and a checkpoint in the middle: ``accelerate_job.py adapter|plain``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from accelerate import Accelerator

sys.path.append(str(Path(__file__).parents[1]))
from framework_jobs import RANKS, STEPS, Net


def main(how: str) -> None:
    """One epoch, with two batches a step."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    if how == "adapter":
        from straggler.adapters.accelerate import watch

        accelerator = watch(accelerator)
    net = Net()
    data = torch.utils.data.DataLoader(torch.randn(STEPS * RANKS * 2, 4), batch_size=1)
    model, optimizer, loader = accelerator.prepare(net, torch.optim.AdamW(net.parameters()), data)
    for index, batch in enumerate(loader):
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).square().mean())
            optimizer.step()
            optimizer.zero_grad()
        if index == STEPS:
            model.eval()
            with torch.no_grad():
                model(batch)
            model.train()
            accelerator.save_state(f"{os.environ['OUT']}/state")
    accelerator.end_training()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort an interpreter that ends in order; that is not what is tested


if __name__ == "__main__":
    main(sys.argv[1])
