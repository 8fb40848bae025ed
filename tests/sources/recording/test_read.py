"""Files as they come: packed, with other delimiters, marks and endings, or broken."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

import pytest

from straggler.errors import ConfigError, ParseError, SourceAbsentError, SourceFailedError
from straggler.sources.recording.read import read_recording

PLAIN = "step,rank,wall,own\n1,0,2.0,1.5\n1,1,2.0,1.0\n"


def own_times(content: bytes, tmp_path: Path, name: str = "f.csv") -> list[int | None]:
    """Own times of all rows of a file with this content."""
    path = tmp_path / name
    path.write_bytes(content)
    reading = read_recording(path)
    assert reading.problems == ()
    return [step.own_ns for step in reading.facts]


@pytest.mark.parametrize(
    "content",
    [
        PLAIN.encode(),
        b"\xef\xbb\xbf" + PLAIN.encode(),
        PLAIN.replace("\n", "\r\n").encode(),
        PLAIN.replace(",", ";").encode(),
        PLAIN.replace(",", "\t").encode(),
        PLAIN.replace(",", "|").encode(),
        PLAIN.replace("2.0", '"2.0"').encode(),
        ("\n\n" + PLAIN + "\n\n").encode(),
        PLAIN.strip().encode(),
        gzip.compress(PLAIN.encode()),
        PLAIN.replace(",", " ").encode(),
        PLAIN.replace(",", "   ").replace("\n", "  \n  ").encode(),
        b"# made by a tool\n# on a node\n" + PLAIN.replace("\n1,1", "\n# restarted\n1,1").encode(),
        b"# " + PLAIN.encode(),
        b"sep=;\n" + PLAIN.replace(",", ";").encode(),
        PLAIN.upper().encode(),
        PLAIN.replace("\n1,", "\nstep 1,").replace(",0,", ",rank0,").replace(",1,", ",Rank_1,").encode(),
    ],
    ids=[
        *("plain", "bom", "crlf", "semicolon", "tab", "pipe", "quoted", "blank lines", "no last newline", "gzip"),
        *("blanks", "aligned", "comments", "numpy", "excel", "capitals", "named numbers"),
    ],
)
def test_same_table_in_many_clothes(content: bytes, tmp_path: Path) -> None:
    """Mark, line ends, delimiter, quotes, blank lines and packing make no difference; nor does the file's name."""
    assert own_times(content, tmp_path, "f.dat") == [1_500_000_000, 1_000_000_000]


def test_stream() -> None:
    """A stream is read as a file is, packed or not."""
    for content in (PLAIN.encode(), gzip.compress(PLAIN.encode())):
        assert len(read_recording(io.BufferedReader(io.BytesIO(content))).facts) == 2


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    """The line in a refusal is the one that an editor shows, blank lines and a quoted line break counted."""
    path = tmp_path / "f.csv"
    path.write_text('\n\nstep,rank,wall,own,note\n1,0,1,1,"two\nlines"\n\n1,1,x,1,\n')

    assert read_recording(path).problems[0].detail == "line 7: wall is 'x'"


def test_header_only(tmp_path: Path) -> None:
    """Column names without rows are an empty reading and no error."""
    assert own_times(b"step,rank,wall,own\n", tmp_path) == []


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        (b"", ParseError, "empty file"),
        (b"\n \n", ParseError, "empty file"),
        ("step,rank\n".encode("utf-16"), ParseError, "UTF-8"),
        (b"step,rank,wall,own\n1,0,1,\xff\xfe\n", ParseError, "UTF-8"),
        (b"\x1f\x8b\x08\x00broken", SourceFailedError, "damaged"),
        (gzip.compress(PLAIN.encode())[:-9], SourceFailedError, "damaged"),
        (b'{"traceEvents": [' + b"1" * 200_000, ParseError, "JSON"),
        (b"x" * 200_000, ParseError, "CSV"),
        (b"PK\x03\x04\x14\x00\x06\x00", ParseError, "Excel"),
        (b"\x28\xb5\x2f\xfd\x04\x00", ParseError, "zstd"),
        (b"ARROW1\0\0", ParseError, "Parquet"),
        (b"<!DOCTYPE html>", ParseError, "HTML"),
        (b"nothing like a table\n", ConfigError, "no column step"),
    ],
)
def test_broken_files(content: bytes, error: type[Exception], said: str, tmp_path: Path) -> None:
    """A file that is no table of numbers is an error that says why."""
    path = tmp_path / "f.csv"
    path.write_bytes(content)

    with pytest.raises(error, match=said):
        read_recording(path)


@pytest.mark.parametrize(
    ("line", "reasons"),
    [
        (b"2,0,1,1\0", {"not_a_number", "unreadable_line"}),  # the second where csv refuses a NUL: Python 3.10
        (b"2,0," + b"1" * 200_000 + b",1", {"unreadable_line"}),
        (b'2,0,"' + b"1" * 200_000 + b",1", {"unreadable_line"}),
    ],
)
def test_a_line_that_is_none_loses_itself(line: bytes, reasons: set[str], tmp_path: Path) -> None:
    """A NUL or a field without end costs one line, counted, and none of those around it."""
    path = tmp_path / "f.csv"
    path.write_bytes(PLAIN.encode() + line + b"\n3,0,2.0,1.5\n")

    reading = read_recording(path)

    assert [fact.step for fact in reading.facts] == [1, 1, 3]
    assert [(problem.count, problem.reason in reasons) for problem in reading.problems] == [(1, True)]
    assert "line 4:" in reading.problems[0].detail


def test_lines_are_numbered_as_in_the_file(tmp_path: Path) -> None:
    """Comments and blank lines count, so that an editor finds the line that is told."""
    path = tmp_path / "f.csv"
    path.write_bytes(b"# made by a tool\n\nstep,rank,wall,own\n# restarted\n1,0,2,oops\n")

    assert "line 5:" in read_recording(path).problems[0].detail


def test_open_quote_loses_its_line_alone(tmp_path: Path) -> None:
    """A quote that nobody closes does not swallow the rows below it."""
    path = tmp_path / "f.csv"
    path.write_bytes(b'step,rank,wall,own\n1,0,1,1\n"2,0,1,1\n3,0,1,1\n4,0,1,1\n')

    reading = read_recording(path)

    assert [fact.step for fact in reading.facts] == [1, 3, 4]
    assert [(problem.reason, problem.count) for problem in reading.problems] == [("too_few_fields", 1)]


def test_absent_and_unreadable(tmp_path: Path) -> None:
    """No file and a directory are told apart."""
    with pytest.raises(SourceAbsentError, match="there is no file"):
        read_recording(tmp_path / "none.csv")
    with pytest.raises(SourceFailedError, match="cannot read"):
        read_recording(tmp_path)


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parquet without its package is a setting that cannot be used here, with the way out."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "f.parquet"
    path.write_bytes(b"PAR1....PAR1")

    with pytest.raises(ConfigError, match="straggler-exporter\\[parquet\\]"):
        read_recording(path)


def test_parquet(tmp_path: Path) -> None:
    """A Parquet table gives the same steps as the CSV; a damaged one is an error."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "f.parquet"
    columns = {"step": [1, 1], "rank": [0, 1], "wall": [2.0, 2.0], "own": [1.5, None], "stage": [0, 0]}
    parquet.write_table(arrow.table(columns), path)
    reading = read_recording(path, {"peer_group": "stage"})

    assert [step.own_ns for step in reading.facts] == [1_500_000_000, None]
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(SourceFailedError, match="cannot be read"):
        read_recording(path)


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_parquet_with_times(unit: str, tmp_path: Path) -> None:
    """Times with nanoseconds, and durations that have a unit of their own, are the numbers they stand for.

    A column that nobody asked for costs nothing, whatever is in it.
    """
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    nanoseconds = arrow.array([1_767_323_045_000_000_123, 1 << 62], arrow.timestamp("ns"))
    columns = {
        "step": [1, 2],
        "rank": [0, 0],
        "wall": arrow.array([2_000_000_001, None], arrow.duration("ns")),
        "own": arrow.array([1_500, 1_000], arrow.duration("ms")),
        "time": nanoseconds,
        "noted": arrow.array([1 << 62, 1], arrow.timestamp("us")),
    }
    parquet.write_table(arrow.table(columns), tmp_path / "f.parquet")
    reading = read_recording(tmp_path / "f.parquet", unit=unit)

    assert [(step.wall_ns, step.own_ns) for step in reading.facts] == [(2_000_000_001, 1_500_000_000)]
    assert reading.facts[0].end == pytest.approx(1_767_323_045.0)
    assert [problem.reason for problem in reading.problems] == ["missing_value"]


def test_parquet_with_days(tmp_path: Path) -> None:
    """A date is its midnight; one that no calendar has refuses its row alone."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    days = arrow.array([20_000, 1 << 30], arrow.date32())
    table = arrow.table({"step": [1, 2], "rank": [0, 0], "wall": [2.0, 2.0], "own": [1.0, 1.0], "time": days})
    parquet.write_table(table, tmp_path / "f.parquet")
    reading = read_recording(tmp_path / "f.parquet")

    assert [step.end for step in reading.facts] == [20_000 * 86_400.0]
    assert [problem.reason for problem in reading.problems] == ["bad_time"]
