"""The documentation of the ring is checked against the code."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from straggler.wire import layout

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "step-ring.md").read_text(encoding="utf-8")
TYPES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "f64": "d"}
PARTS = {
    "Preamble": layout.PREAMBLE.format,
    "Live block": layout.LIVE.format,
    "Record": layout.RECORD_BODY.format + layout.RECORD_CRC.format[1:],
}


def documented(part: str) -> str:
    """The rows of one table as a struct format, zeros as pad bytes; fails where an offset is not the sum so far."""
    section = re.search(rf"^### {part}.*?(?=^##)", TEXT, re.MULTILINE | re.DOTALL)
    assert section is not None
    layout_format = "<"
    for offset, kind in re.findall(r"^\| (\d+) \| ([^|]+) \|", section.group(0), re.MULTILINE):
        assert int(offset) == struct.calcsize(layout_format), f"{part}: offset {offset}"
        times, _, unit = kind.strip().rpartition(" \u00d7 ")
        size, _, is_bytes = kind.strip().partition(" bytes")
        layout_format += f"{size}s" if not is_bytes and size.isdigit() else (times or "") + TYPES[unit.strip()]
    return layout_format


def shape(form: str) -> list[tuple[int, str]]:
    """Offset and kind of each number in a struct format."""
    places, at = [], 0
    for times, kind in re.findall(r"(\d*)([a-zA-Z])", form):
        if kind == "s":
            at += int(times)
            continue
        for _ in range(int(times or 1)):
            places.append((at, kind))
            at += struct.calcsize("<" + kind)
    return places


@pytest.mark.parametrize("part", PARTS)
def test_tables_say_what_the_code_does(part: str) -> None:
    """Each documented number stands at the offset, and has the size, that the code gives it."""
    code = shape(PARTS[part])
    for place in shape(documented(part)):
        assert place in code, f"{part}: {place}"
    assert struct.calcsize(documented(part)) == struct.calcsize("<" + PARTS[part].lstrip("<"))


def test_lists_are_complete() -> None:
    """Phases, statuses and the magic are named as in the code."""
    assert ", ".join(layout.PHASES) in TEXT
    assert f"`{layout.MAGIC.decode()}`" in TEXT
    assert f"`{layout.PUSH_MAGIC.decode()}`" in TEXT
