"""CUDA graphs: nothing of ours may happen while one is captured, and a replayed step is still a step.

A graph that holds a whole step fires no hook when it is replayed. Its steps are published with their length and
without own time (``cuda_graph``), so that such a rank is unmeasured, not hung.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from straggler.hook.torch import patches

if TYPE_CHECKING:
    from straggler.hook.torch.tracker import Tracker


def install(tracker: Tracker) -> None:
    """Patch capture and replay; importing the class does not initialise CUDA."""
    graph = torch.cuda.CUDAGraph
    whole_steps = tracker.lasting.whole_steps

    def begin(original: Callable[..., Any]) -> Callable[..., Any]:
        def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
            tracker.capture_begins()
            try:
                return original(self, *args, **kwargs)
            except BaseException:
                tracker.capture_ends()
                raise

        return capture_begin

    def end(original: Callable[..., Any]) -> Callable[..., Any]:
        def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(self, *args, **kwargs)
            finally:
                if tracker.capture_ends():
                    whole_steps.add(self)

        return capture_end

    def again(original: Callable[..., Any]) -> Callable[..., Any]:
        def replay(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self in whole_steps:
                tracker.step_replayed()
            return original(self, *args, **kwargs)

        return replay

    patches.replace(graph, "capture_begin", begin)
    patches.replace(graph, "capture_end", end)
    patches.replace(graph, "replay", again)
