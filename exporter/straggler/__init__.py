"""Straggler Exporter: find the rank that the others wait for.

In a training process::

    from straggler import StepTimer

Everything here is imported lazily, since each import is paid inside the training process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from straggler.hook import StepTimer

__all__ = ["StepTimer", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "StepTimer":
        from straggler.hook import StepTimer

        return StepTimer
    raise AttributeError(f"module 'straggler' has no attribute {name!r}")
