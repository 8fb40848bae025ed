"""Reading a trace piece by piece: every form it comes in, and clear words for what is none."""

from __future__ import annotations

import contextlib
import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from straggler.errors import SourceFailedError
from straggler.sources.trace import read
from straggler.sources.trace.read import Entry, is_trace, read_entries

WHOLE: dict[str, Any] = {
    "schemaVersion": 1,
    "distributedInfo": {"rank": 3, "pg_config": [{"ranks": [0, 1]}]},
    "traceEvents": [{"ph": "X", "name": f'aten::"{number}" \u00e9 \\', "ts": number / 7} for number in range(5000)],
    "displayTimeUnit": "ms",
}
ENTRIES = [Entry(key, value) for key, found in WHOLE.items() for value in (found if key == "traceEvents" else [found])]


def failure(path: Path) -> SourceFailedError:
    """How reading the file fails."""
    with pytest.raises(SourceFailedError) as caught:
        list(read_entries(path))
    return caught.value


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("packed", [False, True])
def test_every_event_comes_once_and_in_order(tmp_path: Path, *, packed: bool, indent: int | None) -> None:
    """Plain or gzipped, dense or indented: all events and all metadata, whatever the name of the file."""
    text = json.dumps(WHOLE, indent=indent, ensure_ascii=False).encode()
    path = tmp_path / "any.name"
    path.write_bytes(gzip.compress(text) if packed else text)

    assert is_trace(path)
    assert list(read_entries(path)) == ENTRIES


def test_a_bare_list_of_events_is_a_trace(tmp_path: Path) -> None:
    """Chrome takes the list alone as well."""
    path = tmp_path / "t.json"
    path.write_text(json.dumps(WHOLE["traceEvents"]))

    assert [entry.value for entry in read_entries(path)] == WHOLE["traceEvents"]


def test_windows_of_any_size_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the window cuts, in a name, a number or a separator, nothing is lost."""
    small = {**WHOLE, "traceEvents": WHOLE["traceEvents"][:20], "last": 12345}
    path = tmp_path / "t.json"
    path.write_text(json.dumps(small, indent=1))
    for size in (1, 2, 3, 7, 64):
        monkeypatch.setattr(read, "_CHUNK_BYTES", size)
        assert [entry.value for entry in read_entries(path)] == [
            1,
            WHOLE["distributedInfo"],
            *small["traceEvents"],
            "ms",
            12345,
        ]


@pytest.mark.parametrize("end", ["", ",", ",\n", "]", ", ]\n"])
def test_a_bare_list_may_lack_its_end(tmp_path: Path, end: str) -> None:
    """The format leaves the last bracket to the writer, who may have died."""
    path = tmp_path / "t.json"
    path.write_text('[{"ph": "X"},\n{"ph": "Y"}' + end)

    assert [entry.value for entry in read_entries(path)] == [{"ph": "X"}, {"ph": "Y"}]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (r"C:\Users\me\train.py(12): step", r"C:\Users\me" + "\train.py(12): step"),
        (r"\d+ and \u12g4", r"\d+ and \u12g4"),
        (r"\\server\share", r"\server\share"),
        ("two\nlines\tand a \x01", "two\nlines\tand a \x01"),
        (r"\u00e9\n\"", 'é\n"'),
    ],
)
def test_names_that_nobody_escaped(tmp_path: Path, written: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path of Windows or a line end in a name costs nothing, wherever the window cuts it; valid escapes stay."""
    path = tmp_path / "t.json"
    path.write_text(f'{{"traceEvents": [{{"name": "{written}", "ph": "X"}}, {{"ph": "behind it"}}]}}')
    for size in (1, 7, 1 << 18):
        monkeypatch.setattr(read, "_CHUNK_BYTES", size)
        assert [entry.value for entry in read_entries(path)] == [{"name": name, "ph": "X"}, {"ph": "behind it"}]


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """A file of 30 MB is read in a few megabytes."""
    path = tmp_path / "t.json"
    with path.open("w") as file:
        file.write('{"traceEvents": [')
        one = json.dumps({"ph": "X", "name": "x" * 900, "ts": 1, "dur": 1})
        file.write(",\n".join([one] * 30_000))
        file.write("]}")
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_entries(path)) == 30_000
        assert tracemalloc.get_traced_memory()[1] < 8e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "truncated"),
        (b'{"traceEvents": [{"ph": "X", "na', "truncated"),
        (b'{"traceEvents": [{"ph": "X"}', "truncated"),
        (b'{"traceEvents": [{"ph": "X"},', "truncated"),
        (b'{"traceEvents": [{"ph": "X"}]', "truncated"),
        (b'{"traceEvents": [{"ph": tr', "truncated"),
        (b'{"traceEvents": [{"ph" "X"}], "a": "and much more behind it"}', "bad_json"),
        (b'{"traceEvents": [{"ph": oops}], "a": "and much more behind it"}', "bad_json"),
        (b'{"traceEvents": {"ph": "X"}}', "not_a_trace"),
        (b'{"a": 1}', "not_a_trace"),
        (b"hello", "not_a_trace"),
        (b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "bad_json"),
        (gzip.compress(b'{"traceEvents": []}')[:-9], "corrupt"),
        (b"\x1f\x8bno gzip at all, it only looks like it", "corrupt"),
    ],
)
def test_what_is_no_trace_says_why(tmp_path: Path, content: bytes, reason: str) -> None:
    """Cut off, broken, packed badly, or something else altogether: one listed reason, never a traceback."""
    path = tmp_path / "t.json"
    path.write_bytes(content)

    assert failure(path).reason == reason


def test_a_missing_file_is_unreadable(tmp_path: Path) -> None:
    """What cannot be opened is said with the system's words."""
    assert failure(tmp_path / "none").reason == "unreadable"
    assert not is_trace(tmp_path / "none")


def test_one_endless_value_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value without an end does not fill the memory."""
    monkeypatch.setattr(read, "_MAX_VALUE_CHARACTERS", 1 << 20)
    path = tmp_path / "t.json"
    path.write_text('{"a": "' + "x" * (4 << 20) + '", "traceEvents": []}')

    assert failure(path).reason in {"too_large", "bad_json"}


@given(content=st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Random bytes behind a good beginning raise nothing but the listed error."""
    path = tmp_path_factory.mktemp("trace") / "t"
    path.write_bytes(b'{"traceEvents": [' + content)
    with contextlib.suppress(SourceFailedError):
        assert all(entry.key for entry in read_entries(path))
