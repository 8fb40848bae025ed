"""What one log has said so far, process by process. Pure; bounded whatever the log says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from straggler.model.identity import clean_text
from straggler.model.nccl import NcclFacts
from straggler.sources.nccl.communicators import Process
from straggler.sources.nccl.kinds import kind_of
from straggler.sources.nccl.lines import WARN, Line, LineReader
from straggler.sources.nccl.patterns import Channel, CutLineError, Fact, parse

_BETWEEN_NODES: Final = ("ib", "libfabric", "other", "collnet")


MAX_PROCESSES: Final = 2048
"""In one log: that of a whole job may hold as many."""


class LogBook:
    """Takes lines, gives facts."""

    def __init__(self) -> None:
        self._reader = LineReader()
        self._processes: dict[tuple[str, int | None], Process] = {}
        self._version = ("", "")
        self._refused: Counter[str] = Counter()

    def hear(self, lines: Iterable[str], *, room: int = MAX_PROCESSES) -> None:
        """Read lines of the file, without their ends.

        Args:
            lines: in order.
            room: how many processes there may be; those of more are refused.
        """
        for line in lines:
            for said in self._reader.read(line):
                self._hear(said, min(room, MAX_PROCESSES))

    def facts(self) -> Iterator[NcclFacts]:
        """What is known of each rank that the log is about."""
        version, cuda_version = self._version
        for process in self._processes.values():
            yield from process.facts(version=version, cuda_version=cuda_version)

    @property
    def processes(self) -> int:
        """How many there are."""
        return len(self._processes)

    def take_refused(self) -> Counter[str]:
        """What was refused since the last time, by ``reasons.NCCL_REASONS``."""
        refused, self._refused = self._refused, Counter()
        if self._reader.crowded:
            refused["crowded_line"] += self._reader.crowded
            self._reader.crowded = 0
        for process in self._processes.values():
            if process.refused:
                refused["too_many_communicators"] += process.refused
                process.refused = 0
        return refused

    def _hear(self, line: Line, room: int) -> None:
        if line.level == WARN:
            if process := self._process(line, room):
                process.warn(kind_of(line.text))
            return
        try:
            said = parse(line.text)
        except CutLineError:
            self._refused["cut_line"] += 1
            return
        if said is None:
            return
        if isinstance(said, Channel) and line.is_overrun and not said.gdr and said.transport in _BETWEEN_NODES:
            self._refused["cut_line"] += 1  # "/GDRDMA" may be what is missing
            return
        if isinstance(said, Fact) and said.version and line.pid is None:
            self._version = (said.version, said.cuda_version)
        elif process := self._process(line, room):
            process.hear(said)

    def _process(self, line: Line, room: int) -> Process | None:
        key = (clean_text(line.host), line.pid)
        process = self._processes.get(key)
        if process is None:
            if len(self._processes) >= room:
                self._refused["too_many_processes"] += 1
                return None
            process = self._processes[key] = Process(*key)
        return process
