"""Training loops as anybody writes them, for tests of the PyTorch hook in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


def train(model: nn.Module, steps: int = 4, optimizer: torch.optim.Optimizer | None = None) -> None:
    """Some steps of a model with four inputs; by default with an optimizer of their own."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def loop_with_a_compiled_collective() -> Callable[[], None]:
    """A loop of three steps, whose collective is inside a graph that is compiled when it first runs."""
    net = nn.Linear(4, 4)

    def reduced(x: torch.Tensor) -> Any:
        from torch.distributed import _functional_collectives as functional

        return functional.all_reduce(x, "sum", dist.group.WORLD)

    compiled = torch.compile(reduced, backend="eager", fullgraph=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def loop() -> None:
        for _ in range(3):
            net(compiled(torch.randn(3, 4))).sum().backward()
            optimizer.step()

    return loop
