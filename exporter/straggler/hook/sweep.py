"""Removes this user's old rings from ``/dev/shm``, where no sidecar may ever come by to do it.

A ring is 1.3 MB of memory. Eight of them a day on a machine without a sidecar would be a leak, so a new ring removes
those that nobody holds and nobody wrote for a day. Only in the directory of the user's own: elsewhere the sidecar does
it, after a grace period of its own.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Collection
from contextlib import suppress

from straggler.wire.layout import PROFILE_SUFFIXES

OLD_SECONDS = 24 * 3600.0
_MOST = 256
"""Looked at per start: the training waits for this."""


def remove_old_rings(directory: str, now: float, keep: Collection[str] = ()) -> int:
    """Remove rings that are unlocked and a day old.

    Args:
        directory: of this user alone (``directory.own_directory``).
        now: seconds since the epoch.
        keep: paths that this process has open. Even closing another descriptor of such a file would drop its lock.

    Returns:
        How many were removed.
    """
    removed = 0
    names = [name for name in os.listdir(directory) if name.endswith(".ring")]  # noqa: PTH208 - pathlib costs 5 ms
    for name in names[:_MOST]:
        path = f"{directory}/{name}"
        if path in keep:
            continue
        try:
            removed += _remove_if_old(path, now)
        except OSError:
            continue  # another rank was faster, or somebody holds it
    return removed


def _remove_if_old(path: str, now: float) -> bool:
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode) or now - status.st_mtime < OLD_SECONDS:
        return False
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its writer lives
        os.unlink(path)  # noqa: PTH108 - as above
        for suffix in PROFILE_SUFFIXES:
            with suppress(OSError):  # hardly ever there
                os.unlink(path.removesuffix(".ring") + suffix)  # noqa: PTH108 - as above
    finally:
        os.close(fd)
    return True
