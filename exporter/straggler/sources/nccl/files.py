"""Finds logs by their names, and opens one without being led elsewhere.

Whoever may write a log's directory may put a link, a pipe or a device there. So the file itself must be a regular one
without a second name; links are followed only in the part of the pattern that has no wildcard, since the administrator
wrote it.
"""

from __future__ import annotations

import errno
import glob
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from straggler.errors import SourceFailedError

_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_NAMES: Final = 16_384
"""A pattern that matches more is not read on: it would take seconds to ask about each."""


def find(patterns: Iterable[str]) -> Iterator[Path]:
    """Give what the patterns match, each path once, whatever it is.

    Args:
        patterns: absolute paths; ``*``, ``?``, ``[…]`` and ``**`` as in a shell.

    Raises:
        SourceFailedError: ``unreadable``: a directory before the first wildcard may not be looked into.
    """
    seen: set[Path] = set()
    for pattern in patterns:
        root, rest = _split(pattern)
        real_root = _readable(root)
        for path in root.glob(rest):
            if len(seen) >= _MAX_NAMES:
                return
            if path not in seen and path.parent.resolve() == real_root / path.parent.relative_to(root):
                seen.add(path)
                yield path


def _readable(root: Path) -> Path:
    """The real directory. ``Path.glob`` passes over what it may not read, as if nothing were there."""
    try:
        with os.scandir(root):
            return root.resolve()
    except (FileNotFoundError, NotADirectoryError):
        return root
    except OSError as error:
        raise SourceFailedError("unreadable", f"{root}: {error.strerror}") from error


def _split(pattern: str) -> tuple[Path, str]:
    """The directories of a pattern before its first wildcard, and the rest of it."""
    parts = Path(pattern).parts
    fixed = next((place for place, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    fixed = min(fixed, len(parts) - 1)
    return Path(*parts[:fixed]), str(Path(*parts[fixed:]))


def check_status(status: os.stat_result, check_owner: Callable[[os.stat_result], None]) -> None:
    """Refuse what is no log, or proves nothing.

    Args:
        status: of the file.
        check_owner: refuses users who may not be believed.

    Raises:
        SourceFailedError: ``symlink``, ``not_regular``, ``hard_linked``, ``writable_by_others`` or ``wrong_owner``.
    """
    if stat.S_ISLNK(status.st_mode):
        raise SourceFailedError("symlink", "links are not followed: name the file itself")
    if not stat.S_ISREG(status.st_mode):
        raise SourceFailedError("not_regular", stat.filemode(status.st_mode))
    if status.st_nlink > 1:
        raise SourceFailedError("hard_linked", f"{status.st_nlink} names")
    if status.st_mode & stat.S_IWOTH:
        raise SourceFailedError("writable_by_others", stat.filemode(status.st_mode))
    check_owner(status)


def open_log(path: Path, seen: os.stat_result, check_owner: Callable[[os.stat_result], None]) -> int:
    """Open a log for reading. What ``lstat`` refuses is not opened at all.

    Args:
        path: the file.
        seen: its status a moment ago: what is opened must be the same file.
        check_owner: as for ``check_status``.

    Raises:
        FileNotFoundError: it is gone, or another file has its name by now.
        SourceFailedError: as ``check_status``, or ``unreadable``.
    """
    check_status(seen, check_owner)
    try:
        descriptor = os.open(path, _OPEN)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SourceFailedError(
            "symlink" if error.errno == errno.ELOOP else "unreadable", str(error.strerror)
        ) from error
    try:
        _check_same(os.fstat(descriptor), seen, check_owner)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_same(status: os.stat_result, seen: os.stat_result, check_owner: Callable[[os.stat_result], None]) -> None:
    check_status(status, check_owner)
    if (status.st_dev, status.st_ino) != (seen.st_dev, seen.st_ino):
        raise FileNotFoundError(errno.ENOENT, "replaced since the directory was read")
