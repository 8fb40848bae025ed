"""Where steps and phases begin and end, as PyTorch calls it: the middle of everything in this folder.

One tracker per process. All its public methods are called from inside PyTorch, in the middle of the training loop.
None of them raises: the first error is reported, every patch is taken back, and training goes on without us.

``rounds.py`` tells what a step is. Optimizers that step inside ``backward`` (the trick that frees gradients early) end
the step where that ``backward`` ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import get_ident
from time import monotonic_ns
from typing import Any

import torch

from straggler.hook import StepTimer
from straggler.hook.guard import guarded
from straggler.hook.torch import late, patches, waits
from straggler.hook.torch.doubts import HIDDEN
from straggler.hook.torch.life import Life
from straggler.hook.torch.meter import Meter
from straggler.hook.torch.rounds import Rounds
from straggler.wire import layout

BACKWARD = layout.PHASE_INDEX["backward"]
OPTIMIZER = layout.PHASE_INDEX["optimizer"]
WAIT = layout.WAIT
_IN_BACKWARD = 0
"""Stands for all optimizers that step inside ``backward``; no object has this id."""


class Tracker(Life):
    """The instrument of one process.

    Args:
        make_timer: see ``Life``.
    """

    def __init__(self, make_timer: Callable[..., StepTimer] = StepTimer) -> None:
        super().__init__(make_timer)
        self.amounts: Callable[[], Mapping[str, Any]] = dict
        """What is known of each step besides its time (tokens, …), asked where the step ends."""
        self.on_training: Callable[[], None] = lambda: None
        """Called when a backward or an optimizer shows that training goes on, if it was not."""
        self.evaluating = False
        """Whether it is not: whoever sets ``on_training`` says so."""
        self.on_optimizer: Callable[[Any], None] = lambda _optimizer: None
        """Called with each optimizer that is about to step for the first time."""
        self.on_batch: Callable[[Any], None] | None = None
        """Called with each batch that the training thread takes for training; ``None``: nobody wants them."""
        self.on_reduction: Callable[[], None] = lambda: None
        """Called when a backward begins that waits for peers at its end."""
        self.between_steps: Callable[[int], None] = lambda _steps: None
        """Called in the training thread between two steps, with how many have ended: the number of the last one."""
        self.opaque = ""
        """Why the operators of a step cannot be seen, once that is so."""
        self.has_graphs = False
        self._rounds = Rounds()
        self._depth = 0
        self._stepped_in_backward = False
        self._captures = 0
        self._captured_step = False
        self._steps = 0
        self._known_optimizers: set[int] = set()
        self._modules = 0
        """How many had been imported when ``late`` was last asked."""
        self._first_gradient_due = False
        """Whether the backward that runs has not come to its first gradient yet."""
        self._arrival: int | None = None
        """Token of the last wait for the reducer."""
        self.side_waits_are_seen = 0
        """Greater than 0 inside code whose waits on other streams reach the compute stream in a bracket of ours."""

    # Where steps begin

    @guarded
    def optimizer_begins(self, optimizer: object) -> None:
        """An optimizer is about to step: all ranks have just been released, so the previous step ends here."""
        self._optimizer_begins(optimizer)

    @guarded
    def begin_optimizer(self, optimizer: object) -> int | None:
        """As ``optimizer_begins``, and its phase begins too; returns the token to end it with."""
        self._optimizer_begins(optimizer)
        return None if self._meter is None else self._meter.enter(OPTIMIZER)

    def _optimizer_begins(self, optimizer: object) -> None:
        key = id(optimizer)
        if self._off:
            return
        if self._captures:
            self._captured_step = True  # on replay there will be no hooks
        elif self._depth:
            self._stepped_in_backward = True
        else:
            if self.evaluating:
                self.on_training()
            if key not in self._known_optimizers:
                self._known_optimizers.add(key)
                self.on_optimizer(optimizer)
            if not self._elsewhere() and self._rounds.ends_with(key):
                self._boundary()

    def _boundary(self) -> bool:
        meter = self._meter or self._start()
        if meter is None:
            return False
        if len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            late.install_arrived(self)
        if meter.owner is None:
            return meter.boundary()
        if meter.owner != get_ident():
            return False
        meter.boundary(self._doubts.of_the_step(), self.amounts())
        self._steps += 1
        if not self._steps & (self._steps - 1):
            self._look_again()
        self.between_steps(self._steps)
        return True

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
        if meter.leave(token):
            self._tell_excluded(meter)

    @guarded
    def begin_backward(self, roots: Sequence[Any]) -> int | None:
        """``backward`` was called, perhaps inside another one (reentrant activation checkpointing)."""
        meter = self._meter
        borrowed = meter is not None and get_ident() != meter.owner and self._works_for_us()
        if self._off or not (borrowed or not self._elsewhere()):
            return None
        if not self._depth and self.evaluating:
            self.on_training()
        self._depth += 1
        self._rounds.gradients += 1
        if meter is None:
            if roots:
                self._device = str(roots[0].device.type)
            return -1
        return meter.enter(BACKWARD, borrowed=borrowed) or -1

    @guarded
    def end_backward(self, token: int | None, unhook: Iterable[Callable[[], object]] = ()) -> None:
        """``backward`` returned or raised.

        Args:
            token: ``begin_backward``'s.
            unhook: ``watch_end_of_backward``'s.
        """
        if token is not None and self._depth:
            self._depth -= 1
            self._first_gradient_due = False
            if self._meter is not None:
                # What waited for the reducer inside it ends with it. If it could not be entered, that may stand alone.
                self._meter.leave(self._arrival if token == -1 else token)
        for remove in unhook:
            remove()
        if not self._depth and self._stepped_in_backward:
            self._stepped_in_backward = False
            if not self._elsewhere() and self._rounds.ends_with(_IN_BACKWARD):
                self._boundary()

    @guarded
    def gradients_computed(self) -> None:
        """Gradients came some other way than by ``backward``: whoever steps on them trains."""
        if not self._off and not self._elsewhere():
            self._rounds.gradients += 1

    @guarded
    def watch_end_of_backward(
        self, roots: Sequence[Any], reducers: waits.Reducers
    ) -> list[Callable[[], object]] | None:
        """Bracket what the reducer does at the end of the coming backward; returns what takes the hooks back then."""
        if not roots or self._meter is None or self._meter.owner is None or not reducers.synchronize():
            return None
        if patches.compiled_backward():
            self._doubts.hidden = True  # a callback of ours would be compiled in; and the reducer is
            return None
        self.on_reduction()
        self._first_gradient_due = True
        return [waits.hook_gradient(root, self._first_gradient) for root in roots]

    @guarded
    def _first_gradient(self, _gradient: Any) -> None:
        if self._first_gradient_due:  # whichever root autograd comes to first
            self._first_gradient_due = False
            torch.autograd.Variable._execution_engine.queue_callback(self._arrives)  # noqa: SLF001 - the one way to run code at the end of backward

    @guarded
    def _arrives(self) -> None:
        self._arrival = self._begin_wait(arrival=True)

    @guarded
    def begin_wait(self) -> int | None:
        """The rank is about to be blocked on its peers: by that it has arrived."""
        return self._begin_wait(arrival=False)

    def _begin_wait(self, *, arrival: bool) -> int | None:
        """As ``begin_wait``.

        Args:
            arrival: its gradients are ready. Other waits inside ``backward`` are too many to be arrivals.
        """
        meter = self._meter
        if meter is None:
            return None
        borrowed = False
        if get_ident() != meter.owner:
            borrowed = meter.owner is not None and self._works_for_us()
            if not borrowed:
                return None
        self._doubts.waited = True
        token = meter.enter(WAIT, borrowed=borrowed)
        if token is None and not self.side_waits_are_seen:
            # On another stream, or in a capture: the compute stream will wait for it where we do not see it.
            self._doubts.step = HIDDEN
        if arrival or not self._depth:
            self._arrive(monotonic_ns())
        return token

    @guarded
    def saw_hidden_collective(self) -> None:
        """A collective goes by whose wait cannot be seen."""
        if self.is_training_thread() or self._works_for_us():
            self._doubts.step = HIDDEN

    @guarded
    def saw_compiled_graph(self, has_collectives: Callable[[], bool]) -> None:
        """A graph is compiled, in which collectives cannot be seen when it runs."""
        self.opaque = "parts of it are compiled"
        self._doubts.hidden = self._doubts.hidden or has_collectives()

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
            self._doubts.step = "cuda_graph"
            if self._boundary():
                self._doubts.step = "cuda_graph"

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
        return owner != get_ident() and owner is not None and not self._works_for_us()

    def _works_for_us(self) -> bool:
        """An autograd device thread, while the training thread is blocked in ``backward``."""
        return (
            self._depth > 0
            and self._meter is not None
            and get_ident() != self._meter.owner
            and torch._C._current_graph_task_id() != -1  # noqa: SLF001 - nothing public tells it
        )

    def _forked(self) -> None:
        super()._forked()
        self._depth = 0
