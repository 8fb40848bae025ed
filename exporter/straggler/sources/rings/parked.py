"""Files that are not followed: long dead, or refused. They may be ten thousand, and must cost next to nothing.

A parked file is closed. A look asks for the status of a few of them in turn, one ``lstat`` each, and opens only what
has changed since.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Container, Iterator
from dataclasses import dataclass

from straggler.sources.rings.discover import RingKey

Signature = tuple[int, int, int, int, int]

_LOOKS_PER_TURN = 256


def signature_of(status: os.stat_result) -> Signature:
    """What changes when a file is written to, replaced, or given other permissions."""
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode, status.st_nlink)


@dataclass(slots=True, kw_only=True)
class Parked:
    """Why a file is not followed, and since when."""

    signature: Signature
    reason: str | None
    """``None``: a dead ring, whose rank was published as long as it should be."""
    detail: str
    since: float
    """Monotonic seconds."""
    removable: bool
    """Whether it is surely a ring of ours, so that its end may be removed."""
    remove_problem: str = ""
    """Why it could not be removed: not tried again."""


class ParkingLot:
    """All parked files."""

    def __init__(self) -> None:
        self._files: OrderedDict[RingKey, Parked] = OrderedDict()
        self._due: frozenset[RingKey] = frozenset()

    def next_turn(self) -> None:
        """Choose the files whose status is asked for in the look that begins."""
        due = []
        for _ in range(min(_LOOKS_PER_TURN, len(self._files))):
            key = next(iter(self._files))
            self._files.move_to_end(key)
            due.append(key)
        self._due = frozenset(due)

    def is_due(self, key: RingKey) -> bool:
        """Whether the file is unknown here, or its turn has come."""
        return key not in self._files or key in self._due

    def put(self, key: RingKey, parked: Parked) -> None:
        """Park a file, or note another reason for one that is."""
        self._files[key] = parked

    def get(self, key: RingKey) -> Parked | None:
        """Give the note on a file; ``None`` if it is not parked."""
        return self._files.get(key)

    def drop(self, key: RingKey) -> None:
        """Forget a file."""
        self._files.pop(key, None)

    def keep_only(self, present: Container[RingKey]) -> None:
        """Forget the files that are not present any more."""
        for key in [key for key in self._files if key not in present]:
            del self._files[key]

    def items(self) -> Iterator[tuple[RingKey, Parked]]:
        """All parked files with their notes."""
        return iter(self._files.items())

    def __len__(self) -> int:
        return len(self._files)
