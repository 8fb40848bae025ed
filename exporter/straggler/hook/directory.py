"""Where the ring goes: a tmpfs, known to be one before anything touches the path.

A write to a hung NFS server blocks the process for hours, and so does a mere ``stat``. The mount table in
``/proc/self/mountinfo`` can be read without touching any file system, so the path is first followed through it: a
symbolic link is read only where the directory that holds it is on a local file system.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

from straggler.errors import RingError

DEFAULT = "/run/straggler"
"""Made by the sidecar's packaging: its own small tmpfs, mode 3733."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - not a temporary file: the directory in it is ours and checked
MEMORY = frozenset({"tmpfs", "ramfs"})
_LOCAL = MEMORY | {"btrfs", "devtmpfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "rootfs", "squashfs", "xfs", "zfs"}
_MAX_LINKS = 16
_NOT_HERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS})


class Mount(NamedTuple):
    """One line of the mount table."""

    point: str
    filesystem: str


def read_mounts(path: str = "/proc/self/mountinfo") -> list[Mount]:
    """Read the mount table; a later line hides an earlier one of the same point.

    Raises:
        RingError: there is none (not Linux, or no ``/proc``).
    """
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as table:  # noqa: PTH123 - pathlib costs 5 ms
            return parse_mounts(table.read())
    except OSError as error:
        raise RingError(f"cannot tell what file system the ring would be on: {error}") from error


def parse_mounts(text: str) -> list[Mount]:
    """Turn a mount table into mounts; lines that are none are left out.

    Source:
        Linux kernel, Documentation/filesystems/proc.rst, 3.5.
    """
    mounts = []
    for line in text.splitlines():
        # 25 24 0:23 / /dev/shm rw,relatime shared:4 - tmpfs tmpfs rw,size=24684096k
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        if dash and len(fields) >= 6:
            mounts.append(Mount(_unescape(fields[4]), after.split(" ", 1)[0]))
    return mounts


def _unescape(point: str) -> str:
    """A blank, tab, line break and backslash stand as octal numbers."""
    for escaped, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(escaped, character)
    return point


def mount_of(path: str, mounts: list[Mount]) -> Mount:
    """The mount that an absolute path without links is on."""
    best = Mount("/", "rootfs")
    for mount in mounts:
        point = mount.point
        inside = path == point or path.startswith(point if point == "/" else point + "/")
        if inside and len(point) >= len(best.point):
            best = mount
    return best


def resolve(path: str, mounts: list[Mount]) -> str:
    """Follow symbolic links, touching local file systems only.

    Raises:
        RingError: the way leads over a file system that may hang, or in a circle.
    """
    parts, here, links = path.split("/"), "", 0
    points = {mount.point for mount in mounts}
    while parts:
        part = parts.pop(0)
        if part in ("", "."):
            continue
        if part == "..":
            here = here.rpartition("/")[0]
            continue
        holder, here = here or "/", f"{here}/{part}"
        if here in points:
            continue  # a mount point is a directory, and what is mounted there may hang
        mount = mount_of(holder, mounts)
        if mount.point != "/" and mount.filesystem not in _LOCAL:
            raise RingError(f"{path} is on {mount.filesystem} ({mount.point}), not on tmpfs")
        try:
            target = os.readlink(here)  # noqa: PTH115 - pathlib costs 5 ms
        except OSError:
            continue  # no link, or not there: opening the file will tell
        links += 1
        if links > _MAX_LINKS:
            raise RingError(f"{path} has too many symbolic links")
        parts = target.split("/") + parts
        here = "" if target.startswith("/") else here.rpartition("/")[0]
    return here or "/"


def memory_path(path: str, mounts: list[Mount]) -> str:
    """The path without links, if it is in memory.

    Raises:
        RingError: it is on another file system, or may not be looked at.
    """
    resolved = resolve(os.path.abspath(path), mounts)  # noqa: PTH100 - pathlib costs 5 ms
    mount = mount_of(resolved, mounts)
    if mount.filesystem not in MEMORY:
        raise RingError(f"{path} is on {mount.filesystem} ({mount.point}), not on tmpfs")
    return resolved


def candidates(given: str | None, *, allow_any_filesystem: bool) -> list[str]:
    """The directories to try, in this order; the ring goes into the first that can be written.

    Args:
        given: the user's choice, or ``None``. With a choice there is no second candidate.
        allow_any_filesystem: the user takes the risk that a write may block.

    Raises:
        RingError: none is left.
    """
    if given:
        if allow_any_filesystem:
            return [given]
        return [memory_path(given, read_mounts())]
    mounts = read_mounts()
    found = [path for path in (DEFAULT, SHARED_MEMORY) if _is_in_memory(path, mounts)]
    if not found:
        raise RingError(f"neither {DEFAULT} nor {SHARED_MEMORY} is on tmpfs: set STRAGGLER_DIR to a directory that is")
    return found


def _is_in_memory(path: str, mounts: list[Mount]) -> bool:
    try:
        memory_path(path, mounts)
    except RingError:
        return False
    return True


def is_not_here(error: OSError) -> bool:
    """Whether the next candidate should be tried: a full directory is no reason, the sidecar looks there."""
    return error.errno in _NOT_HERE


def own_directory(shared_memory: str) -> str:
    """The user's own directory in ``/dev/shm``, for processes of this user (a sidecar as this user or root) alone.

    Raises:
        OSError: it can neither be made nor looked at.
        RingError: the name is taken by something of another user, or others may write there.
    """
    user = os.geteuid()
    path = f"{shared_memory}/straggler-{user}"
    try:
        os.mkdir(path, 0o700)  # noqa: PTH102 - pathlib costs 5 ms
    except FileExistsError:
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != user or status.st_mode & 0o022:
            raise RingError(f"{path} is not a directory of user {user} alone: remove it or set STRAGGLER_DIR") from None
    return path
