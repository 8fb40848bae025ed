"""One whole log, after the fact: what NCCL said of each rank, and what PyTorch's watchdog said at the end."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from straggler.errors import SourceFailedError
from straggler.model.nccl import NcclFacts
from straggler.sources.nccl.book import LogBook
from straggler.sources.nccl.tail import BEGINNING_BYTES, MAX_LINE_BYTES
from straggler.sources.nccl.watchdog import (
    Laggard,
    Progress,
    Timeout,
    laggards,
    parse_progress,
    parse_timeout,
    unwrapped,
)

_MARKS: Final = (b"NCCL INFO", b"NCCL WARN", b"NCCL version", b"RCCL version", b"WorkNCCL(", b"NCCL work:", b"NET/IB")
_MAX_TIMEOUTS: Final = 4096
_MAX_PROGRESS: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSnapshot:
    """What a log says."""

    ranks: tuple[NcclFacts, ...]
    timeouts: tuple[Timeout, ...]
    """Collectives that did not end, in the log's order."""
    laggards: tuple[Laggard, ...]
    refused: Mapping[str, int]
    """By ``reasons.NCCL_REASONS``."""


def is_log(path: Path) -> bool:
    """Whether NCCL or PyTorch's watchdog speak in the first megabyte of a file, or in its last."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return False
        with path.open("rb") as file:
            beginning = file.read(BEGINNING_BYTES)
            file.seek(max(len(beginning), path.stat().st_size - BEGINNING_BYTES))
            end = file.read(BEGINNING_BYTES)
    except OSError:
        return False
    return b"\0" not in beginning[:MAX_LINE_BYTES] and any(mark in beginning or mark in end for mark in _MARKS)


def read_log(path: Path) -> LogSnapshot:
    """Read a whole log, however long it is; what is kept is bounded.

    Raises:
        SourceFailedError: ``unreadable``.
    """
    book = LogBook()
    refused: Counter[str] = Counter()
    timeouts: list[Timeout] = []
    told: list[Progress] = []
    try:
        for line in unwrapped(_lines(path, refused)):
            book.hear((line,))
            if "NCCL" not in line:
                continue
            timeout, progress = parse_timeout(line), parse_progress(line)
            if timeout is not None and len(timeouts) < _MAX_TIMEOUTS:
                timeouts.append(timeout)
            if progress is not None and len(told) < _MAX_PROGRESS:
                told.append(progress)
    except OSError as error:
        raise SourceFailedError("unreadable", error.strerror or str(error)) from error
    refused.update(book.take_refused())
    return LogSnapshot(
        ranks=tuple(replace(facts, path=str(path)) for facts in book.facts()),
        timeouts=tuple(timeouts),
        laggards=laggards(told),
        refused=dict(refused),
    )


def _lines(path: Path, refused: Counter[str]) -> Iterator[str]:
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES):
            if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                refused["long_line"] += 1
                _skip_line(file)
            else:
                yield from line.decode("utf-8", "replace").rstrip("\n").split("\r")


def _skip_line(file: BinaryIO) -> None:
    while (piece := file.readline(MAX_LINE_BYTES)) and not piece.endswith(b"\n"):
        pass
