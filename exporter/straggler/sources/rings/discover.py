"""Finds ring files, and opens one without being led elsewhere.

Whoever may create files under the ring directory may also create links, pipes, devices and directories that change
while we look. So nothing here follows a link in any component, every directory is opened relative to its parent, and
what ``lstat`` refuses is never opened at all (opening a pipe or a device can have effects). Levels below the root are
for Kubernetes: ``<namespace>/<pod uid>/``.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from straggler.errors import SourceAbsentError, SourceFailedError
from straggler.model.reading import Problem
from straggler.wire import layout

SHARED_DIRECTORY: Final = Path("/run/straggler")
"""Made by the packaging: its own small tmpfs."""
SUFFIX: Final = ".ring"
MAX_DEPTH: Final = 2
MAX_FILES: Final = 65_536
MAX_DIRECTORIES: Final = 4_096
"""One per pod since the node started; each costs some 10 us a look."""
MAX_FILE_BYTES: Final = layout.RECORDS_OFFSET + layout.MAX_CAPACITY * 1024

_OPEN_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def default_ring_dir() -> Path:
    """Where the hook writes if nobody tells it: the shared directory if there is one, else this user's own."""
    return SHARED_DIRECTORY if SHARED_DIRECTORY.is_dir() else Path(f"/dev/shm/straggler-{os.geteuid()}")  # noqa: S108 - as the hook has it


class RingKey(NamedTuple):
    """One file: names are random and inodes may be used again, but hardly both."""

    path: str
    """Relative to the ring directory."""
    inode: int


@dataclass(slots=True)
class Scan:
    """What one walk found."""

    statuses: dict[RingKey, os.stat_result | None] = field(default_factory=dict)
    """``None`` where the caller did not want to know, or where the file was gone already."""
    problems: list[Problem] = field(default_factory=list)


def scan(
    root: Path,
    wants_status: Callable[[RingKey], bool],
    *,
    max_files: int = MAX_FILES,
    max_directories: int = MAX_DIRECTORIES,
) -> Scan:
    """Walk the ring directory and its sub-directories.

    Args:
        root: the ring directory; the only path in which links are followed, since the administrator wrote it.
        wants_status: asked for each file; a file it declines costs no system call.
        max_files: the walk stops here, and says so in a problem ``too_many_files``.
        max_directories: as ``max_files``; the problem is ``too_many_directories``.

    Raises:
        SourceAbsentError: there is no such directory.
        SourceFailedError: ``unreadable``.
    """
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SourceAbsentError(f"{root}: {error.strerror}") from error
    except OSError as error:
        raise SourceFailedError("unreadable", f"{root}: {error.strerror}") from error
    result = Scan()
    walk = _Walk(result, wants_status, max_files, max_directories)
    try:
        walk.visit(descriptor, "", 0)
    except OSError as error:
        raise SourceFailedError("unreadable", f"{root}: {error.strerror}") from error
    finally:
        os.close(descriptor)
    return result


class _Walk:
    """One walk."""

    def __init__(
        self, result: Scan, wants_status: Callable[[RingKey], bool], max_files: int, max_directories: int
    ) -> None:
        self._result = result
        self._wants_status = wants_status
        self._files_left = max_files
        self._directories_left = max_directories

    def visit(self, descriptor: int, prefix: str, depth: int) -> None:
        """Look through one open directory."""
        children = []
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if entry.name.endswith(SUFFIX):
                    if not self._files_left:
                        self._problem("too_many_files", f"{prefix!r}: the rest is not looked at")
                        return
                    self._files_left -= 1
                    self._add(entry, prefix)
                elif depth < MAX_DEPTH and entry.is_dir(follow_symlinks=False):
                    children.append(entry.name)
        for name in children:
            if not self._directories_left:
                self._problem("too_many_directories", f"{prefix!r}: remove those of pods that are long gone")
                return
            self._directories_left -= 1
            self._descend(descriptor, name, f"{prefix}{name}/", depth + 1)

    def _descend(self, parent: int, name: str, prefix: str, depth: int) -> None:
        try:
            descriptor = os.open(name, _OPEN_DIRECTORY, dir_fd=parent)
        except FileNotFoundError:
            return
        except OSError as error:
            self._problem("unreadable", f"{prefix!r}: {error.strerror}")
            return
        try:
            self.visit(descriptor, prefix, depth)
        except OSError as error:
            self._problem("unreadable", f"{prefix!r}: {error.strerror}")
        finally:
            os.close(descriptor)

    def _add(self, entry: os.DirEntry[str], prefix: str) -> None:
        key = RingKey(prefix + entry.name, entry.inode())
        status = None
        if self._wants_status(key):
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                return
        self._result.statuses[key] = status

    def _problem(self, reason: str, detail: str) -> None:
        self._result.problems.append(Problem(reason=reason, detail=detail))


def check_status(status: os.stat_result) -> None:
    """Refuse what cannot be a ring of ours.

    Raises:
        SourceFailedError: ``symlink``, ``not_regular``, ``hard_linked``, ``too_large`` or ``writable_by_others``.
    """
    if stat.S_ISLNK(status.st_mode):
        raise SourceFailedError("symlink", "links are not followed")
    if not stat.S_ISREG(status.st_mode):
        raise SourceFailedError("not_regular", stat.filemode(status.st_mode))
    if status.st_nlink > 1:
        raise SourceFailedError("hard_linked", f"{status.st_nlink} names")
    if status.st_size > MAX_FILE_BYTES:
        raise SourceFailedError("too_large", f"{status.st_size} bytes")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SourceFailedError("writable_by_others", stat.filemode(status.st_mode))


def open_ring(root: Path, key: RingKey, seen: os.stat_result) -> int:
    """Open a file that ``scan`` found, for reading.

    Args:
        root: the ring directory.
        key: the file.
        seen: what ``scan`` saw of it: the file that is opened must be the same.

    Raises:
        FileNotFoundError: it is gone, or another file has its name by now.
        SourceFailedError: as ``check_status``, or ``unreadable``.
    """
    check_status(seen)
    try:
        with _parent_of(root, key) as (parent, name):
            descriptor = os.open(name, _OPEN_FILE, dir_fd=parent)
    except FileNotFoundError:
        raise
    except OSError as error:
        reason = "symlink" if error.errno == errno.ELOOP else "unreadable"
        raise SourceFailedError(reason, str(error.strerror)) from error
    try:
        _check_same(descriptor, seen)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_same(descriptor: int, seen: os.stat_result) -> None:
    status = os.fstat(descriptor)
    check_status(status)
    if (status.st_dev, status.st_ino) != (seen.st_dev, seen.st_ino):
        raise FileNotFoundError(errno.ENOENT, "replaced since the directory was read")


def remove_ring(root: Path, key: RingKey) -> None:
    """Remove the file's name, and what a profile left beside it.

    Raises:
        FileNotFoundError: it is gone already.
        SourceFailedError: ``remove_failed``.
    """
    try:
        with _parent_of(root, key) as (parent, name):
            os.unlink(name, dir_fd=parent)
            for suffix in layout.PROFILE_SUFFIXES:
                with suppress(OSError):  # hardly ever there
                    os.unlink(name.removesuffix(SUFFIX) + suffix, dir_fd=parent)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SourceFailedError("remove_failed", str(error.strerror)) from error


@contextmanager
def _parent_of(root: Path, key: RingKey) -> Iterator[tuple[int, str]]:
    """Open the file's directory, component by component."""
    path = PurePosixPath(key.path)
    with closing(_Chain(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))) as chain:
        for name in path.parts[:-1]:
            chain.enter(name)
        yield chain.descriptor, path.name


class _Chain:
    """A directory descriptor that steps down without following links."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def enter(self, name: str) -> None:
        child = os.open(name, _OPEN_DIRECTORY, dir_fd=self.descriptor)
        os.close(self.descriptor)
        self.descriptor = child

    def close(self) -> None:
        os.close(self.descriptor)
