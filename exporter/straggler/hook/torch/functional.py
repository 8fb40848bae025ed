"""Functional and DTensor collectives: seen where Python waits for them, else owned up to.

Run eagerly they end in the Python function ``wait_tensor`` (an ``AsyncCollectiveTensor`` calls it when somebody looks
at it; so does DTensor, e.g. in ``clip_grad_norm_`` under FSDP2), which is a wait like ``Work.wait``. Two forms wait in
C++ where nothing sees them, and make own time absent (``hidden_collectives``):

- compiled into a graph by ``torch.compile``: each graph is looked through once, when it is compiled;
- the ``…_autograd`` variants, whose backward waits inside the autograd engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from straggler.hook.torch import late, patches

if TYPE_CHECKING:
    from straggler.hook.torch.tracker import Tracker

_SPACES = ("_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "_dtensor", "_functional_collectives")


def install(tracker: Tracker) -> None:
    """Patch the Python module of functional collectives and the compiler, when they are imported."""
    late.when_imported(tracker, "torch.distributed._functional_collectives", _install_eager)
    late.when_imported(tracker, "torch._dynamo.output_graph", _install_compiled)
    late.when_imported(tracker, "torch._dynamo.variables.torch", lambda *_: patches.compiler_arrived())
    # ``torch.compile`` imports the compiler, which may see its first graph before the first step ends.
    patches.replace(torch, "compile", lambda original: _compiles(tracker, original))


def _install_eager(tracker: Tracker, module: Any) -> None:
    patches.replace(module, "wait_tensor", lambda original: _waits(tracker, original))
    for name in dir(module):
        if name.endswith("_autograd") and not name.startswith("_"):
            patches.replace(module, name, lambda original: _hides(tracker, original))


def _install_compiled(tracker: Tracker, module: Any) -> None:
    patches.replace(
        getattr(module, "OutputGraph", None), "call_user_compiler", lambda original: _inspects(tracker, original)
    )


def _compiles(tracker: Tracker, original: Callable[..., Any]) -> Callable[..., Any]:
    def compile(*args: Any, **kwargs: Any) -> Any:  # noqa: A001 - torch's name
        compiled = original(*args, **kwargs)
        if not patches.compiling():
            tracker.look_for_imports()
        return compiled

    return compile


def _waits(tracker: Tracker, original: Callable[..., Any]) -> Callable[..., Any]:
    def wait_tensor(tensor: Any) -> Any:
        if patches.compiling():
            return original(tensor)
        token = tracker.begin_wait()
        try:
            return original(tensor)
        finally:
            tracker.end(token)

    return wait_tensor


def _hides(tracker: Tracker, original: Callable[..., Any]) -> Callable[..., Any]:
    def hidden(*args: Any, **kwargs: Any) -> Any:
        if not patches.compiling():
            tracker.saw_hidden_collective()
        return original(*args, **kwargs)

    return hidden


def _inspects(tracker: Tracker, original: Callable[..., Any]) -> Callable[..., Any]:
    def call_user_compiler(self: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
        tracker.saw_compiled_graph(lambda: _has_collectives(graph))
        return original(self, graph, *args, **kwargs)

    return call_user_compiler


def _has_collectives(graph: Any) -> bool:
    """Whether a graph communicates: by functional collectives, or by DTensors, which become such only later."""
    return any(_is_dtensor(value) for value in graph.parameters()) or any(
        _is_collective(node.target) if node.op == "call_function" else _is_dtensor(node.meta.get("example_value"))
        for node in graph.graph.nodes
    )


def _is_collective(target: Any) -> bool:
    # E.g. ``torch._ops._c10d_functional`` of the operator ``torch.ops._c10d_functional.all_reduce``
    module = str(getattr(target, "__module__", ""))
    return module.rpartition(".")[2] in _SPACES


def _is_dtensor(value: Any) -> bool:
    return type(value).__name__ == "DTensor"
