"""Patches in modules that may be imported long after us, or never: looked for, by name, where a step ends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from straggler.hook.torch.tracker import Tracker

Install = Callable[["Tracker", Any], None]
_waiting: dict[str, Install] = {}


def when_imported(tracker: Tracker, name: str, install: Install) -> None:
    """Call ``install(tracker, module)`` now, or at the end of the first step after the module was imported."""
    _waiting[name] = install
    install_arrived(tracker)


def install_arrived(tracker: Tracker) -> None:
    """Install what has been imported in the meantime."""
    if not _waiting:
        return
    for name in [name for name in _waiting if name in sys.modules]:
        _waiting.pop(name)(tracker, sys.modules[name])


def forget() -> None:
    """Wait for nothing any more."""
    _waiting.clear()
