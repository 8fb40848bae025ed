"""The parts of a step that explain it: waiting for a batch, forward, checkpoint, validation.

None of them changes own time, apart from ``checkpoint`` and ``eval``, which are left out of it: what is not seen here
stays in the phase ``other``, which is own time too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import dataloader

from straggler.hook.torch import patches
from straggler.wire import layout

if TYPE_CHECKING:
    from straggler.hook.torch.session import Session

_DATA = layout.PHASE_INDEX["data"]
_FORWARD = layout.PHASE_INDEX["forward"]
_CHECKPOINT = layout.PHASE_INDEX["checkpoint"]


def install(session: Session) -> None:
    """Patch loaders, saving, DistributedDataParallel's construction and ``Module.train``."""
    patches.replace(dataloader._BaseDataLoaderIter, "__next__", lambda original: _timed(session, _DATA, original))  # noqa: SLF001 - the public DataLoader makes this iterator, whose type users see
    patches.replace(torch, "save", lambda original: _timed(session, _CHECKPOINT, original))
    patches.replace(nn.Module, "train", lambda original: _training_mode(session, original))
    patches.replace(nn.parallel.DistributedDataParallel, "__init__", lambda original: _wrapped(session, original))


def watch_forward(session: Session, module: nn.Module) -> None:
    """Time the forward of this module; a forward without gradients in evaluation mode is validation."""
    marks: list[int] = []

    def before(watched: nn.Module, _inputs: Any) -> None:
        if patches.compiling():
            return
        if watched.training and torch.is_grad_enabled():
            session.evaluation_ends()
        marks.append(session.begin(_FORWARD))

    def after(_watched: nn.Module, _inputs: Any, _output: Any) -> None:
        if marks and not patches.compiling():
            session.end(marks.pop())

    module.register_forward_pre_hook(before)
    module.register_forward_hook(after, always_call=True)


def _timed(session: Session, phase: int, original: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        mark = session.begin(phase)
        try:
            return original(*args, **kwargs)
        finally:
            session.end(mark)

    return timed


def _wrapped(session: Session, original: Callable[..., None]) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it stands in for that method
        original(self, *args, **kwargs)
        session.data_parallel(self)
        watch_forward(session, self)

    return __init__


def _training_mode(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    depth = 0

    def train(self: nn.Module, mode: bool = True) -> Any:  # noqa: FBT001, FBT002 - torch's signature
        nonlocal depth
        if depth == 0:
            if mode:
                session.evaluation_ends()
            else:
                session.evaluation_begins()
        depth += 1  # train() calls itself for every child
        try:
            return original(self, mode)
        finally:
            depth -= 1

    return train
