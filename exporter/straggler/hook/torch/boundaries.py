"""Where one step ends and the next begins: at the moment an optimizer is about to step (``tracker.py`` tells which).

The pre-hook and not the post-hook, because all ranks have just been released from the same collective there, so that
the optimizer's own time belongs to the step of the rank that spends it. The hooks are torch's global ones, which fire
for every optimizer, through wrappers too. ``GradScaler.step`` is a boundary as well: it skips the optimizer when a
gradient overflowed, and that was a step for the clock.

torch 2.1 and 2.2 need one thing more. There the first ``torch.compile`` strips the hooks from all optimizer classes, so
their ``step`` methods are wrapped too. Both together are harmless: a step counts once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import optimizer as torch_optimizer

from straggler.hook.torch import patches

if TYPE_CHECKING:
    from straggler.hook.torch.tracker import Tracker


def install(tracker: Tracker) -> None:
    """Hook all optimizers, present and future."""
    tokens: list[int | None] = []
    inside = 0
    compiling, begin, end = patches.compiling, tracker.begin_optimizer, tracker.end

    def before(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        nonlocal inside
        if not compiling():
            inside += 1
            tokens.append(begin(optimizer))
            inside -= 1

    def after(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        nonlocal inside
        if tokens and not compiling():
            inside += 1
            end(tokens.pop())
            inside -= 1

    for handle in (
        torch_optimizer.register_optimizer_step_pre_hook(before),
        torch_optimizer.register_optimizer_step_post_hook(after),
    ):
        tracker.on_stop.append(lambda handle=handle: patches.remove_hook(handle, in_use=inside > 0))  # type: ignore[misc]  # mypy wants no default
    scaler = getattr(getattr(torch, "amp", None), "GradScaler", None) or torch.cuda.amp.GradScaler
    patches.replace(scaler, "step", lambda original: _scaled(tracker, original))
    if patches.VERSION < (2, 3):
        patches.replace(
            torch.optim.Optimizer, "_patch_step_function", lambda original: _class_patched(tracker, original)
        )
        for optimizer_class in tuple(tracker.lasting.optimizers):  # of an earlier instrument
            _patch_class(tracker, optimizer_class)


def watch_step(tracker: Tracker, optimizer: Any) -> None:
    """A boundary at each ``optimizer.step()`` of an object that is no ``torch.optim.Optimizer``."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        patches.replace(optimizer, "step", lambda original: _stepping(tracker, original, lambda *_: optimizer))


def _scaled(tracker: Tracker, original: Callable[..., Any]) -> Callable[..., Any]:
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        tracker.optimizer_begins(optimizer)
        return original(self, optimizer, *args, **kwargs)

    return step


def _stepping(tracker: Tracker, original: Callable[..., Any], which: Callable[..., Any]) -> Callable[..., Any]:
    def step(*args: Any, **kwargs: Any) -> Any:
        if patches.compiling():
            return original(*args, **kwargs)
        token = tracker.begin_optimizer(which(*args))
        try:
            return original(*args, **kwargs)
        finally:
            tracker.end(token)

    return step


def _class_patched(tracker: Tracker, original: Callable[..., Any]) -> Callable[..., Any]:
    def _patch_step_function(self: Any) -> None:
        step = type(self).step
        if patches.is_ours(step):
            step.hooked = True  # there is a layer of torch's below, and it needs no other
            original(self)
            vars(step).pop("hooked", None)
        else:
            original(self)
            tracker.lasting.optimizers.add(type(self))
            _patch_class(tracker, type(self))

    return _patch_step_function


def _patch_class(tracker: Tracker, optimizer_class: Any) -> None:
    patches.replace(optimizer_class, "step", lambda step: _stepping(tracker, step, lambda optimizer, *_: optimizer))
    # The compiler takes one layer off a ``step`` that says it is hooked. That must not be ours.
    vars(optimizer_class.step).pop("hooked", None)
