"""Follows the logs and tells what they say about each rank.

Nothing is kept open between two looks: a log that was removed must not hold its space on the disk. Facts stay as long
as the file has its name, since NCCL says what it uses once, at the start of a job that may last for weeks.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Final

from straggler.errors import SourceFailedError
from straggler.model.identity import clean_text
from straggler.model.nccl import NcclFacts
from straggler.model.reading import Problem, Reading, SourceState
from straggler.sources.nccl.book import LogBook
from straggler.sources.nccl.files import find, open_log
from straggler.sources.nccl.tail import Tail

SOURCE: Final = "nccl"

MAX_LOGS: Final = 512
"""Followed at a time: the freshest, in turn one of each user, so that nobody can push out all of another's."""
MAX_PROCESSES: Final = 2048
"""In all logs of one user. A log of a whole job has those of other nodes too."""
LOOKS_BEFORE_SILENT: Final = 8
"""A log that has said nothing of NCCL after so many looks is counted: most likely NCCL_DEBUG is not set."""
BYTES_PER_LOG: Final = 512 << 10
BYTES_PER_LOOK: Final = 2 << 20
"""NCCL's lines are read at some 11 MB a second (tests/bench/nccl.py)."""
_MAX_TOLD: Final = 4096

_ROTATED: Final = ".1"
"""What logrotate, and who learned from it, appends to a name."""


@dataclass(slots=True)
class _Log:
    """One name that is followed. What it said stays when the file behind the name is another."""

    book: LogBook
    tail: Tail = field(default_factory=Tail)
    facts: tuple[NcclFacts, ...] = ()
    uid: int = -1
    read_at: int = 0
    """Number of the look that read it last."""
    looks: int = 0


class NcclSource:
    """All logs of a node. For one thread at a time.

    Args:
        patterns: absolute paths with wildcards.
        check_owner: refuses files of users who may not be believed, by raising ``SourceFailedError``.
        ring_dir: the ring directory; a log below it says as much about its writer as a ring does.
    """

    def __init__(
        self,
        patterns: Iterable[str],
        check_owner: Callable[[os.stat_result], None] = lambda _: None,
        *,
        ring_dir: Path | None = None,
    ) -> None:
        self._patterns = tuple(patterns)
        self._check_owner = check_owner
        self._ring_dir = ring_dir
        self._logs: dict[Path, _Log] = {}
        self._looks = 0
        self._told: set[tuple[str, int, str]] = set()
        self._problems: list[Problem] = []

    @property
    def logs(self) -> int:
        """How many are followed."""
        return len(self._logs)

    def collect(self) -> Reading[NcclFacts]:
        """Look once, and read on where there is something new.

        Returns:
            Without facts where no file has such a name yet: a job that begins makes it.

        Raises:
            SourceFailedError: there are some, and none can be read.
        """
        self._looks += 1
        self._problems = []
        found = self._find()
        self._logs = {path: log for path, log in self._logs.items() if path in found}
        failure = self._follow(found)
        if found and not self._logs and failure is not None:
            raise failure
        self._count_silent(found)
        self._count_refused()
        return Reading(
            source=SOURCE,
            state=SourceState.OK,
            facts=tuple(chain.from_iterable(log.facts for log in self._logs.values())),
            problems=tuple(self._problems),
        )

    def _find(self) -> dict[Path, os.stat_result]:
        """The freshest files with such a name. A file that is followed already is no fresher than it is."""
        found: dict[Path, os.stat_result] = {}
        for path in find(self._patterns):
            with suppress(OSError):  # gone again, or hidden
                found[path] = path.lstat()
        fresh = _in_turn(sorted(found, key=lambda path: found[path].st_mtime_ns, reverse=True), found)
        for path in fresh[MAX_LOGS:]:
            self._refuse(path, found[path], "too_many_logs", f"of {len(found)} the {MAX_LOGS} freshest are followed")
        return {path: found[path] for path in fresh[:MAX_LOGS]}

    def _follow(self, found: dict[Path, os.stat_result]) -> SourceFailedError | None:
        """Read what is new, and first of what has waited longest; give the last reason why a file could not be read."""
        failure: SourceFailedError | None = None
        left = BYTES_PER_LOOK
        logs = self._logs
        behind = [path for path in found if path not in logs or logs[path].tail.is_behind(found[path])]
        behind.sort(key=lambda path: logs[path].read_at if path in logs else 0)
        for path in _in_turn(behind, found):
            if left <= 0:
                break
            status = found[path]
            try:
                left -= self._read(path, status, min(left, BYTES_PER_LOG))
            except FileNotFoundError:
                continue
            except (SourceFailedError, OSError) as error:
                failure = error if isinstance(error, SourceFailedError) else _unreadable(error)
                self._refuse(path, status, failure.reason, failure.detail)
                self._logs.pop(path, None)
        return failure

    def _read(self, path: Path, status: os.stat_result, most: int) -> int:
        descriptor = open_log(path, status, self._check_owner)
        try:
            log = self._logs.get(path)
            if log is None:
                log = self._logs[path] = _Log(LogBook())
            elif log.tail.inode not in (None, (status.st_dev, status.st_ino)):
                self._finish_rotated(path, log)
            return self._hear(path, log, descriptor, most)
        finally:
            os.close(descriptor)

    def _hear(self, path: Path, log: _Log, descriptor: int, most: int) -> int:
        piece = log.tail.read(descriptor, most)
        status = os.fstat(descriptor)
        log.uid = status.st_uid
        of_owner = sum(each.book.processes for each in self._logs.values() if each.uid == log.uid)
        log.book.hear(piece.lines, room=MAX_PROCESSES - of_owner + log.book.processes)
        log.facts = self._facts_of(path, log.book, status)
        log.read_at = self._looks
        if piece.skipped:
            self._problems.append(Problem(reason="skipped", detail=f"{path}: beginning and end are read"))
        if piece.long_lines:
            self._problems.append(Problem(reason="long_line", detail=str(path), count=piece.long_lines))
        return piece.bytes

    def _finish_rotated(self, path: Path, log: _Log) -> None:
        """Read what was written to the file before it was renamed, if its new name is the usual one."""
        rotated = path.with_name(path.name + _ROTATED)
        with suppress(OSError, SourceFailedError):
            status = rotated.lstat()
            if (status.st_dev, status.st_ino) != log.tail.inode:
                return
            descriptor = open_log(rotated, status, self._check_owner)
            try:
                self._hear(rotated, log, descriptor, BYTES_PER_LOG)
            finally:
                os.close(descriptor)

    def _facts_of(self, path: Path, book: LogBook, status: os.stat_result) -> tuple[NcclFacts, ...]:
        name, directory = clean_text(str(path), None), self._directory(path)
        return tuple(
            replace(facts, written=status.st_mtime, uid=status.st_uid, path=name, directory=directory)
            for facts in book.facts()
        )

    def _directory(self, path: Path) -> str | None:
        """Where below the ring directory a log lies. ``find`` follows no link there: the names are the real ones."""
        if self._ring_dir is None or not path.is_relative_to(self._ring_dir):
            return None
        return str(path.parent.relative_to(self._ring_dir))

    def _count_refused(self) -> None:
        refused: Counter[str] = Counter()
        first: dict[str, Path] = {}
        for path, log in self._logs.items():
            for reason, count in log.book.take_refused().items():
                refused[reason] += count
                first.setdefault(reason, path)
        self._problems += [
            Problem(reason=reason, detail=str(first[reason]), count=count) for reason, count in refused.items()
        ]

    def _count_silent(self, found: dict[Path, os.stat_result]) -> None:
        for path, log in self._logs.items():
            log.looks += 1
            if log.looks == LOOKS_BEFORE_SILENT and not log.book.processes and log.tail.inode and found[path].st_size:
                self._refuse(path, found[path], "no_nccl_lines", "is NCCL_DEBUG=INFO set?")

    def _refuse(self, path: Path, status: os.stat_result, reason: str, detail: str) -> None:
        """Count a file that is not read: once, and not with each look."""
        key = (str(path), status.st_ino, reason)
        if key not in self._told and len(self._told) < _MAX_TOLD:
            self._told.add(key)
            self._problems.append(Problem(reason=reason, detail=f"{path}: {detail}"))


def _in_turn(paths: Iterable[Path], found: Mapping[Path, os.stat_result]) -> list[Path]:
    """The same paths: the first of each owner, then the second of each, and so on."""
    turns: Counter[int] = Counter()
    places = []
    for place, path in enumerate(paths):
        owner = found[path].st_uid
        places.append((turns[owner], place, path))
        turns[owner] += 1
    return [path for _, _, path in sorted(places)]


def _unreadable(error: OSError) -> SourceFailedError:
    return SourceFailedError("unreadable", error.strerror or str(error))
