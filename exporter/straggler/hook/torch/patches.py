"""Replacing attributes of other people's modules, so that it can be listed and undone.

Every wrapper that goes in through here returns the original's result and raises the original's exceptions. None of
them is active while ``torch.compile`` traces, since a wrapper in a traced function breaks ``fullgraph=True``.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

compiling: Callable[[], bool] = getattr(torch.compiler, "is_dynamo_compiling", None) or torch._dynamo.is_compiling  # noqa: SLF001 - torch 2.1 and 2.2 have only this one
"""Whether ``torch.compile`` is tracing: then a wrapper steps aside. ``is_compiling`` takes twice as long."""

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
"""Of torch, e.g. ``(2, 13)``."""

_MARK = "__straggler_original__"
_undo: list[tuple[Any, str, Any]] = []


def replace(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> bool:
    """Put ``make(original)`` in the place of ``owner.name``.

    Returns:
        False if there is no such attribute (another version of the library) or it is ours already.
    """
    original = getattr(owner, name, None)
    if original is None or hasattr(original, _MARK):
        return False
    wrapper = make(original)
    with contextlib.suppress(AttributeError, TypeError):  # C functions lack some of the attributes
        functools.update_wrapper(wrapper, original)
    setattr(wrapper, _MARK, original)
    inherited = isinstance(owner, type) and name not in vars(owner)
    setattr(owner, name, wrapper)
    _undo.append((owner, name, None if inherited else original))
    return True


def remove_hook(handle: Any, *, in_use: bool) -> None:
    """Take a hook of ours out of torch's.

    Args:
        handle: a ``RemovableHandle``.
        in_use: torch may be iterating over the hooks just now, and would raise if there were one less.
    """
    hooks = handle.hooks_dict_ref()
    if in_use and hooks is not None and handle.id in hooks:
        hooks[handle.id] = _nothing
    else:
        handle.remove()


def _nothing(*_: Any) -> None:
    """Stand in for a hook of ours that is gone."""


def compiled_backward() -> bool:
    """Whether ``backward`` itself is being compiled (compiled autograd)."""
    module = sys.modules.get("torch._dynamo.compiled_autograd")
    return module is not None and bool(
        getattr(module, "compiled_autograd_enabled", False) or getattr(module, "in_compiled_autograd_region", False)
    )


def undo_all() -> None:
    """Put everything back, newest first. Wrappers that others put on top of ours stay and keep working."""
    while _undo:
        owner, name, original = _undo.pop()
        current = vars(owner).get(name) if isinstance(owner, type) else getattr(owner, name, None)
        if not hasattr(current, _MARK):
            continue
        if original is None:
            delattr(owner, name)
        else:
            setattr(owner, name, original)


def installed() -> list[str]:
    """Names of what is replaced now, e.g. ``torch.autograd.backward``; for ``--help`` and the log."""
    return [
        f"{getattr(owner, '__module__', '') or ''}.{getattr(owner, '__name__', owner)}.{name}"
        for owner, name, _ in _undo
    ]
