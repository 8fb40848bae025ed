"""Reading on where the last look ended, whatever becomes of the file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from straggler.sources.nccl.tail import BACKLOG_BYTES, BEGINNING_BYTES, END_BYTES, MAX_LINE_BYTES, Piece, Tail

Read = Callable[..., Piece]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of one line."""
    path = tmp_path / "log"
    path.write_text("one\n", encoding="utf-8")
    return path


@pytest.fixture
def read(log: Path) -> Read:
    """Look once more at whatever the log is by now."""
    tail = Tail()

    def look(most: int = 1 << 20) -> Piece:
        descriptor = os.open(log, os.O_RDONLY)
        try:
            return tail.read(descriptor, most)
        finally:
            os.close(descriptor)

    return look


def append(log: Path, text: str) -> None:
    """Write on."""
    with log.open("a", encoding="utf-8") as file:
        file.write(text)


def test_each_line_comes_once(log: Path, read: Read) -> None:
    """A line that is not finished is kept until it is."""
    assert read().lines == ("one",)
    append(log, "two\nthr")
    assert read().lines == ("two",)
    append(log, "ee\rfour\r\n")
    assert read().lines == ("three", "four")
    assert read() == Piece((), 0)


def test_a_truncated_file_is_read_from_its_beginning(log: Path, read: Read) -> None:
    """Also if it has grown beyond what it was when it is looked at again."""
    read()
    log.write_text("new\n", encoding="utf-8")
    assert read().lines == ("new",)
    log.write_text("other and longer\n", encoding="utf-8")
    assert read().lines == ("other and longer",)


def test_a_new_file_under_the_name_is_read_from_its_beginning(log: Path, read: Read) -> None:
    """After a rotation by renaming the half line of the old file is not put before the new one."""
    append(log, "half")
    read()
    log.rename(log.with_name("log.1"))
    log.write_text("one\ntwo\n", encoding="utf-8")

    assert read().lines == ("one", "two")


def test_one_look_reads_no_more_than_it_may(log: Path, read: Read) -> None:
    """The rest is for the next ones."""
    append(log, "x" * 100 + "\nlast\n")

    looks = [read(50) for _ in range(3)]

    assert [look.bytes for look in looks] == [50, 50, 10]
    assert [look.lines for look in looks] == [("one",), (), ("x" * 100, "last")]


def test_of_a_huge_file_beginning_and_end_are_read(log: Path, read: Read) -> None:
    """Gigabytes that are there already cost two reads; the piece that is left out ends with a whole line."""
    with log.open("wb") as file:
        file.write(b"first\n" + b"a" * BEGINNING_BYTES)
        file.truncate(10 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast\n")

    beginning = read(BEGINNING_BYTES)
    end = read(2 * END_BYTES)

    assert (beginning.lines[0], beginning.skipped) == ("first", False)
    assert (end.lines, end.skipped) == (("last",), True)
    assert beginning.bytes + end.bytes == BEGINNING_BYTES + END_BYTES


def test_a_flood_is_skipped_and_told(log: Path, read: Read) -> None:
    """Who writes faster than is read loses the middle, not the newest."""
    append(log, ("y" * 99 + "\n") * (BEGINNING_BYTES // 100 + 1))
    read(2 * BEGINNING_BYTES)
    append(log, ("z" * 99 + "\n") * (2 * BACKLOG_BYTES // 100))
    piece = read(2 * END_BYTES)

    assert piece.skipped
    assert set(piece.lines) == {"z" * 99}


def test_a_line_without_end_is_dropped(log: Path, read: Read) -> None:
    """It costs no memory, and what follows it is read again."""
    append(log, "w" * (3 * MAX_LINE_BYTES))
    first = read(2 * MAX_LINE_BYTES)
    second = read(2 * MAX_LINE_BYTES)
    append(log, "end\nnext\n")

    assert (first.long_lines, second.long_lines, read().lines) == (1, 0, ("next",))


def test_bytes_that_are_no_text_are_replaced(log: Path, read: Read) -> None:
    """A broken encoding loses characters and not the line."""
    log.write_bytes(b"caf\xe9\n")

    assert read().lines == ("caf\N{REPLACEMENT CHARACTER}",)
