"""Time blocked on peers: every way in which PyTorch waits for other ranks, each moment counted once.

Two kinds of waiting, and nothing else, have to be seen:

1. **The reducer's finalize.** DDP launches its all-reduces from C++ while gradients become ready and waits for them in
   a callback that autograd runs at the very end of ``backward``. No Python function is called for any of it. But
   callbacks run in the order in which they were queued. So ``torch.autograd.backward`` is wrapped to put a hook on the
   root tensor, which fires before any other gradient is computed, hence before DDP queues its own callback. The hook
   queues **A**. When A runs, the rank's own gradients are ready: it has *arrived*. A queues **B**, which therefore runs
   after DDP's finalize. The wait is A to B. What comes after, host code between ``backward`` and ``step``, a closure,
   clipping, is own time again, which a measurement up to the optimizer's hook would call waiting.
2. **``Work.wait``**, which every synchronous collective, barrier, object collective, send and receive goes through, as
   do FSDP's gathers and scatters. Patching it instead of ``dist.all_reduce`` and its kin keeps
   ``torch.compile(fullgraph=True)`` whole. ``_broadcast_coalesced`` (DDP's buffers) waits in C++ and is wrapped too.

Both are phases of one meter, so an overlap counts once. Under ``no_sync`` nothing is waited for: no A and no B.
``functional.py`` and ``fsdp.py`` have what these two do not see.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from straggler.hook.torch import patches

if TYPE_CHECKING:
    from straggler.hook.torch.tracker import Tracker


class Reducers:
    """The DistributedDataParallel modules of this process, to know whether a backward waits for peers."""

    def __init__(self) -> None:
        self._modules: weakref.WeakSet[Any] = weakref.WeakSet()

    def add(self, module: Any) -> None:
        """Remember one."""
        self._modules.add(module)

    def synchronize(self) -> bool:
        """Whether the coming backward waits for peers at its end. If no module is known, it may."""
        modules = list(self._modules)
        if not modules:
            return bool(dist.is_available() and dist.is_initialized())
        return any(module.require_backward_grad_sync for module in modules)


def install(tracker: Tracker, reducers: Reducers, on_ddp: Callable[[Any], None]) -> None:
    """Patch the places above, as far as this version of torch has them.

    ``on_ddp`` is called with each DistributedDataParallel when it has been made.
    """
    patches.replace(torch.autograd, "backward", lambda original: _backward(tracker, reducers, original))
    patches.replace(torch.autograd, "grad", lambda original: _gradients(tracker, original))
    if not dist.is_available():
        return
    patches.replace(nn.parallel.DistributedDataParallel, "__init__", lambda original: _made(on_ddp, original))
    work = torch._C._distributed_c10d.Work  # noqa: SLF001 - the public name is a Python alias that nothing calls
    patches.replace(work, "wait", lambda original: _waiting(tracker, original))
    patches.replace(dist, "_broadcast_coalesced", lambda original: _waiting(tracker, original))
    patches.replace(dist, "monitored_barrier", lambda original: _waiting(tracker, original))


def _made(on_ddp: Callable[[Any], None], original: Callable[..., None]) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it stands in for that method
        original(self, *args, **kwargs)
        on_ddp(self)

    return __init__


def _waiting(tracker: Tracker, original: Callable[..., Any]) -> Callable[..., Any]:
    def waiting(*args: Any, **kwargs: Any) -> Any:
        token = tracker.begin_wait()
        try:
            return original(*args, **kwargs)
        finally:
            tracker.end(token)

    return waiting


def _backward(tracker: Tracker, reducers: Reducers, original: Callable[..., Any]) -> Callable[..., Any]:
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if patches.compiling():
            return original(tensors, *args, **kwargs)
        roots = _roots(tensors)
        token = tracker.begin_backward(roots[0] if roots else None)
        remove = tracker.watch_end_of_backward(roots, reducers) if token is not None else None
        try:
            return original(tensors, *args, **kwargs)
        finally:
            if remove is not None:
                remove()
            tracker.end_backward(token)

    return backward


def _gradients(tracker: Tracker, original: Callable[..., Any]) -> Callable[..., Any]:
    """``autograd.grad`` waits for nobody, but a loop that lives by it trains as well."""

    def grad(*args: Any, **kwargs: Any) -> Any:
        if not patches.compiling():
            tracker.gradients_computed()
        return original(*args, **kwargs)

    return grad


def _roots(tensors: Any) -> list[torch.Tensor]:
    """The tensors that gradients begin with; none for gradient edges, and for what may be iterated once only."""
    given = tensors if isinstance(tensors, (list, tuple)) else (tensors,)
    return [tensor for tensor in given if isinstance(tensor, torch.Tensor) and tensor.requires_grad]


def bracket_finalize(tracker: Tracker, roots: list[torch.Tensor]) -> Callable[[], None]:
    """Put A and B around what the reducer does at the end of the coming backward; returns how to take it back."""
    engine = torch.autograd.Variable._execution_engine  # noqa: SLF001 - the one way to run code at the end of backward

    def arrived() -> None:
        token = tracker.begin_wait(arrival=True)
        tracker.queue(engine, lambda: tracker.end(token))

    queued: list[bool] = []

    def first(_gradient: Any) -> None:
        if not queued:  # whichever root autograd comes to first
            queued.append(True)
            tracker.queue(engine, arrived)

    handles = [root.register_hook(first) for root in roots]

    def remove() -> None:
        for handle in handles:
            handle.remove()

    return remove
