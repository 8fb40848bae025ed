"""Follows the logs and tells what they say about each rank.

Nothing is kept open between two looks: a log that was removed must not hold its space on the disk. Facts stay as long
as the file has its name, since NCCL says what it uses once, at the start of a job that may last for weeks.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
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
"""Followed at a time: the freshest."""
MAX_PROCESSES: Final = 2048
"""In all logs together. A log of a whole job has those of other nodes too."""
LOOKS_BEFORE_SILENT: Final = 8
"""A log that has said nothing of NCCL after so many looks is counted: most likely NCCL_DEBUG is not set."""
BYTES_PER_LOG: Final = 512 << 10
BYTES_PER_LOOK: Final = 2 << 20
"""NCCL's lines are read at some 12 MB a second."""
_MAX_TOLD: Final = 4096

_ROTATED: Final = ".1"
"""What logrotate, and who learned from it, appends to a name."""


@dataclass(slots=True)
class _Log:
    """One name that is followed. What it said stays when the file behind the name is another."""

    book: LogBook
    tail: Tail = field(default_factory=Tail)
    written: float = 0.0
    uid: int = 0
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
        return Reading(source=SOURCE, state=SourceState.OK, facts=tuple(self._facts()), problems=tuple(self._problems))

    def _find(self) -> dict[Path, os.stat_result]:
        """The freshest files with such a name. A file that is followed already is no fresher than it is."""
        found: dict[Path, os.stat_result] = {}
        for path in find(self._patterns):
            with suppress(OSError):  # gone again, or hidden
                found[path] = path.lstat()
        fresh = sorted(found.items(), key=lambda item: item[1].st_mtime_ns, reverse=True)
        for path, status in fresh[MAX_LOGS:]:
            self._refuse(path, status, "too_many_logs", f"of {len(found)} the {MAX_LOGS} freshest are followed")
        return dict(fresh[:MAX_LOGS])

    def _follow(self, found: dict[Path, os.stat_result]) -> SourceFailedError | None:
        """Read what is new, and first of what has waited longest; give the last reason why a file could not be read."""
        failure: SourceFailedError | None = None
        left = BYTES_PER_LOOK
        waiting = sorted(found, key=lambda path: self._logs[path].read_at if path in self._logs else 0)
        for path in waiting:
            log, status = self._logs.get(path), found[path]
            if left <= 0:
                break
            if log is not None and not log.tail.is_behind(status):
                continue
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
        others = sum(each.book.processes for each in self._logs.values()) - log.book.processes
        log.book.hear(piece.lines, room=MAX_PROCESSES - others)
        status = os.fstat(descriptor)
        log.written, log.uid, log.read_at = status.st_mtime, status.st_uid, self._looks
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

    def _facts(self) -> Iterator[NcclFacts]:
        for path, log in self._logs.items():
            name, directory = clean_text(str(path), None), self._directory(path)
            for facts in log.book.facts():
                yield replace(facts, written=log.written, uid=log.uid, path=name, directory=directory)

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


def _unreadable(error: OSError) -> SourceFailedError:
    return SourceFailedError("unreadable", error.strerror or str(error))
