"""Whether jobs can write rings and the sidecar can read them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from straggler.sidecar.doctor.finding import Finding, Health
from straggler.wire import layout

CHECK = "ring_directory"
_RING_BYTES = layout.RECORDS_OFFSET + 4096 * layout.RECORD_BYTES
"""One rank's."""
_MEMORY = frozenset({"tmpfs", "ramfs"})


def examine_directory(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> Iterator[Finding]:
    """Look at the ring directory.

    Args:
        path: it.
        mounts: the table that tells file systems apart.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        yield Finding(CHECK, Health.ABSENT, f"there is no {path}", f"install -d -m 3733 {path}")
        return
    except OSError as error:
        yield Finding(CHECK, Health.BROKEN, f"{path}: {error.strerror}", f"ls -ld {path}")
        return
    if not stat.S_ISDIR(status.st_mode):
        yield Finding(CHECK, Health.BROKEN, f"{path} is no directory", f"rm {path} && install -d -m 3733 {path}")
        return
    faults = list(_faults(path, status, mounts))
    if faults:
        yield from faults
        return
    yield Finding(CHECK, Health.OK, f"{path}: {stat.filemode(status.st_mode)}, for {_who_writes(path, status)}")


def _faults(path: Path, status: os.stat_result, mounts: Path) -> Iterator[Finding]:
    kind = filesystem_of(status.st_dev, mounts)
    if kind is not None and kind not in _MEMORY:
        text = f"{path} is on {kind}; a hook writes to memory only, since a disk or a server can block training"
        yield Finding(CHECK, Health.BROKEN, text, f"mount -t tmpfs -o mode=3733,size=256m straggler {path}")
    if not os.access(path, os.R_OK | os.X_OK):
        text = f"this user ({os.geteuid()}) cannot read {path}, which is of group {status.st_gid}"
        yield Finding(CHECK, Health.BROKEN, text, "run the sidecar and doctor as a member of that group, or as root")
        return
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        yield Finding(CHECK, Health.BROKEN, f"any user can delete others' rings in {path}", f"chmod 3733 {path}")
    elif not _others_write(status) and status.st_uid != os.geteuid() and not _has_directories(path):
        text = f"only user {status.st_uid} and group {status.st_gid} can write rings to {path}"
        yield Finding(CHECK, Health.BROKEN, text, f"chmod 3733 {path}")
    room = os.statvfs(path)
    free = room.f_bavail * room.f_frsize
    if free < _RING_BYTES or (room.f_files and not room.f_favail):
        text = f"{path} is full: {free} bytes and {room.f_favail} files left, a ring takes {_RING_BYTES} bytes"
        yield Finding(CHECK, Health.BROKEN, text, f"mount -o remount,size=256m,nr_inodes=16k {path}")


def filesystem_of(device: int, mounts: Path) -> str | None:
    """Name of the file system with that device number; ``None`` if the table does not have it.

    Source:
        Linux kernel, Documentation/filesystems/proc.rst, 3.5.
    """
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        # 25 24 0:23 / /dev/shm rw,relatime shared:4 - tmpfs tmpfs rw,size=24684096k
        before, _, after = line.partition(" - ")
        if wanted in before.split(" ")[2:3]:
            return after.partition(" ")[0]
    return None


def _others_write(status: os.stat_result) -> bool:
    return status.st_mode & 0o003 == 0o003  # enter and create; listing is not needed


def _has_directories(path: Path) -> bool:
    """Whether there are places below it, as a kubelet makes them for pods."""
    with os.scandir(path) as entries:
        return any(entry.is_dir(follow_symlinks=False) for entry in entries)


def _who_writes(path: Path, status: os.stat_result) -> str:
    if _others_write(status):
        return "the jobs of all users"
    if _has_directories(path):
        return "jobs that have a directory below it"
    return f"the jobs of user {status.st_uid} alone"
