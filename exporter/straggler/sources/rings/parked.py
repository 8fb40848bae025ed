"""Files that are not followed: long dead, or refused. They may be ten thousand, and must cost next to nothing.

A parked file is closed. A look asks for the status of a few of them in turn, one ``lstat`` each, and opens only what
has changed since. In the end the file of a dead rank is removed.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from straggler.errors import SourceFailedError, WireError
from straggler.model.clock import Clock
from straggler.model.reading import Problem
from straggler.sources.rings.discover import RingKey, open_ring, remove_ring
from straggler.sources.rings.lock import lock_held
from straggler.sources.rings.ring import NotReadyError

Refusal = SourceFailedError | WireError | OSError
Signature = tuple[int, int, int, int, int]

_LOOKS_PER_TURN = 256
_MAY_PASS = frozenset({"unreadable", "too_many_ranks"})
"""Refusals that may end though the file does not change."""


@dataclass(slots=True, kw_only=True)
class _Parked:
    """Why a file is not followed, and since when."""

    signature: Signature
    reason: str
    """``""``: a dead ring, whose rank was published as long as it should be."""
    detail: str
    since: float
    """Monotonic seconds."""
    removable: bool
    """Whether it is surely a ring of ours, so that its end may be removed."""
    remove_problem: str = ""
    """Why it could not be removed: not tried again."""


class ParkingLot:
    """All parked files of one ring directory.

    Args:
        root: the ring directory.
        clock: both clocks.
        keep_seconds: how long a file is kept at least after it was parked.
        remove_after_seconds: age at which the file of a dead rank is removed; ``None``: never.
    """

    def __init__(self, root: Path, clock: Clock, *, keep_seconds: float, remove_after_seconds: float | None) -> None:
        self._root = root
        self._clock = clock
        self._keep_seconds = keep_seconds
        self._remove_after_seconds = remove_after_seconds
        self._files: OrderedDict[RingKey, _Parked] = OrderedDict()
        self._due: frozenset[RingKey] = frozenset()
        self.removed = 0
        """Files removed since the start."""

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

    def park(self, key: RingKey, status: os.stat_result, error: Refusal | None) -> None:
        """Park a closed file.

        Args:
            key: the file.
            status: as it is now.
            error: why it is refused; ``None`` if it is a ring whose rank is gone.
        """
        if isinstance(error, OSError):
            error = SourceFailedError("unreadable", str(error.strerror))
        self._files[key] = _Parked(
            signature=_signature(status),
            reason=error.reason if error else "",
            detail=f"{key.path!r}: {error.detail}" if error else "",
            since=self._clock.monotonic(),
            removable=error is None or isinstance(error, NotReadyError),
        )

    def stays(self, key: RingKey, status: os.stat_result) -> bool:
        """Whether the file is parked here and no news: then it is removed if it is old enough. Otherwise open it."""
        parked = self._files.get(key)
        if parked is None or parked.signature != _signature(status) or parked.reason in _MAY_PASS:
            return False
        if parked.removable and not parked.remove_problem and self._is_old(parked, status):
            self._remove(key, parked, status)
        return True

    def drop(self, key: RingKey) -> None:
        """Forget a file."""
        self._files.pop(key, None)

    def keep_only(self, present: Container[RingKey]) -> None:
        """Forget the files that are not present any more."""
        for key in [key for key in self._files if key not in present]:
            del self._files[key]

    def clear(self) -> None:
        """Forget all files."""
        self._files.clear()

    def problems(self) -> Iterator[tuple[RingKey, Problem]]:
        """What is refused at present, and what could not be removed."""
        for key, parked in self._files.items():
            if parked.reason:
                yield key, Problem(reason=parked.reason, detail=parked.detail)
            if parked.remove_problem:
                yield key, Problem(reason="remove_failed", detail=parked.remove_problem)

    def _is_old(self, parked: _Parked, status: os.stat_result) -> bool:
        """By its own age, and by that of our knowing it dead: a wall clock that is set forward makes every file old."""
        if self._remove_after_seconds is None or self._clock.monotonic() - parked.since < self._keep_seconds:
            return False
        return self._clock.time() - status.st_mtime >= self._remove_after_seconds

    def _remove(self, key: RingKey, parked: _Parked, status: os.stat_result) -> None:
        try:
            descriptor = open_ring(self._root, key, status)
            try:
                if lock_held(descriptor):
                    return
            finally:
                os.close(descriptor)
            remove_ring(self._root, key)
        except FileNotFoundError:
            return
        except SourceFailedError as error:
            parked.remove_problem = f"{key.path!r}: {error.detail}"
            return
        del self._files[key]
        self.removed += 1


def _signature(status: os.stat_result) -> Signature:
    """What changes when a file is written to, replaced, or given other permissions."""
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode, status.st_nlink)
