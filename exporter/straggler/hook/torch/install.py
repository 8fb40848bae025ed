"""Puts the instrument in: once per process, whoever asks first."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from straggler.hook import StepTimer
from straggler.hook.guard import guarded
from straggler.hook.torch import (
    boundaries,
    evaluation,
    fsdp,
    functional,
    graphs,
    late,
    patches,
    phases,
    waits,
)
from straggler.hook.torch.profiler import Profiler
from straggler.hook.torch.throughput import Throughput
from straggler.hook.torch.tracker import Tracker


class Instrument:
    """The instrument of this process. Nothing that it does raises."""

    def __init__(self, make_timer: Callable[..., StepTimer] = StepTimer) -> None:
        self.tracker = Tracker(make_timer)
        self.fail = self.tracker.fail
        self._evaluation = evaluation.Evaluation(self.tracker)
        self._reducers = waits.Reducers()
        self.throughput = Throughput(self.tracker, os.environ)
        self.profiler = Profiler(self.tracker, os.environ)
        self._install()

    @guarded
    def _install(self) -> None:
        tracker = self.tracker
        waits.install(tracker, self._reducers, self.watch_model)
        boundaries.install(tracker)
        phases.install(tracker)
        evaluation.install(self._evaluation)
        functional.install(tracker)
        fsdp.install(tracker)
        graphs.install(tracker)
        late.when_imported(tracker, "torch.distributed.device_mesh", _watch_meshes)
        self._install_extras()

    def _install_extras(self) -> None:
        tracker, throughput = self.tracker, self.throughput
        if throughput.wants_batches:
            tracker.on_batch = throughput.saw_batch
        tracker.on_reduction = throughput.reduces
        self._evaluation.on_forward = throughput.runs_forward
        tracker.amounts = throughput.take
        tracker.between_steps = self.profiler.between_steps if throughput.count is None else self._between_steps
        self.profiler.install()

    def _between_steps(self, ended: int) -> None:
        if self.throughput.count is not None:
            self.throughput.count.step_begins(ended)
        self.profiler.between_steps(ended)

    @guarded
    def watch_model(self, model: torch.nn.Module) -> None:
        """Time the forward of this model; if it is a DistributedDataParallel, know when it waits for its peers."""
        if hasattr(model, "require_backward_grad_sync"):
            if not self._reducers.add(model):
                return
            self.tracker.lasting.ddp.add(model)
        phases.watch_forward(self.tracker, self._evaluation, model)

    @guarded
    def watch_checkpoint(self, owner: Any, name: str) -> None:
        """See the saving of a framework that writes more than what ``torch.save`` gave it: ``owner.name`` saves."""
        phases.watch_checkpoint(self.tracker, owner, name)

    @guarded
    def evaluation_ends(self) -> None:
        """Training goes on; for frameworks that put the model back into training mode without telling it."""
        self._evaluation.ends()

    @guarded
    def watch_optimizer(self, optimizer: Any) -> None:
        """See the steps of an object that is no ``torch.optim.Optimizer``; those are seen anyway."""
        boundaries.watch_step(self.tracker, optimizer)

    def watch_loader(self, loader: Any) -> Any:
        """The loader with its batches timed; a torch ``DataLoader`` is timed anyway and returned as it is."""
        if loader is None or isinstance(loader, torch.utils.data.DataLoader):
            return loader
        return phases.TimedLoader(self.tracker, loader)

    def stop(self) -> None:
        """Say goodbye in the ring and take every patch back."""
        self.tracker.stop()


def _watch_meshes(tracker: Tracker, module: Any) -> None:
    def made(original: Callable[..., None]) -> Callable[..., None]:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it stands in for that method
            original(self, *args, **kwargs)
            tracker.mesh_made(self)

        return __init__

    patches.replace(module.DeviceMesh, "__init__", made)


_current: list[Instrument] = []


def start(make_timer: Callable[..., StepTimer] | None = None) -> Instrument:
    """The instrument of this process, put in if it is not yet. Later calls return the same one.

    Args:
        make_timer: asked at the first step, and may give a timer that measures nothing where this process turns out
            to be no rank. Whoever calls without it says that this one is.
    """
    if make_timer is None and _current and _current[0].tracker.is_no_rank:
        stop()  # whoever calls now knows better
    if not _current:
        _current.append(Instrument(make_timer or StepTimer))
    elif make_timer is None:
        _current[0].tracker.make_timer = StepTimer
    return _current[0]


def current() -> Instrument | None:
    """The instrument of this process, if it is put in."""
    return _current[0] if _current else None


def stop() -> None:
    """Take the instrument out; ``start`` puts in a new one."""
    while _current:
        _current.pop().stop()
