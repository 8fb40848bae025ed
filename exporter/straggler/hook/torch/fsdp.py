"""Where FSDP's compute stream waits for its communication streams, on a GPU.

On the CPU every gather and scatter waits in ``Work.wait``, and nothing here matters. On a GPU FSDP launches its
collectives on streams of its own and makes the compute stream wait for them by ``wait_event`` and ``wait_stream``, in
the functions listed below. While one of them runs, such a wait *of the compute stream* is bracketed. Everywhere else
the same calls are left alone: a user's prefetching waits for a copy, not for peers.

The collectives themselves are waited for on FSDP's streams too (``Work.wait`` there costs the compute stream nothing);
inside the listed functions that is no reason to distrust the step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from straggler.hook.torch import late, patches

if TYPE_CHECKING:
    from straggler.hook.torch.tracker import Tracker

_GROUP = ("unshard", "wait_for_unshard", "post_backward", "finalize_backward", "_wait_for_post_backward")
_STATE = ("_root_post_backward_final_callback",)
_FSDP1 = (
    "_unshard",
    "_pre_forward_unshard",
    "_pre_backward_hook",
    "_prefetch_handle",
    "_reduce_grad",
    "_reduce_grad_no_shard",
    "_post_backward_final_callback",
)
_PACKAGES_FSDP2 = (  # the first since 2.6, the second before
    "torch.distributed.fsdp._fully_shard",
    "torch.distributed._composable.fsdp",
)


class _Inside(threading.local):
    depth = 0


def install(tracker: Tracker) -> None:
    """Patch FSDP1 and FSDP2 when they are imported, and the streams' waits."""
    inside = _Inside()

    def watch(owner: Any, names: tuple[str, ...]) -> None:
        for name in names:
            patches.replace(owner, name, lambda original: _known(tracker, inside, original))
        for name in ("wait_event", "wait_stream"):
            patches.replace(torch.cuda.Stream, name, lambda original: _stream_waits(tracker, inside, original))

    for package in _PACKAGES_FSDP2:
        late.when_imported(
            tracker,
            f"{package}._fsdp_param_group",
            lambda _, found: watch(getattr(found, "FSDPParamGroup", None), _GROUP),
        )
        late.when_imported(
            tracker, f"{package}._fsdp_state", lambda _, found: watch(getattr(found, "FSDPState", None), _STATE)
        )
    late.when_imported(tracker, "torch.distributed.fsdp._runtime_utils", lambda _, found: watch(found, _FSDP1))


def _known(tracker: Tracker, inside: _Inside, original: Callable[..., Any]) -> Callable[..., Any]:
    def known(*args: Any, **kwargs: Any) -> Any:
        inside.depth += 1
        tracker.side_waits_are_seen += 1
        try:
            return original(*args, **kwargs)
        finally:
            inside.depth -= 1
            tracker.side_waits_are_seen -= 1

    return known


def _stream_waits(tracker: Tracker, inside: _Inside, original: Callable[..., Any]) -> Callable[..., Any]:
    def waits(self: Any, other: Any) -> Any:
        if not inside.depth or self != torch.cuda.current_stream():
            return original(self, other)
        token = tracker.begin_wait()
        try:
            return original(self, other)
        finally:
            tracker.end(token)

    return waits
