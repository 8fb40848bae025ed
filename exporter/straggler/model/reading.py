"""What one look at a source gives: facts and problems together, so that one bad item loses that item and no more."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

Fact = TypeVar("Fact")


class SourceState(str, Enum):
    """How a source is. Missing, broken and frozen are three things, and none of them is zero."""

    OK = "ok"
    ABSENT = "absent"
    """Not on this machine, or not configured."""
    FAILED = "failed"
    """Here, but the last look gave nothing."""
    STALE = "stale"
    """It answers, but what it says has stopped changing while the ranks step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that was refused, dropped or is missing: counted under its reason, never silent."""

    reason: str
    """One of the source's listed reasons: it becomes a label, so it never carries free text."""
    detail: str = ""
    """One line for the log: which file, line or field, and what to do."""
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Generic[Fact]):
    """One look at one source."""

    source: str
    """``rings``, ``push``, ``dcgm``, …: the label of ``straggler_exporter_source_state``."""
    state: SourceState
    facts: tuple[Fact, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Counted once per look."""
    blind: tuple[Problem, ...] = field(default=())
    """What this source cannot see at present, e.g. ``sm_active_absent``: conditions, not events."""
    duration_seconds: float | None = None
