"""Where steps and phases begin and end, as PyTorch calls it: the middle of everything in this folder.

One tracker per process. All its public methods are called from inside PyTorch, in the middle of the training loop.
None of them raises: the first error is reported, every patch is taken back, and training goes on without us.

``rounds.py`` tells what a step is. Optimizers that step inside ``backward`` (the trick that frees gradients early) end
the step where that ``backward`` ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from threading import get_ident
from time import monotonic_ns
from typing import Any

import torch

from straggler.hook import StepTimer
from straggler.hook.guard import guarded, guarded_none, guarded_one
from straggler.hook.torch import late, patches, waits
from straggler.hook.torch.doubts import HIDDEN
from straggler.hook.torch.life import Life
from straggler.hook.torch.meter import Meter
from straggler.hook.torch.rounds import Rounds
from straggler.wire import layout

BACKWARD = layout.PHASE_INDEX["backward"]
OPTIMIZER = layout.PHASE_INDEX["optimizer"]
WAIT = layout.WAIT
Backward = tuple[int | None, Sequence[tuple[MutableMapping[int, Any], int]]]
"""A ``backward`` that runs: the token of its phase, if it could be entered, and where our hooks are."""
_NOT_ENTERED: Backward = (None, ())
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
        self.profiled = False
        """Whether the step that runs is under a profiler of ours, or pays for one."""
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
        self.synchronizes: Callable[[], bool] = lambda: False
        """Whether the backward that begins waits for peers at its end."""
        # Looked up once: each step needs them.
        self._at_first_gradient: Callable[[Any], None] = self._first_gradient
        self._at_end_of_backward: Callable[[], None] = self._arrives
        self._queue_callback = torch.autograd.Variable._execution_engine.queue_callback  # noqa: SLF001 - the one way to run code at the end of backward
        self.side_waits_are_seen = 0
        """Greater than 0 inside code whose waits on other streams reach the compute stream in a bracket of ours."""

    # Where steps begin

    @guarded_one
    def optimizer_begins(self, optimizer: object) -> None:
        """An optimizer is about to step: all ranks have just been released, so the previous step ends here."""
        self._optimizer_begins(optimizer)

    @guarded_one
    def begin_optimizer(self, optimizer: object) -> int | None:
        """As ``optimizer_begins``, and its phase begins too; returns the token to end it with."""
        self._optimizer_begins(optimizer)
        meter = self._meter
        return None if meter is None else meter.enter(OPTIMIZER)

    def _optimizer_begins(self, optimizer: object) -> None:
        if self._off:
            return
        key = id(optimizer)
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
            meter = self._meter
            is_ours = meter is not None and meter.owner == get_ident()
            if (is_ours or not self._elsewhere()) and self._rounds.ends_with(key):
                self._boundary()

    def _boundary(self) -> bool:
        meter = self._meter or self._start()
        if meter is None:
            return False
        modules = len(sys.modules)
        if modules != self._modules:
            self._modules = modules
            late.install_arrived(self)
        owner = meter.owner
        if owner is None:
            return meter.boundary()
        if owner != get_ident():
            return False
        meter.boundary(self._doubts.of_the_step(), self.amounts())
        steps = self._steps = self._steps + 1
        if not steps & (steps - 1):
            self._look_again()
        self.between_steps(steps)
        return True

    # Phases

    def enter(self, phase: int) -> int | None:
        """As ``begin``, for a caller with a guard, and a phase that is neither ``checkpoint`` nor ``eval``."""
        meter = self._meter
        return None if meter is None else meter.enter(phase)

    @guarded_one
    def begin(self, phase: int) -> int | None:
        """A phase of the training thread begins; returns the token to end it with."""
        meter = self._meter
        if meter is None:
            return None
        token = meter.enter(phase)
        if token is not None and phase in layout.EXCLUDED:
            self._tell_excluded(meter)
        return token

    @guarded_one
    def end(self, token: int | None) -> None:
        """A phase ends."""
        meter = self._meter
        if token is None or meter is None:
            return
        if meter.leave(token):
            self._tell_excluded(meter)

    @guarded_one
    def begin_backward(self, roots: Sequence[Any]) -> Backward | None:
        """``backward`` was called, perhaps inside another one (reentrant activation checkpointing).

        Returns:
            What to end it with; ``None`` where nothing is measured.
        """
        if self._off:
            return None
        meter = self._meter
        borrowed = False
        if meter is not None and meter.owner != get_ident():
            borrowed = self._works_for_us()
            if not borrowed and meter.owner is not None:
                return None
        if not self._depth and self.evaluating:
            self.on_training()
        self._depth += 1
        self._rounds.gradients += 1
        if meter is None:
            if roots:
                self._device = str(roots[0].device.type)
            return _NOT_ENTERED
        token = meter.enter(BACKWARD, borrowed)
        if not roots or meter.owner is None or not self.synchronizes():
            return token, ()
        if patches.compiled_backward():
            self._doubts.hidden = True  # a callback of ours would be compiled in; and the reducer is
            return token, ()
        self.on_reduction()
        self._first_gradient_due = True
        if len(roots) == 1:
            return token, (waits.hook_gradient(roots[0], self._at_first_gradient),)
        return token, [waits.hook_gradient(root, self._at_first_gradient) for root in roots]

    @guarded_one
    def end_backward(self, begun: Backward | None) -> None:
        """``backward`` returned or raised; what ``begin_backward`` gave."""
        if begun is None:
            return
        token, hooked = begun
        if self._depth:
            self._depth -= 1
            self._first_gradient_due = False
            if self._meter is not None:
                # What waited for the reducer inside it ends with it. If it could not be entered, that may stand alone.
                self._meter.leave(self._arrival if token is None else token)
        for hooks, key in hooked:
            hooks.pop(key, None)
        if not self._depth and self._stepped_in_backward:
            self._stepped_in_backward = False
            if not self._elsewhere() and self._rounds.ends_with(_IN_BACKWARD):
                self._boundary()

    @guarded
    def gradients_computed(self) -> None:
        """Gradients came some other way than by ``backward``: whoever steps on them trains."""
        if not self._off and not self._elsewhere():
            self._rounds.gradients += 1

    @guarded_one
    def _first_gradient(self, _gradient: Any) -> None:
        if self._first_gradient_due:  # whichever root autograd comes to first
            self._first_gradient_due = False
            self._queue_callback(self._at_end_of_backward)

    @guarded_none
    def _arrives(self) -> None:
        self._arrival = self._begin_wait(True)

    @guarded_none
    def begin_wait(self) -> int | None:
        """The rank is about to be blocked on its peers: by that it has arrived."""
        return self._begin_wait(not self._depth)

    def _begin_wait(self, is_arrival: bool) -> int | None:  # noqa: FBT001 - by position, for speed
        """As ``begin_wait``.

        Args:
            is_arrival: inside ``backward`` only that the gradients are ready: other waits are too many to be arrivals.
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
        token = meter.enter(WAIT, borrowed)
        if token is None and not self.side_waits_are_seen:
            # On another stream, or in a capture: the compute stream will wait for it where we do not see it.
            self._doubts.step = HIDDEN
        if is_arrival:
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
        self.lasting.opaque = "parts of it are compiled"
        if has_collectives():
            self.lasting.hidden = self._doubts.hidden = True

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
        self.lasting.opaque, self.lasting.has_graphs = "parts of it are CUDA graphs", True
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

    def forked(self) -> None:
        """See ``Life.forked``."""
        super().forked()
        self._depth = 0
