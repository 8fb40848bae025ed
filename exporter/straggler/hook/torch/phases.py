"""The parts of a step that explain it: waiting for a batch, forward, checkpoint.

None of them changes own time, apart from ``checkpoint``, which is left out of it: what is not seen here stays in the
phase ``other``, which is own time too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from sys import exc_info
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
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
    patches.replace(dataloader._BaseDataLoaderIter, "__next__", lambda original: _loading(tracker, original))  # noqa: SLF001 - the public DataLoader makes this iterator, whose type users see
    patches.replace(torch, "save", lambda original: _timed(tracker, _CHECKPOINT, original))
    late.when_imported(tracker, "torch.distributed.checkpoint.state_dict_saver", _install_distributed_checkpoint)
    late.when_imported(tracker, "safetensors.torch", _install_safetensors)


def _install_distributed_checkpoint(tracker: Tracker, module: Any) -> None:
    # ``save`` looks its helper up each time, so whoever imported ``save`` before us is seen as well.
    for owner in (module, torch.distributed.checkpoint):
        for name in ("save", "async_save", "_save_state_dict"):
            watch_checkpoint(tracker, owner, name)


def _install_safetensors(tracker: Tracker, module: Any) -> None:
    # ``save_file`` is imported by name long before; what it is made of (names differ by version) it looks up each time.
    for name in ("_flatten", "_flatten_as_ptr", "serialize", "serialize_file"):
        watch_checkpoint(tracker, module, name)


def watch_checkpoint(tracker: Tracker, owner: Any, name: str) -> None:
    """Count the time in a function of a framework's, by which it saves, as checkpoint."""
    patches.replace(owner, name, lambda original: _timed(tracker, _CHECKPOINT, original))


def watch_forward(tracker: Tracker, evaluation: Evaluation, module: Any) -> None:
    """Time the forward of one module.

    Hooks on the module would be pickled with it into the user's checkpoints, so its class is patched instead. But that
    of DistributedDataParallel the compiler knows by sight: there it must be hooks, and they are left out of the state.
    """
    if isinstance(module, nn.parallel.DistributedDataParallel):
        _hook(tracker, evaluation, module)
        patches.replace(nn.parallel.DistributedDataParallel, "__getstate__", _without_hooks)
    else:
        evaluation.watched.add(module)
        # What the compiler has learnt of a class of torch's own it has learnt with the wrapper, and finds nothing to
        # compile without it.
        stays = type(module).__module__.startswith("torch.")
        patches.replace(type(module), "forward", lambda original: _forward(evaluation, original), stays=stays)


def _hook(tracker: Tracker, evaluation: Evaluation, module: nn.Module) -> None:
    tokens: list[int | None] = []
    inside = False
    compiling, begin, end = patches.compiling, evaluation.begin_forward, evaluation.end_forward

    def before(module: nn.Module, _inputs: Any) -> None:
        if not compiling():
            tokens.append(begin(module))

    def after(_module: nn.Module, _inputs: Any, _output: Any) -> None:
        nonlocal inside
        if tokens and not compiling():
            inside = exc_info()[0] is not None  # only then torch goes through its own dictionary, and not a copy
            try:
                end(tokens.pop())
            finally:
                inside = False

    for handle in (module.register_forward_pre_hook(before), module.register_forward_hook(after, always_call=True)):
        tracker.on_stop.append(lambda handle=handle: patches.remove_hook(handle, in_use=inside))  # type: ignore[misc]  # mypy wants no default


def _without_hooks(original: Callable[..., Any]) -> Callable[..., Any]:
    def __getstate__(self: Any) -> Any:  # noqa: N807 - it stands in for that method
        state = original(self)
        for name in ("_forward_pre_hooks", "_forward_hooks"):
            kept = {key: hook for key, hook in state[name].items() if getattr(hook, "__module__", "") != __name__}
            state[name] = type(state[name])(kept)
        return state

    return __getstate__


def _forward(evaluation: Evaluation, original: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if patches.compiling() or self not in evaluation.watched:
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
            self._tracker.batch_came(batch)
            yield batch

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]  # raises what the loader would raise

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # while being unpickled
            raise AttributeError(name)
        return getattr(self._loader, name)


def _loading(tracker: Tracker, original: Callable[..., Any]) -> Callable[..., Any]:
    step = _timed(tracker, _DATA, original)

    def loading(*args: Any, **kwargs: Any) -> Any:
        batch = step(*args, **kwargs)
        if tracker.on_batch is not None:
            tracker.batch_came(batch)
        return batch

    return loading


def _timed(tracker: Tracker, phase: int, original: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        token = tracker.begin(phase)
        try:
            return original(*args, **kwargs)
        finally:
            tracker.end(token)

    return timed
