"""Replacing attributes of other people's modules, so that it can be listed and undone.

Every wrapper that goes in through here returns the original's result and raises the original's exceptions. None of
them is active while ``torch.compile`` traces, since a wrapper in a traced function breaks ``fullgraph=True``.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from straggler.hook.guard import attempt

compiling: Callable[[], bool] = getattr(torch.compiler, "is_dynamo_compiling", None) or torch._dynamo.is_compiling  # noqa: SLF001 - torch 2.1 and 2.2 have only this one
"""Whether ``torch.compile`` is tracing: then a wrapper steps aside. ``is_compiling`` takes twice as long."""

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
"""Of torch, e.g. ``(2, 13)``."""
_TABLES = (
    ("torch._dynamo.trace_rules", ("get_torch_obj_rule_map",)),
    ("torch._dynamo.variables.torch", ("TorchInGraphFunctionVariable", "_get_handlers")),
)
"""Modules, and where in them the functions are that give the tables of ``_tell_compiler``."""


class _Patch(NamedTuple):
    owner: Any
    name: str
    original: Any
    wrapper: Any
    inherited: bool
    """The original is a base class's, so there is nothing to put back."""
    stays: bool


_done: list[_Patch] = []


def replace(
    owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]], *, stays: bool = False
) -> bool:
    """Put ``make(original)`` in the place of ``owner.name``.

    Args:
        owner: module, class or object.
        name: of its attribute.
        make: gives the wrapper.
        stays: do not put the original back: the wrapper does nothing once it is not asked to.

    Returns:
        False if there is no such attribute (another version of the library) or it is ours already.
    """
    original = getattr(owner, name, None)
    if original is None or is_ours(original):
        return False
    wrapper = make(original)
    with contextlib.suppress(AttributeError, TypeError):  # C functions lack some of the attributes
        functools.update_wrapper(wrapper, original)
    inherited = isinstance(owner, type) and name not in vars(owner)
    _tell_compiler(original, wrapper)
    setattr(owner, name, wrapper)
    _done.append(_Patch(owner, name, original, wrapper, inherited, stays))
    return True


def is_ours(function: Any) -> bool:
    """Whether this is a wrapper that is in now. Whoever wraps one with ``functools.wraps`` has its attributes too."""
    return any(patch.wrapper is function for patch in _done)


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


def compiler_arrived() -> None:
    """Have the compiler take wrappers and originals for the same; again is harmless."""
    for patch in _done:
        _tell_compiler(patch.wrapper, patch.original)
        _tell_compiler(patch.original, patch.wrapper)


def _tell_compiler(known: Any, other: Any, *, forget: bool = False) -> None:
    """What the compiler knows of one function holds for another; ``forget``: and no longer for the first.

    It knows some of torch's functions by identity, in tables that it makes once in a process: with our wrappers if we
    came first, else with the originals. torch 2.1 has no such tables; of other versions nothing is expected.
    """
    for module, names in _TABLES:
        table: Any = sys.modules.get(module)
        for name in names:
            table = getattr(table, name, None)
        with contextlib.suppress(Exception):
            if table is not None and known in (entries := table()):
                entries.setdefault(other, entries[known])
                if forget:
                    del entries[known]


def undo_all() -> None:
    """Put everything back, newest first. Wrappers that others put on top of ours stay and keep working."""
    while _done:
        attempt(_undo, _done.pop())


def _undo(patch: _Patch) -> None:
    owner, name, original, wrapper, inherited, stays = patch
    current = vars(owner).get(name) if isinstance(owner, type) else getattr(owner, name, None)
    if current is not wrapper or stays:
        return
    _tell_compiler(wrapper, original, forget=True)
    if inherited:
        delattr(owner, name)
    else:
        setattr(owner, name, original)


def installed() -> list[str]:
    """Names of what is replaced now, e.g. ``torch.autograd.backward``; for ``--help`` and the log."""
    return [
        f"{getattr(owner, '__module__', '') or ''}.{getattr(owner, '__name__', owner)}.{name}"
        for owner, name, *_ in _done
    ]
