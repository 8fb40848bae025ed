"""Validation: the time in which the model does not train, so that a long one reads neither as slowness nor as a hang.

It begins where the model that trains is put into evaluation mode (``model.eval()``), or runs forward without gradients
in that mode. It ends where training shows: ``model.train()``, a forward with gradients, ``backward``, an optimizer.

Not every ``eval()`` is one. Frozen teachers and frozen BatchNorm layers are put into that mode in the middle of
training. So a module counts only if it holds at least half of what some optimizer trains.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from straggler.hook.guard import guarded, guarded_none, guarded_one
from straggler.hook.torch import patches
from straggler.wire import layout

if TYPE_CHECKING:
    from straggler.hook.torch.tracker import Tracker

_FORWARD = layout.PHASE_INDEX["forward"]
_EVAL = layout.PHASE_INDEX["eval"]


class Evaluation:
    """Knows what trains, and whether it does."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self.fail = tracker.fail
        self.watched: weakref.WeakSet[Any] = weakref.WeakSet()
        """Modules whose forward is timed where their class's is patched."""
        self._trained: set[weakref.ref[Any]] = set()
        """Modules that ran forward in training; a plain set, since one that drops the dead costs more at each step."""
        self._parameters: dict[int, frozenset[int]] = {}
        """What each optimizer trains, by identity."""
        self._token: int | None = None
        self.on_forward: Callable[[Any], None] = lambda _module: None
        """Called with each watched module that runs forward with gradients."""
        self.end_forward = tracker.end
        """To be called with ``begin_forward``'s token when the forward returned or raised."""
        tracker.on_training = self.ends
        tracker.on_optimizer = self.learn

    def learn(self, optimizer: Any) -> None:
        """An optimizer steps: its parameters are what trains."""
        if id(optimizer) not in self._parameters:
            groups = getattr(optimizer, "param_groups", ())
            self._parameters[id(optimizer)] = frozenset(id(one) for group in groups for one in group["params"])

    @guarded
    def begins(self, module: nn.Module) -> None:
        """This module was put into evaluation mode, or runs in it."""
        tracker = self._tracker
        if self._token is None and tracker.is_training_thread() and not tracker.in_backward and self._trains(module):
            self._token = tracker.begin(_EVAL)
            tracker.evaluating = self._token is not None

    @guarded_none
    def ends(self) -> None:
        """Training goes on."""
        if self._token is not None and self._tracker.is_training_thread():
            token, self._token = self._token, None
            self._tracker.evaluating = False
            self._tracker.end(token)

    @guarded_one
    def begin_forward(self, module: nn.Module) -> int | None:
        """The forward of a watched module begins; returns a token to end it with."""
        if torch.is_grad_enabled():
            self.on_forward(module)
            if module.training:
                if self._token is not None:
                    self.ends()
                self._trained.add(weakref.ref(module))
        elif weakref.ref(module) in self._trained:
            if module.training:
                return self._tracker.begin(_EVAL)  # e.g. a rollout: this forward, and nothing around it
            self.begins(module)
        return self._tracker.enter(_FORWARD)

    def _trains(self, module: nn.Module) -> bool:
        own = {id(parameter) for parameter in module.parameters()}
        return any(known and 2 * len(known & own) >= len(known) for known in self._parameters.values())


def install(evaluation: Evaluation) -> None:
    """Patch ``Module.train``, which ``eval`` calls."""
    patches.replace(nn.Module, "train", lambda original: _training_mode(evaluation, original))


def _training_mode(evaluation: Evaluation, original: Callable[..., Any]) -> Callable[..., Any]:
    depth = 0

    def train(self: nn.Module, mode: bool = True) -> Any:  # noqa: FBT001, FBT002 - torch's signature
        nonlocal depth
        if depth == 0 and not patches.compiling():
            if mode:
                evaluation.ends()
            else:
                evaluation.begins(self)
        depth += 1  # train() calls itself for every child
        try:
            return original(self, mode)
        finally:
            depth -= 1

    return train
