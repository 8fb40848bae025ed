"""The exposition text: what is read, and what is lost to which fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from straggler.sources.dcgm.reasons import LINE_REASONS
from straggler.sources.dcgm.text import Page, TextParser

Sample = tuple[str, Mapping[str, str], float]


def parser(**limits: int) -> TextParser[tuple[str, Mapping[str, str]]]:
    """A parser to which a sample means its name and labels."""
    return TextParser(lambda name, labels: (name, dict(labels)), **limits)


def read(text: str, *, complete: bool = True, **limits: int) -> tuple[list[Sample], dict[str, int]]:
    """All samples of a page, and how many lines were lost to what."""
    page: Page[tuple[str, Mapping[str, str]]] = parser(**limits).parse(text, complete=complete)
    problems = {problem.reason: problem.count for problem in page.problems}
    assert set(problems) <= set(LINE_REASONS)
    return [(*meaning, value) for meaning, value in page.samples], problems


GOOD: Sample = ("a", {"b": "c"}, 1.0)


@pytest.mark.parametrize(
    ("line", "sample"),
    [
        ('a{b="c"} 1', GOOD),
        ('a{b="c"} 1\r', GOOD),
        (' \ta {b="c"}\t1 ', GOOD),
        ('a{ b = "c" , } 1', GOOD),
        ('a{b="c"}1', GOOD),
        ('a{b="c"} 1 1700000000000', GOOD),
        ('a{b="c"} 1 # {trace_id="KOO5"} 0.67', GOOD),
        ('a{b="c"} 1 # {trace_id="x"} 0.67 1.5 # {y="z"} 2', GOOD),
        ('a{b="c"} 1.0e+00', GOOD),
        ("a 1", ("a", {}, 1.0)),
        ("a{} 1", ("a", {}, 1.0)),
        ("a 1 1700000000000", ("a", {}, 1.0)),
        ('a 1 # {x="y"} 2', ("a", {}, 1.0)),
        ('ns:a{b="c", d="e"} -0.5', ("ns:a", {"b": "c", "d": "e"}, -0.5)),
        ('a{b="c",,d="e"} 1', ("a", {"b": "c", "d": "e"}, 1.0)),
        ('a{b=""} 1', ("a", {"b": ""}, 1.0)),
        ('a{b="x}y{z"} 1', ("a", {"b": "x}y{z"}, 1.0)),
        ('a{b="x # {y"} 1', ("a", {"b": "x # {y"}, 1.0)),
        ('a{b="x,y=1"} 1', ("a", {"b": "x,y=1"}, 1.0)),
        ('a{b="q\\"q",d="\\\\",e="l\\nl"} 1', ("a", {"b": 'q"q', "d": "\\", "e": "l\nl"}, 1.0)),
        ('a{b="train "7b""} 1', ("a", {"b": 'train "7b"'}, 1.0)),
        ('a{b="train "7b"",d="e"} 1', ("a", {"b": 'train "7b"', "d": "e"}, 1.0)),
        ('a{b=""quoted"",d="e"} 1', ("a", {"b": '"quoted"', "d": "e"}, 1.0)),
        ('a{b="one", two",d="e"} 1', ("a", {"b": 'one", two', "d": "e"}, 1.0)),
        ('a{b="c:\\",d="e"} 1', ("a", {"b": "c:\\", "d": "e"}, 1.0)),
        ('a{b="ü 训练"} 1', ("a", {"b": "ü 训练"}, 1.0)),
        ('{"a",b="c"} 1', GOOD),
        ('{"a", "b"="c"} 1', GOOD),
        ('{"a"} 1', ("a", {}, 1.0)),
        ('{"a.b/\\"c\\"","d"="e"} 1', ('a.b/"c"', {"d": "e"}, 1.0)),
        ('a{"app.kubernetes.io/name"="x",b="c"} 1', ("a", {"app.kubernetes.io/name": "x", "b": "c"}, 1.0)),
        ('a{b="c","x, y = z"="1"} 1', ("a", {"b": "c", "x, y = z": "1"}, 1.0)),
        ('a{b="c"} 9223372036854775794', ("a", {"b": "c"}, 9.223372036854775808e18)),
    ],
)
def test_a_line(line: str, sample: Sample) -> None:
    """Every way in which exporters and proxies write a sample gives name, labels and value."""
    assert read(f"{line}\n") == ([sample], {})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('a{b="c"}', "missing_value"),
        ('a{b="c"} ', "missing_value"),
        ('a{b="c"} ERROR - FAILED TO CONVERT TO STRING', "not_a_number"),
        ('a{b="c"} NVIDIA', "not_a_number"),
        ('a{b="c"} 1,5', "not_a_number"),
        ('a{b="c"} 1_000', "not_a_number"),
        ('a{b="c"} 0x1F', "not_a_number"),
        ('a{b="c"} \u0661', "not_a_number"),
        ('a{b="c"} 1e999', "not_a_number"),
        ('a{b="c"} 1 soon', "not_a_number"),
        ('a{b="c"} 1 2 3', "not_a_number"),
        ('a{b="c"} NaN', "nan_or_inf"),
        ('a{b="c"} +Inf', "nan_or_inf"),
        ('a{b="c"} -inf', "nan_or_inf"),
        ('{b="c"} 1', "bad_line"),
        ('7a{b="c"} 1', "bad_line"),
        ('a-b{c="d"} 1', "bad_line"),
        ("internal server error", "bad_line"),
        ("a", "bad_line"),
        ("<html>", "bad_line"),
        ('a{b="c" 1', "bad_labels"),
        ("a{b=c} 1", "bad_labels"),
        ("a{b} 1", "bad_labels"),
        ('a{b="c} 1', "bad_labels"),
        ('a{="c"} 1', "bad_labels"),
        ('a{b="c"d="e} 1', "bad_labels"),
    ],
)
def test_a_bad_line(line: str, reason: str) -> None:
    """A bad line is lost under its reason, and the lines around it are not."""
    assert read(f'a{{b="c"}} 1\n{line}\na{{b="c"}} 1\n') == ([GOOD, GOOD], {reason: 1})


@pytest.mark.parametrize(
    "line",
    [
        "",
        "   ",
        "\t\r",
        '# HELP a text with } and { and "',
        "# TYPE a counter",
        "#",
        "  # indented",
        "# EOF",
    ],
)
def test_nothing_to_read(line: str) -> None:
    """Blank lines and comments are neither samples nor faults, wherever they stand."""
    assert read(f'{line}\na{{b="c"}} 1\n{line}\n{line}') == ([GOOD], {})


def test_duplicate_label() -> None:
    """Of a label that stands twice the first value counts: base labels come before those of pods. It is counted."""
    assert read('a{b="c",b="d"} 1\n' * 2) == ([GOOD, GOOD], {"duplicate_label": 2})


def test_byte_order_mark() -> None:
    """A byte order mark is no part of the first name."""
    assert read('\N{BYTE ORDER MARK}a{b="c"} 1\n') == ([GOOD], {})


def test_no_final_newline() -> None:
    """A whole page may lack its last newline."""
    assert read('a{b="c"} 1\na{b="c"} 1') == ([GOOD, GOOD], {})


@pytest.mark.parametrize("rest", ["a", "a{", 'a{b="c', 'a{b="c"}', "# HELP a te"])
def test_cut_last_line(rest: str) -> None:
    """A last line that is cut where one can see it is lost as such; a cut comment is nothing."""
    samples, problems = read(f'a{{b="c"}} 1\n{rest}')

    assert samples == [GOOD]
    assert problems == ({} if rest.startswith("#") else {"truncated_line": 1})


def test_cut_number() -> None:
    """A number may be cut where nobody can see it, so on a page that is known to be cut it is not believed."""
    text = 'a{b="c"} 1\na{b="c"} 19'

    assert read(text, complete=False) == ([GOOD], {"truncated_line": 1})
    assert len(read(text)[0]) == 2


def test_cut_exactly_at_the_end_of_a_line() -> None:
    """A page that is cut between two lines has lost no line that began."""
    assert read('a{b="c"} 1\n', complete=False) == ([GOOD], {})


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_only_newlines_end_lines(separator: str) -> None:
    """What Python calls a line end is text inside a label value."""
    assert read(f'a{{b="{separator}"}} 1\n')[0][0][1] == {"b": separator}


def test_long_line() -> None:
    """A line over the limit is refused unread, the next one is not."""
    long = 'a{b="' + "x" * 200 + '"} 1'

    assert read(f'{long}\na{{b="c"}} 1\n', max_line_characters=100) == ([GOOD], {"line_too_long": 1})


def test_many_lines() -> None:
    """Lines over the limit are not read, and that is said once."""
    assert read('a{b="c"} 1\n' * 5, max_lines=3) == ([GOOD] * 3, {"too_many_lines": 1})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<html><body>x</body></html>", False),
        ('{"error": "not found", "code": 404}', False),
        ('{\n "status": 500,\n "error": "x"\n}\n', False),
        ("internal server error\n", False),
        ("# HELP a b\n", False),
        ("a 1\n", True),
        ('a{b="c"} NVIDIA\n', True),
    ],
)
def test_looks_like_metrics(text: str, expected: bool) -> None:  # noqa: FBT001 - the expectation is the parameter
    """A page of metrics with only bad values is one; HTML, JSON and sentences are none."""
    assert parser().parse(text).looks_like_metrics is expected


def test_heads_are_remembered_for_one_page() -> None:
    """A known head is not interpreted again; one that a page lacks is forgotten, so memory is bounded by one page."""
    heads: list[str] = []
    reader = TextParser[Any](lambda name, _: heads.append(name))
    reader.parse('a{b="c"} 1\nd{b="c"} 1\n')
    reader.parse('a{b="c"} 2\n')
    assert heads == ["a", "d"]

    reader.parse('d{b="c"} 3\n')
    assert heads == ["a", "d", "d"]


def test_remembered_head_with_a_bad_value() -> None:
    """A known head does not excuse a bad value, and a bad value does not spoil the head."""
    reader = parser()
    pages = [reader.parse(f'a{{b="c"}} {value}\n') for value in ("1", "x", "1 1700000000000", "2")]

    assert [[value for _, value in page.samples] for page in pages] == [[1.0], [], [1.0], [2.0]]
    assert [problem.reason for problem in pages[1].problems] == ["not_a_number"]


@pytest.mark.parametrize("unit", ['",', '\\"', '" ', "b", " # {", 'b="c",', '"b=', "}", "{", "\\", " =", '",b="', ", "])
def test_hostile_line_ends(unit: str) -> None:
    """Half a million characters made to send a scanner back and forth are read once.

    A scanner that took the square of the steps, or worse, would not be back before the runner's own timeout.
    """
    text = 'a{b="' + unit * (500_000 // len(unit)) + "} 1\n"

    samples, problems = read(text, max_line_characters=1_000_000)

    assert len(samples) + sum(problems.values()) >= 1
