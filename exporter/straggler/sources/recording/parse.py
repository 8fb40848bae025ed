"""Rows of a table to recorded steps. One bad row loses that row, with its reason and its line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from straggler.errors import ParseError
from straggler.model.reading import Problem, Reading, SourceState
from straggler.model.recorded import RecordedStep
from straggler.sources.recording.columns import PHASE_COLUMNS, resolve

UNITS: dict[str, int] = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
"""Nanoseconds in each unit that durations may have."""

REASONS = (
    "unreadable_line",  # a field of more than 131,072 characters, or a NUL
    "missing_value",
    "too_few_fields",
    "too_many_fields",
    "not_a_number",
    "not_an_integer",
    "not_finite",
    "negative",
    "out_of_range",
    "own_above_wall",
    "wait_above_wall",
    "bad_time",
    "duplicate_step",
)
"""Why a row is refused."""

_MOST_SECONDS = 10_000_000  # 115 days: no step is longer
_MOST_RANK = 2**31
_LATEST = 1e11  # the year 5138: a larger number is milliseconds
_ROUNDING = 1.001
"""Own time may exceed the wall time by this much, when both were rounded; it is then the wall time."""
# 46,63 and 1.234,5: decimal commas, as spreadsheets write them in half of Europe
_DECIMAL_COMMA = re.compile(r"[+-]?\d+(?:\.\d{3})*,\d+")

# rank3, step 12, ProfilerStep's Step#12
_NAMED = re.compile(r"(rank|step)[ _#:-]?(\d{1,15})", re.ASCII | re.IGNORECASE)
_COUNTED = ("step", "rank")

_NO_PHASES: Mapping[str, int] = {}

Row = tuple[int, Sequence[Any] | None]
"""Line number, and the fields: texts, or a typed table's own values; ``None`` and ``""`` are absent. ``None`` instead
of fields: the line cannot be divided."""


class _RefusedError(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def parse_table(
    header: Sequence[str], rows: Iterable[Row], mapping: Mapping[str, str], unit: str = "s"
) -> Reading[RecordedStep]:
    """Turn a table into steps, in the order of the rows.

    Args:
        header: column names.
        rows: the table, line by line.
        mapping: our column name to the file's.
        unit: of all durations; one of ``UNITS``.

    Raises:
        ConfigError: a needed or named column is not there.
        ParseError: numbers with decimal commas: no row of such a file can be trusted.
    """
    parser = _RowParser(resolve(header, mapping), len(header), UNITS[unit])
    steps: list[RecordedStep] = []
    refused: dict[str, _Refusals] = {}
    for line, fields in rows:
        try:
            steps.append(parser.parse(line, fields))
        except _RefusedError as error:  # noqa: PERF203 - one bad row loses that row alone
            refused.setdefault(error.reason, _Refusals(str(error))).add(line)
    return Reading(
        source="recording",
        state=SourceState.OK,
        facts=tuple(steps),
        problems=tuple(refused[reason].problem(reason) for reason in REASONS if reason in refused),
    )


class _Refusals:
    """All rows that were refused for one reason; the first lines are kept, the others counted."""

    def __init__(self, first: str) -> None:
        self._first = first
        self._lines: list[int] = []
        self._count = 0

    def add(self, line: int) -> None:
        self._count += 1
        if len(self._lines) < 5:
            self._lines.append(line)

    def problem(self, reason: str) -> Problem:
        more = f" and {self._count - len(self._lines)} more" if self._count > len(self._lines) else ""
        word = "line" if self._count == 1 else "lines"
        lines = ", ".join(map(str, self._lines))
        return Problem(reason=reason, detail=f"{word} {lines}{more}: {self._first}", count=self._count)


class _RowParser:
    def __init__(self, columns: Mapping[str, int], width: int, factor: int) -> None:
        self._columns = columns
        self._width = width
        self._factor = factor
        self._phases = [name for name in PHASE_COLUMNS if name in columns]
        self._interned: dict[str, str] = {}
        self._seen: set[tuple[int, int]] = set()

    def parse(self, line: int, fields: Sequence[Any] | None) -> RecordedStep:
        if fields is None:
            raise _RefusedError("unreadable_line", "no line of a table")
        if len(fields) != self._width:
            reason = "too_few_fields" if len(fields) < self._width else "too_many_fields"
            raise _RefusedError(reason, f"{len(fields)} fields under {self._width} column names")
        self._line, self._fields = line, fields
        step, rank = self._integer("step"), self._integer("rank")
        wall = self._duration("wall")
        if wall is None:
            raise _RefusedError("missing_value", "wall is empty")
        phases: Mapping[str, int] = _NO_PHASES
        if self._phases:
            phases = {name: value for name in self._phases if (value := self._duration(name)) is not None}
        own, wait = self._own_and_wait(wall, phases)
        end = self._time()
        if (step, rank) in self._seen:
            raise _RefusedError("duplicate_step", f"step {step} of rank {rank} stands twice")
        self._seen.add((step, rank))
        return RecordedStep(
            step=step,
            rank=rank,
            wall_ns=wall,
            own_ns=own,
            wait_ns=wait,
            peer_group=self._text("peer_group") or "0",
            node=self._text("node"),
            end=end,
            phase_ns=phases,
        )

    def _own_and_wait(self, wall: int, phases: Mapping[str, int]) -> tuple[int | None, int]:
        own, wait = self._duration("own"), self._duration("wait")
        for name, value in (("own", own), ("wait", wait)):
            if value is not None and value > wall * _ROUNDING + 1000:
                raise _RefusedError(f"{name}_above_wall", f"{name} is longer than the step")
        excluded = phases.get("checkpoint", 0) + phases.get("eval", 0)
        if own is None and wait is not None:
            own = max(0, wall - wait - excluded)
        elif own is not None and wait is None:
            wait = max(0, wall - own - excluded)
        return (None if own is None else min(own, wall), min(wait or 0, wall))

    def _value(self, column: str) -> Any:
        """The field, stripped; ``None`` where the column or the value is absent."""
        if column not in self._columns:
            return None
        value = self._fields[self._columns[column]]
        if isinstance(value, str):
            value = value.strip()
        return None if value == "" else value

    def _text(self, column: str) -> str:
        value = self._value(column)
        text = "" if value is None else str(value)
        return self._interned.setdefault(text, text)

    def _number(self, column: str) -> float | None:
        value = self._value(column)
        if value is None:
            return None
        if isinstance(value, str):
            if column in _COUNTED and (named := _NAMED.fullmatch(value)) and named[1].lower() == column:
                value = named[2]
            if _DECIMAL_COMMA.fullmatch(value):
                better = value.replace(".", "").replace(",", ".")
                raise ParseError(f"{column} in line {self._line} (a decimal comma: write {better})", value)
            if "_" in value:
                raise _RefusedError("not_a_number", f"{column} is {value[:40]!r}")
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise _RefusedError("not_a_number", f"{column} is {str(value)[:40]!r}") from None
        if not math.isfinite(number):
            raise _RefusedError("not_finite", f"{column} is {str(value)[:40]!r}")
        return number

    def _integer(self, column: str) -> int:
        number = self._number(column)
        if number is None:
            raise _RefusedError("missing_value", f"{column} is empty")
        if number != int(number):
            raise _RefusedError("not_an_integer", f"{column} is {number}")
        if number < 0:
            raise _RefusedError("negative", f"{column} is {number:.0f}")
        if number >= (_MOST_RANK if column == "rank" else 2**53):
            raise _RefusedError("out_of_range", f"{column} is {number:.0f}")
        return int(number)

    def _duration(self, column: str) -> int | None:
        number = self._number(column)
        if number is None:
            return None
        if number < 0:
            raise _RefusedError("negative", f"{column} is {number}")
        if number * self._factor > _MOST_SECONDS * UNITS["s"]:
            raise _RefusedError("out_of_range", f"{column} is {number}: longer than {_MOST_SECONDS} s")
        return round(number * self._factor)

    def _time(self) -> float | None:
        value = self._value("time")
        if value is None:
            return None
        if isinstance(value, datetime):
            return _epoch(value)
        try:
            number = float(value)
        except (TypeError, ValueError):
            try:
                # Python 3.10 does not read the Z of 2026-01-02T03:04:05Z
                return _epoch(datetime.fromisoformat(str(value).replace("Z", "+00:00")))
            except (ValueError, OverflowError):
                raise _RefusedError("bad_time", f"time is {str(value)[:40]!r}") from None
        if not 0 <= number < _LATEST:
            raise _RefusedError("bad_time", f"time is {str(value)[:40]!r}: seconds since the epoch are meant")
        return number


def _epoch(moment: datetime) -> float:
    """A time without a zone is taken as UTC."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
