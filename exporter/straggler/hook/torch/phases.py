"""The parts of a step that explain it: waiting for a batch, forward, checkpoint.

None of them changes own time, apart from ``checkpoint``, which is left out of it: what is not seen here stays in the
phase ``other``, which is own time too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import dataloader

from straggler.hook.torch import late, patches
from straggler.wire import layout

if TYPE_CHECKING:
    from straggler.hook.torch.evaluation import Evaluation
    from straggler.hook.torch.tracker import Tracker

_DATA = layout.PHASE_INDEX["data"]
_CHECKPOINT = layout.PHASE_INDEX["checkpoint"]


def install(tracker: Tracker) -> None:
    """Patch loaders and saving."""
    patches.replace(dataloader._BaseDataLoaderIter, "__next__", lambda original: _timed(tracker, _DATA, original))  # noqa: SLF001 - the public DataLoader makes this iterator, whose type users see
    patches.replace(torch, "save", lambda original: _timed(tracker, _CHECKPOINT, original))
    late.when_imported(tracker, "torch.distributed.checkpoint.state_dict_saver", _install_distributed_checkpoint)


def _install_distributed_checkpoint(tracker: Tracker, module: Any) -> None:
    # ``save`` looks its helper up each time, so whoever imported ``save`` before us is seen as well.
    for owner in (module, torch.distributed.checkpoint):
        for name in ("save", "async_save", "_save_state_dict"):
            patches.replace(owner, name, lambda original: _timed(tracker, _CHECKPOINT, original))


def watch_forward(evaluation: Evaluation, module: Any) -> None:
    """Time the forward of one module.

    By its class and not by hooks on the module, since those would be pickled with it into the user's checkpoints.
    """
    evaluation.watched.add(module)
    patches.replace(type(module), "forward", lambda original: _forward(evaluation, original))


def _forward(evaluation: Evaluation, original: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if patches.compiling():
            return original(self, *args, **kwargs)
        token = evaluation.begin_forward(self)
        try:
            return original(self, *args, **kwargs)
        finally:
            evaluation.end_forward(token)

    return forward


class TimedLoader:
    """An iterable that is no torch ``DataLoader``, with its batches timed; all else is its own."""

    def __init__(self, tracker: Tracker, loader: Iterable[Any]) -> None:
        self._tracker = tracker
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        step = _timed(self._tracker, _DATA, next)
        iterator = iter(self._loader)
        end = object()
        while (batch := step(iterator, end)) is not end:
            yield batch

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]  # raises what the loader would raise

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # while being unpickled
            raise AttributeError(name)
        return getattr(self._loader, name)


def _timed(tracker: Tracker, phase: int, original: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        token = tracker.begin(phase)
        try:
            return original(*args, **kwargs)
        finally:
            tracker.end(token)

    return timed
