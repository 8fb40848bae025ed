"""What ``from straggler import StepTimer`` loads into a training process.

A monitoring hook once pulled a web framework into every rank and clashed with the versions that the training pinned.
"""

from __future__ import annotations

import subprocess
import sys

from hook_process import PACKAGE_ROOT

LIST = """
import sys
before = set(sys.modules)
from straggler import StepTimer
print(*sorted(set(sys.modules) - before))
"""
OURS = ("straggler", "straggler.errors", "straggler.hook", "straggler.wire")
NOT_BEFORE_CHOSEN = ("http", "ssl", "socket", "urllib", "email", "logging", "json", "statistics", "multiprocessing")


def loaded(code: str = LIST) -> list[str]:
    """Modules that the import adds, in an interpreter without site packages."""
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(PACKAGE_ROOT)!r})\n{code}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_standard_library_and_the_wire_alone() -> None:
    """Nothing but the standard library, the hook and the wire."""
    names = loaded()
    foreign = [
        name
        for name in names
        if name.partition(".")[0] not in sys.stdlib_module_names and not name.startswith("straggler")
    ]
    ours = [name for name in names if name.startswith("straggler")]

    assert foreign == []
    assert "straggler.hook.timer" in ours
    assert [
        name for name in ours if not (name in OURS or name.startswith(("straggler.hook.", "straggler.wire.")))
    ] == []


def test_nothing_heavy_before_it_is_chosen() -> None:
    """Sockets, HTTP, logging and the like are loaded when they are used, the PyTorch instrument by the user alone."""
    names = loaded()

    assert [name for name in names if name.partition(".")[0] in NOT_BEFORE_CHOSEN] == []
    assert [name for name in names if name.startswith(("straggler.hook.torch", "straggler.adapters"))] == []


def test_training_with_a_ring_loads_nothing_heavy_either() -> None:
    """A loop that steps, with a ring, still has neither sockets nor threads nor a log."""
    names = loaded(
        LIST.replace(
            "print(",
            "timer = StepTimer(run='r', rank=0)\nwith timer.step(), timer.phase('wait'): pass\n"
            "import os\nos.unlink(timer.ring_path)\nprint(",
        )
    )

    assert [name for name in names if name.partition(".")[0] in NOT_BEFORE_CHOSEN] == []


WORK = """
import atexit, os, threading
def state(): return os.listdir("/proc/self/fd"), threading.active_count(), atexit._ncallbacks()
before = state()
from straggler import StepTimer
print(before == state())
"""


def test_import_does_no_work() -> None:
    """Importing makes no file, thread, handler or report; only a timer whose loop begins does."""
    assert loaded(WORK) == ["True"]
