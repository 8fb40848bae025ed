"""What PyTorch's watchdog says when a collective does not end. Pure.

Each rank that noticed says how far it came: the numbers of its last enqueued and its last completed collective in that
process group. The laggard is the rank with the lowest numbers. Who says nothing at all may be worse off: a rank whose
watchdog is stuck too is not among them, and that is why it is told beside the laggard how many said anything.

Sources: pytorch/pytorch, torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, v1.10 to v2.9.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

_MAX_RANKS: Final = 65_536
_MAX_LINE: Final = 8_192

# [PG 1 Rank 0]                                        (v2.3, v2.4)
# [PG 0 (default_pg) Rank 3]                           (v2.4)
# [PG ID 0 PG GUID 0(default_pg) Rank 1]               (v2.5 and newer)
# [Rank 4]                                             (before: of the default group, as far as is told)
_SPEAKER = re.compile(r"\[(?:PG (?:ID )?(\d{1,6})(?: PG GUID \S{1,64}| \(\S{1,64}\))? )?Rank (\d{1,7})\]")

# Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=BROADCAST, NumelIn=112, NumelOut=112,
#   Timeout(ms)=1800000) ran for 1800010 milliseconds before timing out.         (v2.0 and newer; SeqNum since v2.0,
#   sizes since v2.1; v1.10 has OpType and Timeout alone)
_TIMEOUT = re.compile(
    r"Watchdog caught collective operation timeout: "
    r"WorkNCCL\((?:SeqNum=(\d{1,15}), )?OpType=(\w{1,40}),[^)]{0,80}Timeout\(ms\)=(\d{1,12})\)"
    r" ran for (\d{1,12}) milliseconds"
)
# last enqueued NCCL work: 2082, last completed NCCL work: 2069.     (v2.4 and newer; Last enqueued … where it dumps)
_PROGRESS = re.compile(r"[Ll]ast enqueued NCCL work: (-?\d{1,15}), last completed NCCL work: (-?\d{1,15})")


class Progress(NamedTuple):
    """How far a rank came in one process group."""

    group: int
    """The process group's number; 0 is usually the one of all ranks."""
    rank: int
    """In that group."""
    enqueued: int
    """Number of the last collective that it gave to NCCL; -1: none."""
    completed: int


class Timeout(NamedTuple):
    """A collective that did not end in time."""

    rank: int
    operation: str
    """``ALLREDUCE``, ``_ALLGATHER_BASE``, …"""
    sequence: int | None
    """Its number in the process group; ``None`` where PyTorch did not say."""
    timeout_seconds: float
    ran_seconds: float
    """May be far above the timeout: the watchdog itself may have been held up."""


class Laggard(NamedTuple):
    """Who is furthest behind."""

    group: int
    ranks: tuple[int, ...]
    """Those with the lowest numbers; several if they are equal."""
    enqueued: int
    completed: int
    others_enqueued: int
    """The most that any rank has given."""
    told: int
    """How many ranks told anything."""


def parse_timeout(line: str) -> Timeout | None:
    """Read the line that names the collective; ``None`` where it is another line, or cut."""
    line = line[:_MAX_LINE]
    found = _TIMEOUT.search(line)
    speaker = _speaker(line[: found.start()]) if found else None
    if found is None or speaker is None:
        return None
    sequence = None if found[1] is None else int(found[1])
    return Timeout(speaker[1], found[2], sequence, int(found[3]) / 1e3, int(found[4]) / 1e3)


def parse_progress(line: str) -> Progress | None:
    """Read the line that tells how far the rank came; ``None`` where it is another line, or cut."""
    line = line[:_MAX_LINE]
    found = _PROGRESS.search(line)
    speaker = _speaker(line[: found.start()]) if found else None
    if found is None or speaker is None:
        return None
    return Progress(*speaker, int(found[1]), int(found[2]))


def unwrapped(lines: Iterable[str]) -> Iterable[str]:
    """Join what a terminal or a viewer wrapped in the middle of a word: a line that leaves its bracket open."""
    held = ""
    for line in lines:
        whole = held + line
        starts = whole.rfind("WorkNCCL(")
        # WorkNCCL(SeqNum=4, OpTy
        # pe=BROADCAST, NumelIn=112, NumelOut=112, Timeout(ms)=1800000) ran for 1800010 milliseconds …
        if starts >= 0 and "milliseconds" not in whole[starts:] and not held:
            held = whole
            continue
        yield whole
        held = ""
    if held:
        yield held


def laggards(told: Iterable[Progress]) -> tuple[Laggard, ...]:
    """Who is furthest behind, by process group; groups where all are equal are left out.

    Args:
        told: any number per rank; the last one of a rank counts.
    """
    groups: dict[int, dict[int, Progress]] = {}
    for progress in told:
        ranks = groups.setdefault(progress.group, {})
        if progress.rank in ranks or len(ranks) < _MAX_RANKS:
            ranks[progress.rank] = progress
    found = []
    for group, ranks in sorted(groups.items()):
        least = min((each.enqueued, each.completed) for each in ranks.values())
        most = max(each.enqueued for each in ranks.values())
        behind = tuple(sorted(each.rank for each in ranks.values() if (each.enqueued, each.completed) == least))
        if len(behind) < len(ranks):
            found.append(Laggard(group, behind, *least, most, len(ranks)))
    return tuple(found)


def _speaker(prefix: str) -> tuple[int, int] | None:
    """Group and rank of whoever speaks: the last that is named before what is said."""
    named = list(_SPEAKER.finditer(prefix))
    if not named:
        return None
    group = next((int(match[1]) for match in reversed(named) if match[1] is not None), 0)
    return group, int(named[-1][2])
