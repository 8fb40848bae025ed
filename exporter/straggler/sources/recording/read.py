"""Opens a recording: CSV, plain or gzipped, or Parquet; what it is, its first bytes say, not its name."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from straggler.errors import ConfigError, ParseError, SourceAbsentError, SourceFailedError
from straggler.model.reading import Reading
from straggler.model.recorded import RecordedStep
from straggler.sources.recording.parse import Row, parse_table

_GZIP_MAGIC = b"\x1f\x8b"
_PARQUET_MAGIC = b"PAR1"
_UTF16_MAGIC = (b"\xff\xfe", b"\xfe\xff")
_DELIMITERS = (",", ";", "\t", "|")


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
    head = buffered.peek(4)[:4] if isinstance(buffered, io.BufferedReader) else b""
    if head.startswith(_PARQUET_MAGIC):
        return _read_parquet(buffered, mapping, unit)
    if head.startswith(_UTF16_MAGIC):
        raise ParseError("recording", "UTF-16 text; save it as UTF-8")
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
    first = ""
    skipped = 0
    for line in text:
        if line.strip():
            first = line
            break
        skipped += 1
    if not first:
        raise ParseError("recording", "an empty file")
    try:
        delimiter = _delimiter(first)
        header = next(csv.reader([first], delimiter=delimiter))
        return parse_table(header, _csv_rows(text, delimiter, len(header), skipped + 1), mapping, unit)
    except csv.Error as error:
        raise ParseError(f"recording as CSV ({error})", first.strip()) from error


def _csv_rows(text: IO[str], delimiter: str, width: int, lines_before: int) -> Iterator[Row]:
    """The rows; where a quote that is never closed has swallowed lines, each of those is a row of its own."""
    taken: list[str] = []
    reader = csv.reader(_noted(text, taken), delimiter=delimiter)
    for fields in reader:
        number = reader.line_num + lines_before
        if len(taken) > 1 and len(fields) != width:
            for place, line in enumerate(taken, start=number - len(taken) + 1):
                yield place, next(csv.reader([line], delimiter=delimiter))
        elif any(field.strip() for field in fields):
            yield number, fields
        taken.clear()


def _noted(lines: Iterable[str], taken: list[str]) -> Iterator[str]:
    for line in lines:
        taken.append(line)
        yield line


def _delimiter(header: str) -> str:
    """The delimiter that cuts the header into most names; a comma if none cuts it."""
    return max(_DELIMITERS, key=lambda delimiter: len(next(csv.reader([header], delimiter=delimiter))))


def _read_parquet(stream: IO[bytes], mapping: Mapping[str, str], unit: str) -> Reading[RecordedStep]:
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ConfigError(
            "file", "reading Parquet needs the package pyarrow, which is not installed here: install it, or write CSV"
        ) from None
    try:
        table = parquet.read_table(io.BytesIO(stream.read()))
    except (arrow.ArrowException, OSError) as error:
        raise SourceFailedError("corrupt", f"the Parquet file cannot be read: {error}") from error
    return parse_table(table.column_names, _parquet_rows(table), mapping, unit)


def _parquet_rows(table: Any) -> Iterator[Row]:
    """Rows from 1, as a CSV of the same table would number its lines after the header."""
    number = 1
    for batch in table.to_batches():
        for fields in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            number += 1
            yield number, fields
