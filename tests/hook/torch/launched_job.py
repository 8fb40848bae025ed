"""A training script that knows nothing of us, as ``test_launched_jobs.py`` starts it: ``launched_job.py CASE``.

Compute is ``time.sleep``. Each case is a function; those that survive everything end in order.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DELAY = 0.100
STEPS = 12


class Net(nn.Module):
    """One layer; rank 1 is slow."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.005 + (DELAY if dist.get_rank() == 1 else 0.0))
        return self.linear(x)


def train(steps: int = STEPS, each: Callable[[nn.Module, int], None] = lambda _model, _step: None) -> None:
    """A loop as anybody writes it; ``each`` is called after each step."""
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        each(model, step)
    del model, optimizer
    gc.collect()  # gloo may abort an interpreter that ends with a model around


def in_a_thread() -> None:
    """Workers of Ray train in a thread that is not the main one."""
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()


def workers() -> None:
    """Loader workers, forked and spawned, which import torch and have the rank's whole environment."""
    for context in ("fork", "spawn"):
        data = [torch.randn(2, 4) for _ in range(STEPS // 2)]
        loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=1, multiprocessing_context=context)
        batches = iter(loader)
        train(len(data), lambda _model, _step, batches=batches: next(batches))  # type: ignore[misc]  # mypy wants no default


def broken_hooks() -> None:
    """Hooks of the user's that raise, which the loop survives, and a model that goes in the middle."""
    model = DistributedDataParallel(Net(), find_unused_parameters=True)

    def broken(*_: Any) -> None:
        raise ValueError("the user's hook")

    for register in (model.register_forward_pre_hook, model.register_forward_hook, model.register_full_backward_hook):
        handle = register(broken)
        try:
            model(torch.randn(3, 4)).sum().backward()
        except ValueError as error:
            sys.stdout.write(f"survived {error}\n")
        handle.remove()
    del model
    gc.collect()
    train()


def two_groups() -> None:
    """The process group is destroyed and made anew between two trainings."""
    train()
    dist.destroy_process_group()
    # torch itself hangs when it meets again in the store where it met before.
    store = Path(tempfile.gettempdir()) / f"meet-{os.environ['TORCHELASTIC_RUN_ID']}"
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    train()


def async_save() -> None:
    """A distributed checkpoint is written by a thread with collectives of its own, while training goes on."""
    from torch.distributed import checkpoint

    if not hasattr(checkpoint, "async_save"):  # torch 2.1
        train()
        return
    futures = []
    beside = dist.new_group()  # two threads must not mix their collectives in one group
    with tempfile.TemporaryDirectory() as directory:

        def save(model: nn.Module, step: int) -> None:
            if step == STEPS // 2:
                dist.barrier()
                writer = checkpoint.FileSystemWriter(Path(directory) / "dcp")
                futures.append(checkpoint.async_save(model.state_dict(), storage_writer=writer, process_group=beside))

        train(each=save)
        for future in futures:
            future.result()
        dist.barrier()


def trials() -> None:
    """One after the other."""
    workers()
    broken_hooks()
    async_save()
    two_groups()


def at_the_last_step(end: Callable[[], Any]) -> None:
    """Rank 1 ends in some way; the other goes on until it is told to stop."""
    train(5)
    if dist.get_rank() == 1:
        end()
    time.sleep(60)


def raises() -> None:
    """What nobody catches."""
    raise RuntimeError("the user's error")


ENDS: dict[str, Callable[[], Any]] = {
    "exits": lambda: sys.exit(3),
    "os_exit": lambda: os._exit(4),
    "raises": raises,
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "terminated": lambda: os.kill(os.getpid(), signal.SIGTERM),
}


def spawned(rank: int, store: str) -> None:
    """A rank that was told its number by an argument."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    train()
    dist.destroy_process_group()


def main(case: str) -> None:
    """Run one case."""
    torch.set_num_threads(1)
    if case == "spawn":
        with tempfile.TemporaryDirectory() as directory:
            torch.multiprocessing.spawn(spawned, (f"{directory}/store",), nprocs=2)
        return
    dist.init_process_group("gloo")
    if case in ENDS:
        at_the_last_step(ENDS[case])
    else:
        globals()[case]()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
