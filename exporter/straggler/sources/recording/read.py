"""Opens a recording: CSV, plain or gzipped, or Parquet; what it is, its first bytes say, not its name."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import chain
from pathlib import Path
from typing import IO, Any

from straggler.errors import ConfigError, ParseError, SourceAbsentError, SourceFailedError
from straggler.model.reading import Reading
from straggler.model.recorded import RecordedStep
from straggler.sources.recording.columns import resolve
from straggler.sources.recording.parse import UNITS, Row, parse_table

_GZIP_MAGIC = b"\x1f\x8b"
_PARQUET_MAGIC = b"PAR1"
_UTF16_MAGIC = (b"\xff\xfe", b"\xfe\xff")
_OTHERS = (
    (b"PK\x03\x04", "a zip or Excel file; save it as CSV"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd; unpack it, or use gzip"),
    (b"BZh", "packed with bzip2; unpack it, or use gzip"),
    (b"\xfd7zXZ", "packed with xz; unpack it, or use gzip"),
    (b"ARROW1", "an Arrow file; write Parquet or CSV"),
    (b"{", "JSON; write it as CSV"),
    (b"[", "JSON; write it as CSV"),
    (b"<", "HTML or XML; CSV is needed"),
)
"""Beginnings of what people take for a recording."""
_DELIMITERS = (",", ";", "\t", "|")
_BLANK = " "
"""Any number of blanks between two fields, as tools for terminals write them."""
# sep=;           (Excel's first line)
_EXCEL = re.compile(r"sep=([,;|\t])", re.IGNORECASE)


def read_recording(
    file: Path | IO[bytes], mapping: Mapping[str, str] | None = None, unit: str = "s"
) -> Reading[RecordedStep]:
    """Read all steps of a recording.

    Args:
        file: its path, or an open binary stream.
        mapping: our column name to the file's.
        unit: of all durations; one of ``parse.UNITS``.

    Raises:
        SourceAbsentError: there is no such file.
        SourceFailedError: it cannot be read or unpacked.
        ConfigError: a needed or named column is not there, or Parquet cannot be read here.
        ParseError: it is no table of numbers.
    """
    if isinstance(file, Path):
        try:
            with file.open("rb") as stream:
                return _read_stream(stream, mapping or {}, unit)
        except FileNotFoundError:
            raise SourceAbsentError(f"there is no file {file}") from None
        except OSError as error:
            raise SourceFailedError("unreadable", f"cannot read {file}: {error.strerror or error}") from error
    return _read_stream(file, mapping or {}, unit)


def _read_stream(stream: IO[bytes], mapping: Mapping[str, str], unit: str) -> Reading[RecordedStep]:
    buffered = io.BufferedReader(stream) if isinstance(stream, io.RawIOBase) else stream
    head = buffered.peek(8)[:8] if isinstance(buffered, io.BufferedReader) else b""
    if head.startswith(_PARQUET_MAGIC):
        return _read_parquet(buffered, mapping, unit)
    if head.startswith(_UTF16_MAGIC):
        raise ParseError("recording", "UTF-16 text; save it as UTF-8")
    for beginning, what in _OTHERS:
        if head.startswith(beginning):
            raise ParseError("recording", what)
    try:
        if head.startswith(_GZIP_MAGIC):
            with gzip.open(buffered, "rb") as unpacked:
                return _read_csv(io.BufferedReader(unpacked), mapping, unit)
        return _read_csv(buffered, mapping, unit)
    except UnicodeDecodeError as error:
        raise ParseError(
            "recording (UTF-8 text is needed)", repr(error.object[error.start : error.start + 8])
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SourceFailedError("corrupt", f"the gzip file is damaged: {error}") from error


def _read_csv(stream: IO[bytes], mapping: Mapping[str, str], unit: str) -> Reading[RecordedStep]:
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    try:
        return _read_text(text, mapping, unit)
    finally:
        text.detach()  # the stream is its opener's to close


def _read_text(text: IO[str], mapping: Mapping[str, str], unit: str) -> Reading[RecordedStep]:
    lines: Iterator[tuple[int, str]] = enumerate(text, start=1)
    names, comment, delimiter = "", "", ""
    for number, line in lines:
        stripped = line.strip()
        if stripped.startswith("#"):
            comment = stripped.lstrip("# ")
        elif match := _EXCEL.fullmatch(stripped):
            delimiter = match[1]
        elif stripped:
            names = line
            if comment and stripped[0].isdigit():  # numpy.savetxt: names behind a #, numbers below
                names, lines = comment, chain([(number, line)], lines)
            break
    if not names:
        raise ParseError("recording", "an empty file")
    delimiter = delimiter or _delimiter(names)
    header = _fields(names, delimiter)
    if header is None:
        raise ParseError("recording as CSV", names)
    return parse_table(header, _csv_rows(lines, delimiter, len(header)), mapping, unit)


def _csv_rows(lines: Iterable[tuple[int, str]], delimiter: str, width: int) -> Iterator[Row]:
    """The rows; where a quote that is never closed has swallowed lines, each of those is a row of its own."""
    taken: list[tuple[int, str]] = []
    reader = csv.reader(_noted(lines, taken, delimiter), delimiter=delimiter)
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error:
            fields = None
        if fields is None or (len(taken) > 1 and len(fields) != width):
            for place, line in taken:
                yield place, _fields(line, delimiter)
        elif any(field.strip() for field in fields):
            yield taken[-1][0], fields
        taken.clear()


def _noted(lines: Iterable[tuple[int, str]], taken: list[tuple[int, str]], delimiter: str) -> Iterator[str]:
    for number, line in lines:
        if line.startswith("#"):
            continue
        taken.append((number, line))
        yield _prepared(line, delimiter)


def _fields(line: str, delimiter: str) -> list[str] | None:
    """One line by itself; ``None`` if it is none of CSV's: a field without end, on older Pythons a NUL."""
    try:
        return next(csv.reader([_prepared(line, delimiter)], delimiter=delimiter), [])
    except csv.Error:
        return None


def _prepared(line: str, delimiter: str) -> str:
    """As csv can divide it, to which two blanks are an empty field."""
    return _BLANK.join(line.split()) if delimiter == _BLANK else line


def _delimiter(header: str) -> str:
    """The delimiter that cuts the header into most names; blanks, then a comma, if none cuts it."""
    names = {delimiter: len(_fields(header, delimiter) or ()) for delimiter in _DELIMITERS}
    best = max(names, key=names.__getitem__)
    return best if names[best] > 1 or len(header.split()) == 1 else _BLANK


def _read_parquet(stream: IO[bytes], mapping: Mapping[str, str], unit: str) -> Reading[RecordedStep]:
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ConfigError(
            "file",
            "reading Parquet needs pyarrow, which is not installed here: pip install 'straggler-exporter[parquet]', or "
            "write CSV",
        ) from None
    try:
        table = parquet.read_table(io.BytesIO(stream.read()))
    except (arrow.ArrowException, OSError) as error:
        raise SourceFailedError("corrupt", f"the Parquet file cannot be read: {error}") from error
    wanted = set(resolve(table.column_names, mapping).values())
    return parse_table(table.column_names, _parquet_rows(arrow, table, wanted, UNITS[unit]), mapping, unit)


def _parquet_rows(arrow: Any, table: Any, wanted: AbstractSet[int], unit_ns: int) -> Iterator[Row]:
    """Rows from 1, as a CSV of the same table would number its lines after the header."""
    number = 1
    for batch in table.to_batches():
        columns = [
            _parquet_values(arrow, column, unit_ns) if index in wanted else [None] * len(column)
            for index, column in enumerate(batch.columns)
        ]
        for fields in zip(*columns, strict=True):
            number += 1
            yield number, fields


def _parquet_values(arrow: Any, column: Any, unit_ns: int) -> list[Any]:
    """A column's values. Times and durations as numbers: Python's own have no nanoseconds, and end with the year 9999.

    Args:
        arrow: the module.
        column: of one batch.
        unit_ns: of durations that are mere numbers; those that have a unit are turned into it.
    """
    if arrow.types.is_date(column.type):
        column = column.cast(arrow.timestamp("s" if arrow.types.is_date32(column.type) else "ms"))
    if arrow.types.is_timestamp(column.type):
        per_ns, factor = 1_000_000_000, UNITS[column.type.unit]
    elif arrow.types.is_duration(column.type):
        per_ns, factor = unit_ns, UNITS[column.type.unit]
    else:
        values: list[Any] = column.to_pylist()
        return values
    return [None if value is None else value * factor / per_ns for value in column.cast(arrow.int64()).to_pylist()]
