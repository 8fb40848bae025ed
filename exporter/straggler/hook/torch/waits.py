"""Time blocked on peers: every way in which PyTorch waits for other ranks, each moment counted once.

Two kinds of waiting, and nothing else, have to be seen:

1. **The reducer's finalize.** DDP launches its all-reduces from C++ while gradients become ready and waits for them in
   a callback that autograd runs at the very end of ``backward``. No Python function is called for any of it. But
   callbacks run in the order in which they were queued. So ``torch.autograd.backward`` is wrapped to put a hook on the
   root tensor, which fires before any other gradient is computed, hence before DDP queues its own callback. The hook
   queues **A**. When A runs, the rank's own gradients are ready: it has *arrived*. DDP's finalize comes next, and then
   ``backward`` returns: that is **B**. The wait is A to B. What comes after, host code between ``backward`` and
   ``step``, a closure, clipping, is own time again, which a measurement up to the optimizer's hook would call waiting.
2. **``Work.wait``**, which every synchronous collective, barrier, object collective, send and receive goes through, as
   do FSDP's gathers and scatters. Patching it instead of ``dist.all_reduce`` and its kin keeps
   ``torch.compile(fullgraph=True)`` whole. ``_broadcast_coalesced`` (DDP's buffers) waits in C++ and is wrapped too.

Both are phases of one meter, so an overlap counts once. Under ``no_sync`` nothing is waited for: no A and no B.
``functional.py`` and ``fsdp.py`` have what these two do not see.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
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
        self._modules: set[weakref.ref[Any]] = set()

    def add(self, module: Any) -> bool:
        """Remember one; false if it is known."""
        reference = weakref.ref(module, self._modules.discard)
        is_new = reference not in self._modules
        self._modules.add(reference)
        return is_new

    def synchronize(self) -> bool:
        """Whether the coming backward waits for peers at its end. If no module is known, it may."""
        if not self._modules:
            return bool(dist.is_available() and dist.is_initialized())
        for reference in tuple(self._modules):  # noqa: SIM110 - no generator, for speed. One may die meanwhile
            if getattr(reference(), "require_backward_grad_sync", False):
                return True
        return False


def install(tracker: Tracker, reducers: Reducers, on_ddp: Callable[[Any], None]) -> None:
    """Patch the places above, as far as this version of torch has them.

    ``on_ddp`` is called with each DistributedDataParallel when it has been made.
    """
    tracker.synchronizes = reducers.synchronize
    patches.replace(torch.autograd, "backward", lambda original: _backward(tracker, original))
    patches.replace(torch.autograd, "grad", lambda original: _gradients(tracker, original))
    if not dist.is_available():
        return
    patches.replace(nn.parallel.DistributedDataParallel, "__init__", lambda original: _made(on_ddp, original))
    for module in tuple(tracker.lasting.ddp):  # of an earlier instrument
        on_ddp(module)
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


def _backward(tracker: Tracker, original: Callable[..., Any]) -> Callable[..., Any]:
    compiling, begin, end = patches.compiling, tracker.begin_backward, tracker.end_backward

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if compiling():
            return original(tensors, *args, **kwargs)
        is_one = isinstance(tensors, torch.Tensor)  # Tensor.backward
        token = begin((tensors,) if is_one and tensors.requires_grad else () if is_one else _roots(tensors))
        try:
            return original(tensors, *args, **kwargs)
        finally:
            if token is not None:
                end(token)

    return backward


def _gradients(tracker: Tracker, original: Callable[..., Any]) -> Callable[..., Any]:
    """``autograd.grad`` waits for nobody, but a loop that lives by it trains as well."""

    def grad(*args: Any, **kwargs: Any) -> Any:
        if not patches.compiling():
            tracker.gradients_computed()
        return original(*args, **kwargs)

    return grad


def _roots(tensors: Any) -> tuple[torch.Tensor, ...]:
    """The tensors that gradients begin with; none for gradient edges, and for what may be iterated once only."""
    given = tensors if isinstance(tensors, (list, tuple)) else ()
    return tuple(tensor for tensor in given if isinstance(tensor, torch.Tensor) and tensor.requires_grad)


def hook_gradient(root: torch.Tensor, hook: Callable[[Any], None]) -> tuple[MutableMapping[int, Any], int]:
    """As ``root.register_hook``; returns where the hook is, the hooks of this tensor and its key, to remove it by.

    Nearly always the root is a plain loss that nobody has hooked. Then this does what ``register_hook`` does to it,
    without the handle, which takes five times as long.
    """
    if type(root) is torch.Tensor and root._backward_hooks is None:  # noqa: SLF001 - as above
        node = root.grad_fn
        if node is not None:
            hooks: OrderedDict[int, Any] = OrderedDict()
            hooks[-1] = hook  # handles count from 0
            root._backward_hooks = hooks  # noqa: SLF001 - as above
            node._register_hook_dict(root)  # noqa: SLF001 - as above
            return hooks, -1
    handle = root.register_hook(hook)
    return handle.hooks_dict_ref(), handle.id
