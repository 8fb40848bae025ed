"""What is known about this process: which clock times it, where its steps begin, what it publishes.

One tracker per process. All its public methods are called from inside PyTorch, in the middle of the training loop.
None of them raises: the first error is reported, every patch is taken back, and training goes on without us.

``rounds.py`` tells what a step is. Optimizers that step inside ``backward`` (the trick that frees gradients early) end
the step where that ``backward`` ends.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Mapping
from threading import get_ident
from typing import Any

import torch

from straggler.hook import StepTimer
from straggler.hook.guard import Reporter, guarded
from straggler.hook.torch import facts, late, patches, waits
from straggler.hook.torch.cuda_clock import EventMeter
from straggler.hook.torch.meter import MEASURED, HostMeter, Meter, TimedStep
from straggler.hook.torch.rounds import Rounds
from straggler.wire import layout

BACKWARD = layout.PHASE_INDEX["backward"]
OPTIMIZER = layout.PHASE_INDEX["optimizer"]
WAIT = layout.WAIT
_IN_BACKWARD = 0
"""Stands for all optimizers that step inside ``backward``; no object has this id."""


class Tracker:
    """The instrument of one process.

    Args:
        make_timer: called with ``StepTimer``'s arguments when the first step begins: a process that never makes an
            optimizer step gets no ring.
        amounts: what is known of each step besides its time (tokens, …), asked where the step ends.
    """

    def __init__(self, make_timer: Callable[..., StepTimer] = StepTimer) -> None:
        self.make_timer = make_timer
        self.timer: StepTimer | None = None
        self.amounts: Callable[[], Mapping[str, Any]] = dict
        self.on_training: Callable[[], None] = lambda: None
        """Called when a backward or an optimizer shows that training goes on, if it was not."""
        self.on_optimizer: Callable[[Any], None] = lambda _optimizer: None
        """Called with each optimizer that is about to step."""
        self.on_batch: Callable[[Any], None] | None = None
        """Called with each batch that the training thread takes for training; ``None``: nobody wants them."""
        self.on_reduction: Callable[[], None] = lambda: None
        """Called when a backward begins that waits for peers at its end."""
        self.between_steps: Callable[[int], None] = lambda _steps: None
        """Called in the training thread between two steps, with how many have ended: the number of the last one."""
        self.opaque = ""
        """Why the operators of a step cannot be seen, once that is so."""
        self.has_graphs = False
        self.on_stop: list[Callable[[], None]] = []
        """How to take back what ``patches`` does not know of."""
        self._reporter = Reporter()
        self.warn = self._reporter.warn
        self._off = False
        self._meter: Meter | None = None
        self._device = ""
        """Type of the device that the last ``backward`` before the first step began on."""
        self._rounds = Rounds()
        self._depth = 0
        self._stepped_in_backward = False
        self._captures = 0
        self._captured_step = False
        self._waited = False
        """Whether a wait was ever seen: without one own time would be the whole step."""
        self._alone = True
        self._base_reason = MEASURED
        self._step_reason = MEASURED
        self._hidden = False
        self._steps = 0
        self.side_waits_are_seen = 0
        """Greater than 0 inside code whose waits on other streams reach the compute stream in a bracket of ours."""
        os.register_at_fork(after_in_child=self._forked)

    # Where steps begin

    @guarded
    def optimizer_begins(self, optimizer: object) -> None:
        """An optimizer is about to step: all ranks have just been released, so the previous step ends here."""
        if self._off:
            return
        if self._captures:
            self._captured_step = True  # on replay there will be no hooks
        elif self._depth:
            self._stepped_in_backward = True
        else:
            self.on_training()
            self.on_optimizer(optimizer)
            self._optimizer_steps(id(optimizer))

    def _optimizer_steps(self, key: int) -> None:
        if not self._elsewhere() and self._rounds.ends_with(key) and self._boundary():
            self._rounds.begin_with(key)

    def _boundary(self) -> bool:
        meter = self._meter or self._start()
        if meter is None:
            return False
        late.install_arrived(self)
        if meter.owner is None:
            return meter.boundary()
        if not meter.boundary(self._own_reason(), self.amounts()):
            return False
        self._step_reason = MEASURED
        self._steps += 1
        if not self._steps & (self._steps - 1):
            self._look_again()
        self.between_steps(self._steps)
        return True

    def _own_reason(self) -> str:
        if self._base_reason != MEASURED:
            return self._base_reason
        if self._step_reason != MEASURED:
            return self._step_reason
        if self._hidden:
            return "hidden_collectives"
        return MEASURED if self._alone or self._waited else "no_wait_phase"

    def _publish(self, step: TimedStep) -> None:
        if self.timer is not None:
            self.timer.publish_step(
                step.wall_ns,
                step.phase_ns,
                own_reason=step.own_reason,
                host_data_ns=step.host_data_ns,
                end_monotonic_ns=step.end_ns,
                **step.amounts,
            )

    # Phases

    @guarded
    def begin(self, phase: int) -> int | None:
        """A phase of the training thread begins; returns the token to end it with."""
        meter = self._meter
        if meter is None:
            return None
        token = meter.enter(phase)
        if token is not None and phase in layout.EXCLUDED:
            self._tell_excluded(meter)
        return token

    @guarded
    def end(self, token: int | None) -> None:
        """A phase ends."""
        meter = self._meter
        if token is None or meter is None:
            return
        before = meter.excluded()
        meter.leave(token)
        if before is not None and meter.excluded() is None:
            self._tell_excluded(meter)

    def begin_optimizer(self) -> int | None:
        """As ``begin``, for an optimizer's step."""
        return self.begin(OPTIMIZER)

    @guarded
    def begin_backward(self, root: Any) -> int | None:
        """``backward`` was called, perhaps inside another one (reentrant activation checkpointing)."""
        if self._off or self._elsewhere():
            return None
        if not self._depth:
            self.on_training()
        self._depth += 1
        self._rounds.gradients_computed()
        meter = self._meter
        if meter is None and root is not None:
            self._device = str(root.device.type)
        return -1 if meter is None else meter.enter(BACKWARD, borrowed=self._works_for_us()) or -1

    @guarded
    def end_backward(self, token: int | None) -> None:
        """``backward`` returned or raised."""
        if token is None or not self._depth:
            return
        self._depth -= 1
        if self._meter is not None:
            self._meter.leave(token)
        if not self._depth and self._stepped_in_backward:
            self._stepped_in_backward = False
            self._optimizer_steps(_IN_BACKWARD)

    @guarded
    def gradients_computed(self) -> None:
        """Gradients came some other way than by ``backward``: whoever steps on them trains."""
        if not self._off and not self._elsewhere():
            self._rounds.gradients_computed()

    @guarded
    def watch_end_of_backward(self, roots: list[Any], reducers: waits.Reducers) -> Callable[[], None] | None:
        """Bracket what the reducer does at the end of the coming backward; returns how to take that back."""
        if not roots or not self.running or not reducers.synchronize():
            return None
        if patches.compiled_backward():
            self._hidden = True  # a callback of ours would be compiled in; and the reducer is
            return None
        self.on_reduction()
        return waits.bracket_finalize(self, roots)

    @guarded
    def queue(self, engine: Any, callback: Callable[[], None]) -> None:
        """Let autograd call this when the backward that is running ends."""
        engine.queue_callback(callback)

    @guarded
    def begin_wait(self, *, arrival: bool = False) -> int | None:
        """The rank is about to be blocked on its peers: by that it has arrived.

        Args:
            arrival: its gradients are ready. Other waits inside ``backward`` are too many to be arrivals.
        """
        meter = self._meter
        if meter is None:
            return None
        borrowed = self._works_for_us()
        if meter.owner is None or not (borrowed or get_ident() == meter.owner):
            return None
        self._waited = True
        token = meter.enter(WAIT, borrowed=borrowed)
        if token is None and not self.side_waits_are_seen:
            # On another stream, or in a capture: the compute stream will wait for it where we do not see it.
            self._step_reason = "hidden_collectives"
        if self.timer is not None and (arrival or not self._depth):
            self.timer.arrive()
        return token

    @guarded
    def saw_hidden_collective(self) -> None:
        """A collective goes by whose wait cannot be seen."""
        if self.is_training_thread() or self._works_for_us():
            self._step_reason = "hidden_collectives"

    @guarded
    def saw_compiled_graph(self, has_collectives: Callable[[], bool]) -> None:
        """A graph is compiled, in which collectives cannot be seen when it runs."""
        self.opaque = "parts of it are compiled"
        self._hidden = self._hidden or has_collectives()

    @guarded
    def batch_came(self, batch: Any) -> None:
        """A loader gave a batch: to the training thread, and not for an evaluation?"""
        if self.on_batch is not None and self.is_training_thread() and self._meter.excluded() is None:  # type: ignore[union-attr]  # whoever trains has one
            self.on_batch(batch)

    @guarded
    def look_for_imports(self) -> None:
        """Modules may have come that are to be patched."""
        if not self._off:
            late.install_arrived(self)

    # CUDA graphs

    @guarded
    def capture_begins(self) -> None:
        """A CUDA graph is captured from now on."""
        self.opaque, self.has_graphs = "parts of it are CUDA graphs", True
        self._captures += 1

    @guarded
    def capture_ends(self) -> bool:
        """Whether the graph holds an optimizer's step."""
        self._captures = max(self._captures - 1, 0)
        whole, self._captured_step = self._captured_step, False
        return whole

    @guarded
    def step_replayed(self) -> None:
        """A graph with a whole step in it is replayed."""
        if not self._off and not self._captures and not self._elsewhere():
            self._step_reason = "cuda_graph"
            if self._boundary():
                self._step_reason = "cuda_graph"

    def is_capturing(self) -> bool:
        """Whether any thread captures a graph."""
        return self._captures > 0

    def _tell_excluded(self, meter: Meter) -> None:
        if self.timer is not None:
            index = meter.excluded()
            self.timer.mark_excluded(None if index is None else layout.PHASES[index])

    # Whose call it is

    @property
    def in_backward(self) -> bool:
        """Whether the training thread is inside ``backward``."""
        return self._depth > 0

    @property
    def running(self) -> bool:
        """Whether a first step has begun."""
        return self._meter is not None and self._meter.owner is not None

    def is_training_thread(self) -> bool:
        """Whether this thread is the one that steps."""
        return self._meter is not None and self._meter.owner == get_ident()

    def _elsewhere(self) -> bool:
        """Whether this is a thread that trains something of its own, beside the one that is measured."""
        owner = None if self._meter is None else self._meter.owner
        return owner is not None and owner != get_ident() and not self._works_for_us()

    def _works_for_us(self) -> bool:
        """An autograd device thread, while the training thread is blocked in ``backward``."""
        return (
            self._depth > 0
            and self._meter is not None
            and get_ident() != self._meter.owner
            and torch._C._current_graph_task_id() != -1  # noqa: SLF001 - nothing public tells it
        )

    # What this process is

    def _start(self) -> Meter | None:
        """The first step begins: choose the clock, and make the timer."""
        known = facts.find(self._device)
        timer = self.make_timer(**known.numbers)
        if not timer.enabled:
            self.stop()
            return None
        self.timer = timer
        self._alone = (timer.identity.world_size or 1) == 1
        if known.device == "cuda":
            from straggler.hook.torch.cuda_device import CudaEvents  # noqa: PLC0415 - only where there is a GPU

            self._meter = EventMeter(self._publish, CudaEvents(self.is_capturing))
        else:
            self._meter = HostMeter(self._publish)
            if known.device != "cpu":
                self._base_reason = "gpu_clock_missing"
        timer.set_identity(clock=self._meter.clock, **known.texts)
        # After the timer's own, so before it: what is finished on the GPU is published, then goodbye is said.
        atexit.register(self.flush)
        return self._meter

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
        self._alone = (timer.identity.world_size or 1) == 1

    # The end

    @guarded
    def flush(self) -> None:
        """Publish the steps that the GPU has finished."""
        if self._meter is not None:
            self._meter.flush()

    def stop(self) -> None:
        """Measure nothing any more, and take every patch back."""
        self._off = True
        self._meter = None
        patches.undo_all()
        late.forget()
        while self.on_stop:
            self.on_stop.pop()()
        if self.timer is not None:
            self.timer.close()

    def fail(self, error: Exception) -> None:
        """See ``straggler.hook.guard``: the first error is the last thing we do."""
        timer, self.timer = self.timer, None
        if timer is not None:
            timer.fail(error)
        else:
            self._reporter.warn("torch", f"the PyTorch instrument is off after an error: {error!r}. Training goes on")
        self.stop()

    def _forked(self) -> None:
        """In a forked child: of a rank, it is a worker and measures nothing; of a launcher, it may become a rank."""
        if self._meter is not None:
            self._off = True
        self._meter = self.timer = None
        self._depth = 0
