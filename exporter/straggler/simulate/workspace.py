"""A directory in memory for one run, removed at its end; what runs that were killed left behind is removed by the next.

Each directory holds a file that its owner keeps locked. The lock dies with the owner, so a directory whose lock is
free belongs to nobody any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "straggler-demo-"
_LOCK = "in-use"
_MEMORY = Path("/dev/shm")  # noqa: S108 - step rings belong on a tmpfs; the name below it is made by mkdtemp


class Workspace:
    """The directory, from construction to ``close``.

    Args:
        place: where to make it; by default ``/dev/shm`` or, where that cannot be written, the directory for temporary
            files.
    """

    def __init__(self, place: Path | None = None) -> None:
        if place is None:
            place = _MEMORY if os.access(_MEMORY, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
        _sweep(place)
        self.directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        early = self.directory / f"{_LOCK}.new"  # locked before it has its name: no moment for a sweep in between
        self._lock = os.open(early, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        early.rename(self.directory / _LOCK)

    def close(self, *, keep: bool = False) -> None:
        """Remove the directory, or leave it for somebody to look at: then no later run removes it either."""
        if keep:
            (self.directory / _LOCK).unlink()
        else:
            shutil.rmtree(self.directory, ignore_errors=True)
        os.close(self._lock)


def _sweep(place: Path) -> None:
    for directory in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # not ours, or in use, or kept, or gone in this moment
            lock = os.open(directory / _LOCK, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.getuid():
                    shutil.rmtree(directory)
            finally:
                os.close(lock)
