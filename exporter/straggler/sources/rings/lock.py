"""Asks who holds the writer's lock, and never takes it.

The hook holds a POSIX record lock on its ring as long as the process lives. ``F_GETLK`` on a read-only descriptor
tells whether some other process would be in the way of a write lock: that is the hook, also in another container
without a shared PID namespace (its pid then reads as 0: its lock is seen, and its process cannot be looked at).

Two traps. The question is about *other* processes: asked by the writer's own process, the answer is always "free".
And closing any descriptor of the file drops all locks that the process has on it, so a RingSource must not run in a
process whose own rings it reads.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from typing import NamedTuple

_FLOCK = struct.Struct("hhqqi0q")
"""``struct flock`` of 64-bit Linux, native alignment: l_type, l_whence, l_start, l_len, l_pid. 32 bytes."""

_QUESTION = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
"""A write lock from the first byte to the end of the file, however far that is: any lock is in its way."""


def lock_held(descriptor: int) -> bool | None:
    """Tell whether another process holds a record lock on the file.

    Args:
        descriptor: open for reading; that is enough to ask.

    Returns:
        ``None`` if the file system or the runtime cannot tell: that is no evidence for either.

    Source:
        fcntl(2), "Advisory record locking".
    """
    return ask_lock(descriptor).held


class Lock(NamedTuple):
    """The kernel's answer about a lock."""

    held: bool | None
    """By another process; ``None`` if it cannot be told."""
    pid: int | None = None
    """The holder's pid in the asker's PID namespace; ``None`` if the holder is not visible there."""


def ask_lock(descriptor: int) -> Lock:
    """As ``lock_held``, and who holds it."""
    if sys.platform != "linux":
        return Lock(None)  # the struct is another one, and so is the kernel that wrote the ring
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, _QUESTION)
    except OSError:
        return Lock(None)
    kind, _, _, _, pid = _FLOCK.unpack(answer)
    if kind == fcntl.F_UNLCK:
        return Lock(held=False)
    return Lock(held=True, pid=pid if pid > 0 else None)
