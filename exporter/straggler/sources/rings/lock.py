"""Asks who holds the writer's lock, and never takes it.

The hook holds a POSIX record lock on its ring as long as the process lives. ``F_GETLK`` on a read-only descriptor
tells whether some other process would be in the way of a write lock: that is the hook, also in another container
without a shared PID namespace (its pid then reads as 0, which does not matter here).

Two traps. The question is about *other* processes: asked by the writer's own process, the answer is always "free".
And closing any descriptor of the file drops all locks that the process has on it, so a RingSource must not run in a
process whose own rings it reads.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys

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
    if sys.platform != "linux":
        return None  # the struct is another one, and so is the kernel that wrote the ring
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, _QUESTION)
    except OSError:
        return None
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
