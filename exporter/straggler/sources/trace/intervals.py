"""Sets of time intervals, in nanoseconds: union, difference, length. An interval is ``(begin, end)``, end excluded."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same moments as disjoint intervals, in order."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = merged[-1][0], end
        elif end > begin:
            merged.append((begin, end))
    return merged


def length(disjoint: Iterable[Interval]) -> int:
    """How long disjoint intervals are together."""
    return sum(end - begin for begin, end in disjoint)


def without(disjoint: Sequence[Interval], others: Sequence[Interval]) -> list[Interval]:
    """What of the first is in none of the second. Both disjoint and in order."""
    left: list[Interval] = []
    at = _first(others, disjoint[0][0]) if disjoint else 0
    for begin, end in disjoint:
        while at < len(others) and others[at][1] <= begin:
            at += 1
        here, other = begin, at
        while other < len(others) and others[other][0] < end:
            if others[other][0] > here:
                left.append((here, others[other][0]))
            here = max(here, others[other][1])
            other += 1
        if here < end:
            left.append((here, end))
    return left


def within(disjoint: Sequence[Interval], begin: int, end: int) -> list[Interval]:
    """What of these, which are disjoint and in order, lies in one interval."""
    found = []
    for place in range(_first(disjoint, begin), len(disjoint)):
        b, e = disjoint[place]
        if b >= end:
            break
        if e > begin:
            found.append((max(b, begin), min(e, end)))
    return found


def _first(disjoint: Sequence[Interval], moment: int) -> int:
    """The place of the first that can end after a moment: a step looks at its own part of a long trace only."""
    return max(bisect_right(disjoint, (moment, 1 << 63)) - 1, 0)


def covers(disjoint: Sequence[Interval], moment: int) -> bool:
    """Whether a moment lies in one of these, which are disjoint and in order."""
    place = bisect_right(disjoint, (moment, 1 << 63)) - 1
    return place >= 0 and disjoint[place][0] <= moment < disjoint[place][1]
