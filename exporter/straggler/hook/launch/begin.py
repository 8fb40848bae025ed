"""Torch has just been imported in a process that somebody wants measured."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePath

from straggler.hook.options import is_disabled

_LAUNCHERS = frozenset(
    {
        "torchrun",
        "torch.distributed.run",
        "torch.distributed.launch",
        "accelerate",
        "accelerate.commands.launch",
        "accelerate.commands.accelerate_cli",
        "deepspeed",
        "deepspeed.launcher.launch",
        "deepspeed.launcher.runner",
    }
)
"""Programs and modules that import torch to start ranks, and are none. Others are seen not to train anyway."""


def begin() -> None:
    """Put the instrument in, unless this is a launcher or the hook is switched off. Again is harmless."""
    if is_disabled(os.environ) or is_launcher(sys.argv, sys.orig_argv):
        return
    from straggler.hook.launch.rank import timer_of_rank  # noqa: PLC0415 - launchers do not pay for it
    from straggler.hook.torch import install  # noqa: PLC0415 - same

    install.start(timer_of_rank)


def is_launcher(argv: Sequence[str], original: Sequence[str]) -> bool:
    """Whether a program that starts ranks is what runs here.

    Args:
        argv: ``sys.argv``; its first is ``-m`` while Python looks for a module to run, and that imports torch.
        original: ``sys.orig_argv``.
    """
    program = argv[0] if argv else ""
    if program == "-m":
        return any(flag == "-m" and name in _LAUNCHERS for flag, name in pairwise(original))
    return PurePath(program).name in _LAUNCHERS
