"""A training job for torchrun, of many cases, each of which is a run of its own.

Compute is ``time.sleep``, since real layers of four ranks would fight for two cores. One rank is held up by ``DELAY``
(30 ms, unless the environment says otherwise) in one place of the step. Run by ``torch_jobs.py``:

    torchrun --standalone --nproc-per-node=4 training_job.py OUT CASE [CASE ...]

A case is ``wrap:mode:place``, e.g. ``ddp:plain:forward``; ``torch_cases.py`` has them all. At its end each rank says
in ``OUT/<number of the case>.rank<R>.json`` what its ring holds, and waits for ``OUT/<number>.seen``.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
import straggler.torch
from straggler.hook.torch import install
from torch_rings import records

straggler.torch.instrument()

import torch  # noqa: E402 - instrumented first, as a training script would have it
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from straggler.wire import layout  # noqa: E402
from straggler.wire.records import StepRecord  # noqa: E402

DELAY = float(os.environ.get("DELAY", "0.030"))
PIECE = 0.0025
STEPS = 36
"""In a case: more than the 32 that the page's window holds at least."""
SETTLING = 4
SLOW_RANK = 2
LAYERS = 4


class Place:
    """Where the slow rank is slow."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.is_slow = dist.get_rank() == SLOW_RANK
        self._lost: list[float] = []

    def here(self, name: str) -> None:
        """Be slow if this is the place."""
        if self.is_slow and name == self._name:
            began = time.monotonic()
            time.sleep(DELAY)
            self._lost.append(time.monotonic() - began)

    @property
    def delays(self) -> int:
        """How often it was held up."""
        return len(self._lost)

    def delay(self) -> float:
        """By what a step was held up, in seconds: a sleep takes longer than asked for where the machine is busy."""
        return statistics.median(self._lost) * round(len(self._lost) / STEPS) if self._lost else 0.0


class SleepBackward(torch.autograd.Function):
    """Passes everything on; its backward takes time."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: int, place: Place) -> torch.Tensor:
        ctx.layer, ctx.place = layer, place
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        time.sleep(PIECE)
        if ctx.layer == LAYERS - 1:
            ctx.place.here("first_backward")
        if ctx.layer == 0:
            ctx.place.here("last_backward")
        return gradient, None, None


class Layer(nn.Module):
    """One layer that sleeps both ways."""

    def __init__(self, layer: int, place: Place) -> None:
        super().__init__()
        self.layer, self.place = layer, place
        self.linear = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(PIECE)
        # The layer's own parameters come after the sleep in backward.
        return torch.relu(SleepBackward.apply(self.linear(x), self.layer, self.place))


class Net(nn.Module):
    """A few layers, with what the mode asks for."""

    def __init__(self, mode: str, place: Place) -> None:
        super().__init__()
        self.mode, self.place = mode, place
        self.micro = 0
        self.layers = nn.ModuleList(Layer(layer, place) for layer in range(LAYERS))
        self.norm = nn.BatchNorm1d(32) if mode == "batchnorm" else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.mode != "accumulate" or self.micro % 4 == 0:
            self.place.here("forward")
        self.micro += 1
        for layer in self.layers:
            if self.mode in ("reentrant", "nonreentrant"):
                x = checkpoint(layer, x, use_reentrant=self.mode == "reentrant")
            else:
                x = layer(x)
        return self.norm(x)


class SlowAdamW(torch.optim.AdamW):
    """An optimizer with a place to be slow in; calling ``super().step`` fires torch's hooks twice."""

    place: Place

    def step(self, closure: Any = None) -> Any:
        self.place.here("optimizer")
        return super().step(closure)


class Batches(torch.utils.data.IterableDataset[torch.Tensor]):
    """Endless batches, slow on the slow rank."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            self.place.here("data")
            yield torch.randn(4, 32)


def wrapped(wrap: str, mode: str, net: Net) -> nn.Module:
    """The model as the case wants it."""
    if wrap == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in (net.layers[0], net.layers[-1]):  # more would be more collectives, which are slow on the CPU
            if mode == "layercompile":  # before it is sharded, as most do
                layer.compile(backend="eager")
            fully_shard(layer, mesh=mesh)
        sharded: nn.Module = fully_shard(net, mesh=mesh)
        return torch.compile(sharded, backend="eager") if mode.startswith("compile") else sharded
    if wrap == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        return FullyShardedDataParallel(
            net, auto_wrap_policy=ModuleWrapPolicy({Layer}), device_id=torch.device("cpu"), use_orig_params=True
        )
    model: nn.Module = nn.parallel.DistributedDataParallel(
        net, static_graph=mode == "static", find_unused_parameters=mode == "unused"
    )
    if mode == "commhook":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        model.register_comm_hook(None, fp16_compress_hook)
    if mode == "compile":
        return torch.compile(model, backend="eager")
    return model


def train(wrap: str, mode: str, where: str) -> Place:  # noqa: C901 - one branch for each kind of case
    """One case: ``STEPS`` steps. Returns where this rank was held up."""
    place = Place(where)
    model = wrapped(wrap, mode, Net(mode, place))
    SlowAdamW.place = place
    if mode == "zero":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        optimizer: Any = ZeroRedundancyOptimizer(model.parameters(), SlowAdamW, lr=1e-4)
    else:
        optimizer = SlowAdamW(model.parameters(), lr=1e-4)
    batches = iter(torch.utils.data.DataLoader(Batches(place), batch_size=None))
    scaler = _scaler(wrap) if mode == "scaler" else None
    saver = threading.Thread(target=_save_together, args=(dist.new_group(),)) if mode == "asyncsave" else None
    if saver is not None:
        saver.start()

    def loss_of(batch: torch.Tensor) -> torch.Tensor:
        return model(batch.requires_grad_()).square().mean()

    def backward() -> torch.Tensor:
        loss = loss_of(next(batches))
        with _compiled_backward() if mode == "compileautograd" else contextlib.nullcontext():
            (loss if scaler is None else scaler.scale(loss)).backward()
        return loss

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = backward()
        place.here("between")
        return loss

    for step in range(STEPS):
        if mode == "closure":
            optimizer.step(closure)
            continue
        for _ in range(3 if mode == "accumulate" else 0):
            if wrap == "fsdp2":
                model.set_requires_gradient_sync(False)
                backward()
                model.set_requires_gradient_sync(True)
                continue
            with model.no_sync():
                backward()
        loss = backward()
        place.here("between")
        if mode == "allreduce":
            dist.all_reduce(loss.detach())
        if mode == "clip":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if scaler is None:
            optimizer.step()
        else:
            _scaled_step(scaler, optimizer, model, overflows=step % 5 == 3)
        optimizer.zero_grad()
        place.here("after")
    if saver is not None:
        saver.join()
    return place


def train_gan(where: str) -> Place:
    """Two models, two optimizers, two backwards in an iteration."""
    place = Place(where)
    nets = [nn.parallel.DistributedDataParallel(Net("plain", place)) for _ in range(2)]
    optimizers = [torch.optim.SGD(net.parameters(), lr=1e-4) for net in nets]
    for _ in range(STEPS):
        for net, optimizer in zip(nets, optimizers, strict=True):
            optimizer.zero_grad()
            net(torch.randn(4, 32)).square().mean().backward()
            optimizer.step()
    return place


def _compiled_backward() -> Any:
    from torch._dynamo import compiled_autograd

    return compiled_autograd._enable(torch.compile(backend="eager"))


def _scaler(wrap: str) -> Any:
    if wrap == "fsdp1":
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

        return ShardedGradScaler("cpu", init_scale=2.0)
    return torch.amp.GradScaler("cpu", init_scale=2.0)


def _scaled_step(scaler: Any, optimizer: Any, model: nn.Module, *, overflows: bool) -> None:
    if overflows:  # the optimizer will be skipped
        next(iter(model.parameters())).grad.fill_(float("inf"))
    scaler.step(optimizer)
    scaler.update()


def _save_together(group: Any) -> None:
    """A checkpoint in the background, with collectives that wait long, about as long as the case lasts."""
    for _ in range(STEPS):
        if dist.get_rank() != SLOW_RANK:
            time.sleep(0.05)
        dist.all_reduce(torch.ones(1), group=group)


def pipeline(mode: str, where: str) -> Place:
    """Two stages with send and receive, two data-parallel replicas: ranks 0, 1 are stage 0, and 2, 3 stage 1."""
    place, rank = Place(where), dist.get_rank()
    stage, peer = rank // 2, (rank + 2) % 4
    model = nn.parallel.DistributedDataParallel(Net(mode, place), process_group=_stage_group(stage))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(STEPS):
        if stage == 0:
            output = model(torch.randn(4, 32))
            dist.send(output.detach(), peer)
            gradient = torch.empty_like(output)
            dist.recv(gradient, peer)
            output.backward(gradient)
        else:
            received = torch.empty(4, 32)
            dist.recv(received, peer)
            received.requires_grad_()
            model(received).square().mean().backward()
            dist.send(received.grad, peer)
        optimizer.step()
        optimizer.zero_grad()
    return place


def _stage_group(stage: int) -> Any:
    try:
        from torch.distributed.device_mesh import init_device_mesh
    except ImportError:  # torch 2.1
        return [dist.new_group([0, 1]), dist.new_group([2, 3])][stage]
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp")).get_group("dp")


def told(steps: list[StepRecord], place: Place) -> dict[str, Any]:
    """What a rank says of a case, for what no page tells. In seconds."""
    settled = steps[SETTLING:]

    def typical(what: Callable[[StepRecord], int]) -> float:
        return statistics.median(map(what, settled)) / 1e9 if settled else 0.0

    return {
        "arrivals": settled[-1].arrivals - settled[0].arrivals if settled else 0,
        "steps": len(settled),
        "phases": {
            name: typical(lambda step, index=index: step.phase_ns[index])  # type: ignore[misc] # mypy wants no default
            for index, name in enumerate(layout.PHASES)
        },
        "delay": place.delay(),
        "delays": place.delays,
        "all_steps": len(steps),
        "iterations": STEPS,
    }


def run(case: str) -> Place:
    """Train as a case wants it. Returns where this rank was held up."""
    wrap, mode, where = case.split(":")
    if wrap == "pipeline":
        return pipeline(mode, where)
    return train_gan(where) if mode == "gan" else train(wrap, mode, where)


def own_ring() -> list[StepRecord]:
    """What this rank has written about the run."""
    instrument = install.current()
    timer = None if instrument is None else instrument.tracker.timer
    return records(timer.ring_path, 0) if timer is not None and timer.ring_path else []


def wait_for(file: Path, torchrun: int) -> None:
    """Wait until whoever runs the job has seen the page; with him gone, or torchrun, our parent, there is nobody."""
    runner = Path("/proc", os.environ["RUNNER"])
    while not file.exists():
        if os.getppid() != torchrun or not runner.exists():
            os._exit(1)
        time.sleep(0.02)


def main(out: Path, cases: list[str]) -> None:
    """Run the cases one after the other."""
    torchrun = os.getppid()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for number, case in enumerate(cases):
        os.environ["STRAGGLER_RUN"] = case
        straggler.torch.instrument()  # for the first case it has been put in already
        dist.barrier()
        place = run(case)
        gc.collect()
        saying = out / f"{number}.rank{dist.get_rank()}"
        saying.write_text(json.dumps(told(own_ring(), place)))
        saying.rename(f"{saying}.json")  # whole as soon as it is there
        wait_for(out / f"{number}.seen", torchrun)
        straggler.torch.stop()
    dist.barrier()
    gc.collect()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort an interpreter that ends in order; that is not what is tested


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
