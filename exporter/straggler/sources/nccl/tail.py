"""Follows one growing text file: what is new since the last look, as lines.

A log may be rotated by renaming or by truncating, be gigabytes long before anybody looks, and grow faster than it is
read. So one look reads a bounded piece; of what is too long already, beginning and end are read: NCCL introduces itself
at the beginning, and what goes wrong is at the end.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

BEGINNING_BYTES: Final = 1 << 20
"""So much is always read of a file, however long it is."""
BACKLOG_BYTES: Final = 4 << 20
"""If more than this is unread after the beginning …"""
END_BYTES: Final = 1 << 20
"""… all but so much of it is left out."""
MAX_LINE_BYTES: Final = 65_536

_MARK_BYTES: Final = 32
_LINE_END = re.compile(rb"[\r\n]+")


class Piece(NamedTuple):
    """What one look gave."""

    lines: tuple[str, ...]
    bytes: int
    """How many were read."""
    skipped: bool = False
    """Whether a part was left out."""
    long_lines: int = 0


class Tail:
    """The place in one file up to which it has been read."""

    def __init__(self) -> None:
        self._inode: tuple[int, int] | None = None
        self._offset = 0
        self._mark = b""
        """What stood before the offset: a file that was truncated and has grown again has something else there."""
        self._rest = b""
        self._size = -1
        self._in_skipped_line = False

    def is_behind(self, status: os.stat_result) -> bool:
        """Whether there is anything new."""
        return (
            (status.st_dev, status.st_ino) != self._inode or status.st_size != self._size or self._offset < self._size
        )

    @property
    def inode(self) -> tuple[int, int] | None:
        """The file that was read last."""
        return self._inode

    def read(self, descriptor: int, most: int) -> Piece:
        """Read on.

        Args:
            descriptor: the file, open for reading; another one than before is read from its beginning.
            most: bytes that may be read now.

        Raises:
            OSError: the file cannot be read.
        """
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != self._inode or not self._continues(descriptor, status.st_size):
            self._inode, self._offset, self._mark = (status.st_dev, status.st_ino), 0, b""
            self._rest, self._in_skipped_line = b"", False
        self._size = status.st_size
        skipped = self._offset >= BEGINNING_BYTES and self._size - self._offset > BACKLOG_BYTES
        if skipped:
            self._offset = self._size - END_BYTES
            self._rest, self._in_skipped_line = b"", True
        data = os.pread(descriptor, min(most, self._size - self._offset), self._offset)
        self._offset += len(data)
        self._mark = (self._mark + data)[-_MARK_BYTES:] if not skipped else data[-_MARK_BYTES:]
        lines, long_lines = self._lines(data)
        return Piece(lines, len(data), skipped, long_lines)

    def _continues(self, descriptor: int, size: int) -> bool:
        """Whether what has been read is still there."""
        if size < self._offset:
            return False
        return os.pread(descriptor, len(self._mark), self._offset - len(self._mark)) == self._mark

    def _lines(self, data: bytes) -> tuple[tuple[str, ...], int]:
        *whole, self._rest = _LINE_END.split(self._rest + data)
        if self._in_skipped_line and (whole or data):
            # what is before the first end of a line is the end of one whose beginning nobody has read
            if whole:
                del whole[0]
                self._in_skipped_line = False
            else:
                self._rest = b""
        long_lines = 0
        if len(self._rest) > MAX_LINE_BYTES:
            self._rest, self._in_skipped_line = b"", True
            long_lines += 1
        short = [line for line in whole if len(line) <= MAX_LINE_BYTES]
        long_lines += len(whole) - len(short)
        return tuple(line.decode("utf-8", "replace") for line in short), long_lines
