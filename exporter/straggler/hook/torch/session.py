"""What is known about this process: which clock times it, where its steps begin, what it publishes.

One session per process. All its methods are called from inside PyTorch, on the training thread's way; none of them
raises, since each patch goes through ``guarded``.
"""

from __future__ import annotations

import weakref
from threading import get_ident
from typing import Any, Protocol

import torch

from straggler.hook.torch.meter import NOT_OURS, HostMeter
from straggler.wire import layout

BACKWARD = layout.PHASE_INDEX["backward"]
WAIT = layout.WAIT
EVAL = layout.PHASE_INDEX["eval"]


class Sink(Protocol):
    """What a session publishes to: ``straggler.StepTimer``."""

    def publish_step(self, wall_ns: int, phase_ns: tuple[int, ...], *, own_reason: str, **totals: Any) -> None:
        """One finished step."""

    def arrive(self) -> None:
        """The rank reached a blocking point."""

    def set_identity(self, **fields: Any) -> None:
        """More is known about the rank."""


class Session:
    """The instrument of one process."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._meter: HostMeter | None = None
        self._own_reason = "measured"
        self._backwards = 0
        self._backward_since = False
        self._waits = 0
        self._data_parallel: weakref.WeakSet[Any] = weakref.WeakSet()
        self._evaluating = NOT_OURS

    # -- where steps begin ------------------------------------------------------------------------------------------

    def optimizer_begins(self) -> None:
        """An optimizer is about to step: all ranks have just been released, so the previous step ends here.

        Optimizers that follow each other without a backward between them are one step.
        """
        meter = self._meter
        if meter is None or not self._backward_since or self._backwards:
            return
        self.evaluation_ends()
        if meter.boundary():
            self._backward_since = False

    def publish(self, wall_ns: int, phase_ns: tuple[int, ...]) -> None:
        """The meter's finished step goes to the ring."""
        self._sink.publish_step(wall_ns, phase_ns, own_reason=self._own_reason)

    # -- phases -----------------------------------------------------------------------------------------------------

    def begin(self, phase: int) -> int:
        """A phase of the training thread begins; returns the mark to end it with."""
        meter = self._meter
        return NOT_OURS if meter is None else meter.enter(phase)

    def end(self, mark: int) -> None:
        """A phase ends."""
        if mark >= 0 and self._meter is not None:
            self._meter.leave(mark)

    def begin_backward(self, root: torch.Tensor | None) -> int:
        """``backward`` was called, perhaps inside another one (reentrant activation checkpointing)."""
        if self._meter is None:
            self._choose_clock(root)
        meter = self._meter
        if meter is None:
            return NOT_OURS
        if self._backwards == 0:
            self.evaluation_ends()
        self._backwards += 1
        self._backward_since = True
        return meter.enter(BACKWARD, borrowed=self._works_for_us())

    def end_backward(self, mark: int) -> None:
        """``backward`` returned or raised."""
        if self._backwards:
            self._backwards -= 1
        self.end(mark)

    def begin_wait(self, *, arrival: bool = False) -> int:
        """The rank is about to be blocked on its peers: by that it has arrived."""
        meter = self._meter
        if meter is None:
            return NOT_OURS
        mark = meter.enter(WAIT, borrowed=self._works_for_us())
        if mark >= 0 and (arrival or not self._backwards):
            self._sink.arrive()
        return mark

    def evaluation_begins(self) -> None:
        """Validation: until training goes on, time is neither own nor wait."""
        if self._evaluating < 0 and not self._backwards:
            self._evaluating = self.begin(EVAL)

    def evaluation_ends(self) -> None:
        """Training goes on."""
        if self._evaluating >= 0:
            self.end(self._evaluating)
            self._evaluating = NOT_OURS

    # -- what this process is ---------------------------------------------------------------------------------------

    def data_parallel(self, module: Any) -> None:
        """Remember a DistributedDataParallel, to know when gradients are not synchronized."""
        self._data_parallel.add(module)

    def synchronizes(self) -> bool:
        """Whether the coming backward waits for peers: not under ``no_sync``."""
        modules = list(self._data_parallel)
        return not modules or any(module.require_backward_grad_sync for module in modules)

    def _choose_clock(self, root: torch.Tensor | None) -> None:
        """By the device that computes, which with CPU offload is not the one the parameters are on."""
        if root is None:
            return
        self._meter = HostMeter(self.publish)
        if root.device.type != "cpu":
            self._own_reason = "gpu_clock_missing"

    def _works_for_us(self) -> bool:
        """An autograd device thread, while the training thread is blocked in ``backward``."""
        return (
            self._backwards > 0
            and self._meter is not None
            and get_ident() != self._meter.owner
            and torch._C._current_graph_task_id() != -1  # noqa: SLF001 - nothing public tells it
        )
