"""Reads small files below one directory, and never leaves it.

Directories are opened one by one without following links, so what is swapped meanwhile cannot lead elsewhere.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final

MOST_BYTES: Final = 4096
"""As much as a file of sysfs can hold."""

_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO})
"""It is not there, or its device goes away while one asks."""
_NOT_COUNTED: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENODATA, errno.EPROTONOSUPPORT})
"""The driver's way to say that it does not have this value: firmware of some adapters refuses single attributes."""


def is_absence(error: OSError) -> bool:
    """Whether the error only says that there is no such value here."""
    return error.errno in _GONE or error.errno in _NOT_COUNTED


@contextmanager
def opened(name: str, parent: int | None = None) -> Iterator[int]:
    """A directory as a descriptor.

    Args:
        name: a path, or a name in ``parent``; its last part must be no link.
        parent: a directory; ``None`` for a path.

    Raises:
        OSError: there is none, it is a link, or it may not be read.
    """
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_text(name: str, directory: int) -> str:
    """The text of one file.

    Raises:
        OSError: as the kernel says it; ``ELOOP`` where it is a link, ``EBADF`` where it is no file.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, "is no regular file")
        return os.read(descriptor, MOST_BYTES).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def names_in(directory: int | str, most: int) -> list[str]:
    """Names in a directory, in order; at most ``most`` + 1 of them, so that one can tell whether there are more.

    Raises:
        OSError: it cannot be listed.
    """
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in islice(entries, most + 1))
