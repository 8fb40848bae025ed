"""Rows to steps: units, optional columns, and every reason for which a row is refused."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from straggler.errors import ParseError
from straggler.sources.recording.columns import COLUMNS
from straggler.sources.recording.parse import REASONS, parse_table

HEADER = ["step", "rank", "wall", "own"]


def refusal(fields: list[Any], header: list[str] | None = None) -> str:
    """The reason for which this one row is refused."""
    reading = parse_table(header or HEADER, [(2, fields)], {})
    assert reading.facts == ()
    (problem,) = reading.problems
    assert problem.count == 1
    assert problem.detail.startswith("line 2: ")
    return problem.reason


def test_row_by_hand() -> None:
    """Seconds become nanoseconds, and waiting is what is left of the step."""
    (step,) = parse_table(HEADER, [(2, ["16", "3", "46.63264", "44.80378"])], {}).facts

    assert (step.step, step.rank) == (16, 3)
    assert (step.wall_ns, step.own_ns, step.wait_ns) == (46_632_640_000, 44_803_780_000, 1_828_860_000)
    assert (step.peer_group, step.node, step.end) == ("0", "", None)


def test_all_columns() -> None:
    """Every column of ours is read; checkpoint and eval are neither own time nor waiting."""
    header = ["step", "rank", "wall", "wait", "peer_group", "node", "time", "data", "forward", "checkpoint"]
    row = ["7", "1", "60", "10", "2", "n3", "1700000000.5", "6", "10", "16"]
    (step,) = parse_table(header, [(2, row)], {}, "ms").facts

    assert (step.wall_ns, step.wait_ns, step.own_ns) == (60_000_000, 10_000_000, 34_000_000)
    assert (step.peer_group, step.node, step.end) == ("2", "n3", 1_700_000_000.5)
    assert step.phase_ns == {"data": 6_000_000, "forward": 10_000_000, "checkpoint": 16_000_000}


@pytest.mark.parametrize(("unit", "wall_ns"), [("s", 2_000_000_000), ("ms", 2_000_000), ("us", 2_000), ("ns", 2)])
def test_units(unit: str, wall_ns: int) -> None:
    """The unit is that of all durations."""
    assert parse_table(HEADER, [(2, ["0", "0", "2", "1"])], {}, unit).facts[0].wall_ns == wall_ns


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (["1", "0", "1.0"], "too_few_fields"),
        (["1", "0", "1.0", "0.5", "x"], "too_many_fields"),
        (["", "0", "1.0", "0.5"], "missing_value"),
        (["1", "0", "", "0.5"], "missing_value"),
        (["1", "0", "fast", "0.5"], "not_a_number"),
        (["1", "0", "1_0", "0.5"], "not_a_number"),
        (["1", "0", "0x10", "0.5"], "not_a_number"),
        (["1", [], 1.0, 0.5], "not_a_number"),
        (["1.5", "0", "1.0", "0.5"], "not_an_integer"),
        (["1", "0", "nan", "0.5"], "not_finite"),
        (["1", "0", "1.0", "inf"], "not_finite"),
        (["-1", "0", "1.0", "0.5"], "negative"),
        (["1", "-1", "1.0", "0.5"], "negative"),
        (["1", "0", "1.0", "-0.5"], "negative"),
        (["1", "99999999999", "1.0", "0.5"], "out_of_range"),
        (["1", "0", "1e9", "0.5"], "out_of_range"),
        (["1", "0", "1.0", "1.1"], "own_above_wall"),
    ],
)
def test_refused_rows(fields: list[Any], reason: str) -> None:
    """A row that cannot be used is refused under its own reason, with its line."""
    assert refusal(fields) == reason


def test_refused_wait_and_time() -> None:
    """Waiting longer than the step, milliseconds for a time, and no time at all are refused too."""
    assert refusal(["1", "0", "1.0", "1.5"], ["step", "rank", "wall", "wait"]) == "wait_above_wall"
    for time in ("1700000000000", "yesterday", "-5", "nan"):
        assert refusal(["1", "0", "1.0", "0.5", time], [*HEADER, "time"]) == "bad_time"


def test_duplicates_are_refused_and_the_first_kept() -> None:
    """Of two rows for one step and rank the first counts."""
    reading = parse_table(HEADER, [(2, ["1", "0", "1", "0.5"]), (3, ["1", "0", "1", "0.9"])], {})

    assert [step.own_ns for step in reading.facts] == [500_000_000]
    assert [(problem.reason, problem.count) for problem in reading.problems] == [("duplicate_step", 1)]


def test_many_refusals_are_one_problem() -> None:
    """Refusals are counted by reason; the first lines are named, the rest only counted."""
    (problem,) = parse_table(HEADER, [(line, ["1", "0", "x", "0"]) for line in range(2, 102)], {}).problems

    assert problem.count == 100
    assert problem.detail == "lines 2, 3, 4, 5, 6 and 95 more: wall is 'x'"


def test_rounded_own_time_is_no_error() -> None:
    """Own time above the step by rounding is the step."""
    (step,) = parse_table(HEADER, [(2, ["1", "0", "1.0000", "1.0005"])], {}).facts

    assert (step.own_ns, step.wait_ns) == (1_000_000_000, 0)


def test_unmeasured_is_not_zero() -> None:
    """An empty own time is unknown; a zero is a zero."""
    unknown, zero = parse_table(HEADER, [(2, ["1", "0", "1", ""]), (3, ["1", "1", "1", "0"])], {}).facts

    assert unknown.own_ns is None
    assert zero.own_ns == 0


@pytest.mark.parametrize("text", ["46,63", "1.046,63", "-0,5"])
def test_decimal_comma_stops_the_file(text: str) -> None:
    """Decimal commas are no matter of one row: the error shows how to write the number."""
    with pytest.raises(ParseError, match="decimal comma: write") as caught:
        parse_table(HEADER, [(2, ["1", "0", text, "0.5"])], {})

    assert "wall in line 2" in str(caught.value)


@pytest.mark.parametrize(
    "text", ["2023-11-14T22:13:20Z", "2023-11-14T22:13:20+00:00", "2023-11-15T00:13:20+02:00", "2023-11-14 22:13:20"]
)
def test_iso_times(text: str) -> None:
    """ISO 8601 with and without a zone; without one it is UTC."""
    assert parse_table([*HEADER, "time"], [(2, ["1", "0", "1", "0.5", text])], {}).facts[0].end == 1_700_000_000.0


def test_typed_values() -> None:
    """A typed table's own numbers and times are taken as they are; its nulls are absent."""
    moment = datetime(2023, 11, 14, 22, 13, 20, tzinfo=timezone.utc)
    header = [*HEADER, "peer_group", "time"]
    first, second = parse_table(
        header, [(2, [1, 0.0, 1, 0.5, 2, moment]), (3, [1, 1, 1.0, None, None, None])], {}
    ).facts

    assert (first.rank, first.peer_group, first.end) == (0, "2", 1_700_000_000.0)
    assert (second.own_ns, second.peer_group, second.end) == (None, "0", None)


FIELD = st.text(max_size=12) | st.floats().map(str) | st.integers().map(str) | st.none() | st.floats() | st.integers()


@given(st.lists(st.lists(FIELD, min_size=len(COLUMNS), max_size=len(COLUMNS)), max_size=20))
def test_any_row_is_a_step_or_a_counted_refusal(rows: list[list[Any]]) -> None:
    """Whatever stands in the fields, each row becomes a step or is counted under a listed reason."""
    try:
        reading = parse_table(list(COLUMNS), list(enumerate(rows, start=2)), {})
    except ParseError:
        return  # a decimal comma, see above

    assert len(reading.facts) + sum(problem.count for problem in reading.problems) == len(rows)
    assert {problem.reason for problem in reading.problems} <= set(REASONS)
    for step in reading.facts:
        assert 0 <= step.wait_ns <= step.wall_ns
        assert step.own_ns is None or 0 <= step.own_ns <= step.wall_ns
