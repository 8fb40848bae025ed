"""What one process has, from its first step to its end: the timer, the clock, what is known of the rank.

``Tracker`` builds on it. Nothing exists before the first step, so a process that never trains leaves no trace.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from straggler.hook import StepTimer, process
from straggler.hook.guard import Reporter, attempt, guarded
from straggler.hook.torch import facts, lasting, late, patches
from straggler.hook.torch.cuda_clock import EventMeter
from straggler.hook.torch.doubts import Doubts
from straggler.hook.torch.meter import HostMeter, Meter, TimedStep
from straggler.wire import layout

_AMOUNTS = ("number", "tokens", "samples", "flops", "allreduce_bytes", "profiled")
"""As ``book.Amounts`` has them."""


# What a forked child must know of the process that it was; a fork may happen at any time, and handlers stay for good.

_living: WeakSet[Life] = WeakSet()
_inherited: list[tuple[Meter | None, StepTimer | None]] = []
"""In a forked child, what is the rank's: left alone, since a GPU's events must not be destroyed there."""


def _forked() -> None:
    for life in tuple(_living):
        life.forked()


os.register_at_fork(after_in_child=_forked)


def _nothing(*_: object) -> None:
    """What is done before there is a timer, and when it is off."""


class Life:
    """The timer and the clock, made and given up.

    Args:
        make_timer: called with ``StepTimer``'s arguments when the first step begins: a process that never makes an
            optimizer step gets no ring.
    """

    def __init__(self, make_timer: Callable[..., StepTimer]) -> None:
        self.make_timer = make_timer
        self.timer: StepTimer | None = None
        self.on_stop: list[Callable[[], None]] = []
        """How to take back what ``patches`` does not know of."""
        self._reporter = Reporter()
        self.warn = self._reporter.warn
        self._off = False
        self.is_no_rank = False
        """Whether this process turned out to be no rank, or the worker of one, as far as could be told."""
        self._meter: Meter | None = None
        self._device = ""
        """Type of the device that the last ``backward`` before the first step began on."""
        self.lasting = lasting.of_process
        self._doubts = Doubts(hidden=self.lasting.hidden)
        self._record: Callable[..., None] = _nothing
        self._arrive: Callable[[int], None] = _nothing
        """Counts an arrival at this time."""
        _living.add(self)

    def is_capturing(self) -> bool:
        """Whether any thread captures a graph."""
        raise NotImplementedError

    def _start(self) -> Meter | None:
        """The first step begins: choose the clock, and make the timer."""
        known = facts.find(self._device)
        timer = self.make_timer(**known.numbers)
        if not timer.enabled:
            self.is_no_rank = True
            self.stop()
            return None
        self.timer = timer
        self._record = timer.record_timed
        self._arrive = self._arrive_first
        self._doubts.alone = (timer.identity.world_size or 1) == 1
        if known.device == "cuda":
            from straggler.hook.torch.cuda_device import CudaEvents  # noqa: PLC0415 - only where there is a GPU

            self._meter = EventMeter(self._publish, CudaEvents(self.is_capturing))
        else:
            self._meter = HostMeter(self._publish)
            if known.device != "cpu":
                self._doubts.always = "gpu_clock_missing"
        timer.set_identity(clock=self._meter.clock, **known.texts)
        process.before_goodbye(self.flush)
        return self._meter

    def _arrive_first(self, _now: int) -> None:
        if self.timer is not None:
            self.timer.arrive()  # wakes the timer up, should nothing have been recorded yet
            self._arrive = self.timer.arrive_timed

    def _publish(self, step: TimedStep) -> None:
        wall, phases, own_reason, end, host_data, given = step
        amounts = tuple(map(given.get, _AMOUNTS)) if given else None
        self._record(end, wall, phases, amounts, layout.OWN_REASONS.index(own_reason), host_data)

    @guarded
    def mesh_made(self, mesh: Any) -> None:
        """A device mesh may tell which pipeline stage this rank is."""
        if facts.remember_mesh(mesh):
            self._look_again()

    def _look_again(self) -> None:
        """What may become known, or change, while training runs: asked ever more rarely."""
        timer = self.timer
        if timer is None:
            return
        known = facts.find()
        timer.set_identity(**known.numbers, **known.texts)
        self._doubts.alone = (timer.identity.world_size or 1) == 1

    # The end

    @guarded
    def flush(self) -> None:
        """Publish the steps that the GPU has finished."""
        if self._meter is not None:
            self._meter.flush()

    def stop(self) -> None:
        """Measure nothing any more, and take every patch back."""
        self._off = True
        meter, self._meter = self._meter, None
        if meter is not None:
            attempt(meter.flush)
        self._record = self._arrive = _nothing
        patches.undo_all()
        late.forget()
        while self.on_stop:
            attempt(self.on_stop.pop())
        if self.timer is not None:
            self.timer.close()
        process.forget(self.flush)

    def fail(self, error: Exception) -> None:
        """See ``straggler.hook.guard``: the first error is the last thing we do."""
        timer, self.timer = self.timer, None
        if timer is not None:
            timer.fail(error)
        else:
            self._reporter.warn("torch", f"the PyTorch instrument is off after an error: {error!r}. Training goes on")
        self.stop()

    def forked(self) -> None:
        """In a forked child: of a rank, it is a worker and measures nothing; of a launcher, it may become a rank."""
        if self._meter is not None:
            self._off = self.is_no_rank = True
            _inherited.append((self._meter, self.timer))
        self._meter = self.timer = None
        self._record = self._arrive = _nothing
