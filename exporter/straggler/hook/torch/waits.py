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

Both are phases of one meter, so an overlap counts once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from straggler.hook.torch import patches

if TYPE_CHECKING:
    from straggler.hook.torch.session import Session


def install(session: Session) -> None:
    """Patch the places above, as far as this version of torch has them."""
    patches.replace(torch.autograd, "backward", lambda original: _backward(session, original))
    if not dist.is_available():
        return
    work = torch._C._distributed_c10d.Work  # noqa: SLF001 - the public name is a Python alias that nothing calls
    patches.replace(work, "wait", lambda original: _waiting(session, original))
    patches.replace(dist, "_broadcast_coalesced", lambda original: _waiting(session, original))
    patches.replace(dist, "monitored_barrier", lambda original: _waiting(session, original))


def _waiting(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    def waiting(*args: Any, **kwargs: Any) -> Any:
        mark = session.begin_wait()
        try:
            return original(*args, **kwargs)
        finally:
            session.end(mark)

    return waiting


def _backward(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if patches.compiling():
            return original(tensors, *args, **kwargs)
        tensors, root = _root(tensors)
        mark = session.begin_backward(root)
        handle = root.register_hook(lambda _gradient: _queue(session)) if mark >= 0 and root is not None else None
        try:
            return original(tensors, *args, **kwargs)
        finally:
            if handle is not None:
                handle.remove()
            session.end_backward(mark)

    return backward


def _root(tensors: Any) -> tuple[Any, torch.Tensor | None]:
    """The argument, safe to be used twice, and the tensor whose gradient comes first."""
    if isinstance(tensors, torch.Tensor):
        return tensors, tensors if tensors.requires_grad else None
    if not isinstance(tensors, (list, tuple)):
        return tensors, None  # a GradientEdge, or something that may be iterated once only
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
            return tensors, tensor
    return tensors, None


def _queue(session: Session) -> None:
    engine = torch.autograd.Variable._execution_engine  # noqa: SLF001 - the one way to run code at the end of backward

    def arrived() -> None:
        mark = session.begin_wait(arrival=True)
        engine.queue_callback(lambda: session.end(mark))

    engine.queue_callback(arrived)
