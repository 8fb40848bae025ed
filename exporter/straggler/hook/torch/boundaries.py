"""Where one step ends and the next begins: at the moment an optimizer is about to step.

The pre-hook and not the post-hook, because all ranks have just been released from the same collective there, so that
the optimizer's own time belongs to the step of the rank that spends it. The hooks are global ones, which fire for
every optimizer, through wrappers too; they fire twice for a subclass whose ``step`` calls ``super().step``, which the
session's rule "no step without a backward" makes harmless. ``GradScaler.step`` is a boundary as well: it skips the
optimizer when a gradient overflowed, and that was a step for the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import optimizer as torch_optimizer

from straggler.hook.torch import patches
from straggler.wire import layout

if TYPE_CHECKING:
    from straggler.hook.torch.session import Session

_OPTIMIZER = layout.PHASE_INDEX["optimizer"]


def install(session: Session) -> None:
    """Hook all optimizers, present and future."""
    marks: list[int] = []

    def before(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        session.optimizer_begins()
        marks.append(session.begin(_OPTIMIZER))

    def after(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if marks:
            session.end(marks.pop())

    torch_optimizer.register_optimizer_step_pre_hook(before)
    torch_optimizer.register_optimizer_step_post_hook(after)
    scaler = getattr(getattr(torch, "amp", None), "GradScaler", None) or torch.cuda.amp.GradScaler
    patches.replace(scaler, "step", lambda original: _scaled(session, original))


def _scaled(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    def step(*args: Any, **kwargs: Any) -> Any:
        session.optimizer_begins()
        return original(*args, **kwargs)

    return step
