"""Writes one ring file: ``pwrite`` into space that was allocated at the start, and nothing else.

The file is ours alone: a random name, opened once with ``O_EXCL``, never opened again in this process. Its descriptor
number may still be taken from us: a library that closes all descriptors frees it, and the next file that the training
opens, a checkpoint perhaps, gets the number. So each write is preceded by a proof. The file offset, which ``pwrite``
neither uses nor moves, holds a random number beyond 4 TiB: no other open file has it, and asking takes 0.25 us, where
``fstat`` takes 0.9. That the file was deleted or truncated harms nobody but the reader, so ``fstat`` looks for it at
most ten times a second: with each record of an ordinary training loop.

The descriptor is moved to 512 or above, out of the way of ``select``, of ``dup2`` and of most closing loops.
"""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from straggler.errors import RingError
from straggler.wire import layout
from straggler.wire.encode import encode_identity, encode_preamble
from straggler.wire.records import Identity, Preamble

if TYPE_CHECKING:
    from collections.abc import Callable

_FLAGS = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
_MODE = 0o640
"""The group reads: the sidecar is in it where the directory is setgid."""
_FLOORS = (512, 128, 32)
"""Lowest descriptor numbers to try; the lower ones where RLIMIT_NOFILE leaves no choice."""
_OFFSET_BASE = 1 << 42
_OFFSET_RANDOM_BYTES = 5
"""The offset lies in 4 TiB .. 5 TiB: below the longest file of ext4, beyond any file of tmpfs."""


class RingWriter:
    """One open ring. Its methods raise ``OSError`` or ``RingError`` when the file is not as we left it.

    The records and the arrivals are written by ``recorder``, with the same proof before each.
    """

    __slots__ = ("_size", "capacity", "fd", "offset", "path")

    def __init__(self, path: str, fd: int, capacity: int, size: int) -> None:
        self.path = path
        self.fd = fd
        """-1 when it must not be used any more."""
        self.capacity = capacity
        self._size = size
        self.offset = _OFFSET_BASE + int.from_bytes(os.urandom(_OFFSET_RANDOM_BYTES), "little")
        """What ``lseek(fd, 0, SEEK_CUR)`` must say before each write."""
        os.lseek(fd, self.offset, os.SEEK_SET)

    def write_live(self, live: bytes | bytearray) -> None:
        """Write the live block."""
        self._write(live, layout.LIVE_OFFSET)

    def say_goodbye(self, live: bytes | bytearray) -> None:
        """Write the last live block, into a deleted file too: a reader that has it open learns that we are off."""
        if self.is_ours():
            os.pwrite(self.fd, live, layout.LIVE_OFFSET)

    def write_identity(self, identity: Identity) -> None:
        """Write the identity block, at the start and whenever more of it is known."""
        self._write(encode_identity(identity), layout.IDENTITY_OFFSET)

    def _write(self, block: bytes | bytearray, at: int) -> None:
        self.check()
        if os.pwrite(self.fd, block, at) != len(block):
            raise RingError(f"{self.path} took only a part of a block: it has no space")

    def check(self) -> None:
        """Make sure of the file: ours, whole and not deleted."""
        if not self.is_ours():
            raise RingError(f"something in this process closed descriptor {self.fd}, which was {self.path}")
        status = os.fstat(self.fd)
        if not status.st_nlink:
            raise RingError(f"{self.path} was deleted")
        if status.st_size != self._size:
            raise RingError(f"{self.path} has {status.st_size} bytes instead of {self._size}: it was truncated")

    def is_ours(self) -> bool:
        """Whether the descriptor still is the open file that we made."""
        try:
            return os.lseek(self.fd, 0, os.SEEK_CUR) == self.offset
        except OSError:
            return False

    def close(self) -> None:
        """Give the descriptor back, and with it the lock, if it is still ours."""
        fd, ours = self.fd, self.is_ours()
        self.abandon()
        if ours:
            os.close(fd)

    def abandon(self) -> None:
        """Never write again, and leave the descriptor to the end of the process: others may be using it."""
        self.fd = -1


def create_ring(
    directory: str, identity: Identity, live: bytes, times_ns: tuple[int, int], capacity: int = layout.DEFAULT_CAPACITY
) -> RingWriter:
    """Make a ring file and lock it.

    Args:
        directory: on tmpfs (``directory.py`` chooses it).
        identity: first version of the identity block.
        live: first live block.
        times_ns: now, on the wall clock and on the monotonic clock.
        capacity: number of slots.

    Raises:
        OSError: the directory is missing, full or not writable for us. No file is left behind.
    """
    size = layout.RECORDS_OFFSET + capacity * layout.RECORD_BYTES
    path = os.path.join(directory, f"{os.urandom(12).hex()}.ring")  # noqa: PTH118 - pathlib costs 5 ms of import
    fd = os.open(path, _FLAGS, _MODE)
    try:
        os.fchmod(fd, _MODE)  # whatever the umask says
        os.posix_fallocate(fd, 0, size)
        fd = _move_up(fd)
        ring = RingWriter(path, fd, capacity, size)
        ring.write_identity(identity)
        ring.write_live(live)
        # Only now: closing any descriptor of the file, as _move_up does, drops the process's locks on it.
        _ignoring_os_error(lambda: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB))
        preamble = Preamble(layout.VERSION, layout.RECORD_BYTES, capacity, os.getpid() & 0xFFFFFFFF, *times_ns)
        os.pwrite(fd, encode_preamble(preamble), layout.PREAMBLE_OFFSET)
    except BaseException:
        _ignoring_os_error(lambda: os.close(fd))
        _ignoring_os_error(lambda: os.unlink(path))  # noqa: PTH108 - as above
        raise
    return ring


def _move_up(fd: int) -> int:
    for floor in _FLOORS:
        try:
            moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, floor)
        except OSError:
            continue  # the limit on open files is lower
        os.close(fd)
        return moved
    return fd


def _ignoring_os_error(action: Callable[[], object]) -> None:
    """For what is useful but not needed: a lock where the file system has none, cleaning up after a failure."""
    try:
        action()
    except OSError:
        return
