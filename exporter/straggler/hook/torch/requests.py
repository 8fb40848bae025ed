"""Requests for a profile: who may ask, and how they are answered, beside the ring.

The shared ring directory lets every user of the node create files, and hands its group to all of them; so only the
owner of a request tells who made it. A request counts if it belongs to this user, to root, or to the owner of the
directory, who is the sidecar's user. Names of rings are random and cannot be listed there, so that nobody else even
knows what to write. A directory without the sticky bit is that of one tenant, whose users may remove each other's
rings: in a pod, where the sidecar is another user than the pod's and the directory is root's. There anybody may ask.
Nothing here follows a link, opens a pipe or waits.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from straggler.errors import WireError
from straggler.wire import profile
from straggler.wire.profile import Answer, Request

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE = 0o640


class Mailbox:
    """Requests and answers of one ring.

    Args:
        ring: path of the ring.
        warn: told of a request that is not believed.
    """

    def __init__(self, ring: str, warn: Callable[[str, str], None]) -> None:
        self.ring = ring
        self.stem = ring.removesuffix(".ring")
        self._warn = warn
        self._seen: tuple[int, int] | None = None
        """Inode and time of the last request, so that it is read once."""

    def look(self) -> Request | None:
        """A request that is new and may be believed. Costs one failing ``stat`` as long as there is none."""
        path = self.stem + profile.REQUEST_SUFFIX
        try:
            status = os.lstat(path)
        except OSError:
            return None
        signature = status.st_ino, status.st_mtime_ns
        if signature == self._seen:
            return None
        self._seen = signature
        try:
            return self._read(path)
        except (OSError, WireError) as error:
            self._warn("profile", f"a request for a profile is ignored: {error}")
            return None

    def _read(self, path: str) -> Request:
        descriptor = os.open(path, _READ)
        try:
            status = os.fstat(descriptor)
            self._check(status)
            return profile.decode_request(os.read(descriptor, profile.MAX_BYTES + 1))
        finally:
            os.close(descriptor)

    def _check(self, status: os.stat_result) -> None:
        directory = os.stat(os.path.dirname(self.ring))  # noqa: PTH116, PTH120 - as everywhere in the hook
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_size > profile.MAX_BYTES:
            raise WireError("bad_value", f"{stat.filemode(status.st_mode)}, {status.st_size} bytes")
        is_shared = bool(directory.st_mode & stat.S_ISVTX)
        if is_shared and status.st_uid not in (os.geteuid(), 0, directory.st_uid):
            raise WireError("bad_value", f"it belongs to user {status.st_uid}, who may not ask")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise WireError("bad_value", "others may write it")

    def answer(self, answer: Answer) -> None:
        """Write an answer in the place of the last one.

        Raises:
            OSError: it cannot be written.
        """
        path = self.stem + profile.ANSWER_SUFFIX
        with_new_file(path, lambda descriptor: os.write(descriptor, profile.encode(answer)))


def with_new_file(path: str, write: Callable[[int], object]) -> None:
    """Write a file beside its place and move it there: readers see it whole or not at all.

    Raises:
        OSError: it cannot be made; nothing is left behind.
    """
    part = f"{path}.{os.urandom(6).hex()}"
    descriptor = os.open(part, _CREATE, _MODE)
    try:
        os.fchmod(descriptor, _MODE)
        write(descriptor)
        os.replace(part, path)  # noqa: PTH105 - as everywhere in the hook
    except BaseException:
        os.unlink(part)  # noqa: PTH108 - likewise
        raise
    finally:
        os.close(descriptor)
