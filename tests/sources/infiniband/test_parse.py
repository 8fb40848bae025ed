"""The texts of a port."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from straggler.errors import ParseError
from straggler.sources.infiniband.parse import parse_counter, parse_rate, parse_state


@pytest.mark.parametrize(
    ("text", "bytes_per_second"),
    [
        ("400 Gb/sec (4X NDR)\n", 50_000_000_000),
        ("100 Gb/sec (2X HDR)\n", 12_500_000_000),
        ("25 Gb/sec (1X EDR)\n", 3_125_000_000),
        ("2.5 Gb/sec (1X SDR)\n", 312_500_000),
        ("10 Gb/sec (4X SDR)", 1_250_000_000),
        ("800 Gb/sec (8X NDR)\n", 100_000_000_000),
        ("40 Gb/sec (4X FDR10)\n", 5_000_000_000),
        ("0 Gb/sec\n", 0),
    ],
)
def test_rate(text: str, bytes_per_second: float) -> None:
    """The number is the whole link's in bits, 10^9 to the giga; its width is in it already and multiplies nothing."""
    assert parse_rate(text) == bytes_per_second


@pytest.mark.parametrize(
    "text", ["", "400", "400 Mb/sec", "-1 Gb/sec", "1e3 Gb/sec", "400 Gb/section", "999999 Gb/sec"]
)
def test_what_is_no_rate(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(ParseError):
        parse_rate(text)


@pytest.mark.parametrize(
    ("text", "name", "carries"),
    [
        ("4: ACTIVE\n", "ACTIVE", True),
        ("1: DOWN\n", "DOWN", False),
        ("2: INIT\n", "INIT", False),
        ("3: ARMED\n", "ARMED", False),
        ("5: ACTIVE_DEFER\n", "ACTIVE_DEFER", False),
        ("0: NOP\n", "NOP", False),
        ("7: <unknown>\n", "<unknown>", False),
    ],
)
def test_state(text: str, name: str, *, carries: bool) -> None:
    """A port carries traffic in one state only: a link that is trained (INIT) still waits for the subnet manager."""
    state = parse_state(text)

    assert (state.name, state.carries) == (name, carries)


@pytest.mark.parametrize("text", ["", "ACTIVE", "4", "4:", "x: ACTIVE", "4: \x1b[31m", "123: ACTIVE"])
def test_what_is_no_state(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(ParseError):
        parse_state(text)


def test_counter() -> None:
    """All of 64 bits can be read, and what nobody counts is no number."""
    assert parse_counter("0\n") == 0
    assert parse_counter("18446744073709551615\n") == 18446744073709551615
    assert parse_counter("N/A (no PMA)\n") is None


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1.5", "0x10", "1 2", "18446744073709551616", "9" * 4096, "²", "N/Axyz"]
)
def test_what_is_no_counter(text: str) -> None:
    """Negative, broken and boundless values are refused: none of them is a count."""
    with pytest.raises(ParseError):
        parse_counter(text)


@given(st.text(), st.sampled_from([parse_counter, parse_rate, parse_state]))
def test_any_text_is_read_or_refused(text: str, parse: Callable[[str], object]) -> None:
    """There is no third way out, whatever a driver prints."""
    with suppress(ParseError):
        assert parse(text) is None or any(character.isdigit() for character in text)
