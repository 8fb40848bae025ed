"""Names from outside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from straggler.errors import WireError
from straggler.model.identity import MAX_LABEL_CHARACTERS, clean_identity, clean_text
from straggler.wire.records import Identity


@given(text=st.text(max_size=300))
def test_any_text_becomes_a_label(text: str) -> None:
    """Whatever the text, the result is printable, bounded, and stays as it is when cleaned again."""
    clean = clean_text(text)

    assert clean.isprintable()
    assert len(clean) <= MAX_LABEL_CHARACTERS
    assert clean_text(clean) == clean


@pytest.mark.parametrize("text", ["llama-70b", "team-a/pretrain 3", "1234.0", "größe", "x" * 128])
def test_ordinary_names_stay(text: str) -> None:
    """Real names are not touched."""
    assert clean_text(text) == text


def test_long_names_with_the_same_start_stay_two() -> None:
    """Two runs whose names differ only after the limit are two runs."""
    first, second = ("x" * 200 + end for end in "ab")

    assert clean_text(first) != clean_text(second)


def test_control_characters_are_visible() -> None:
    """Escape sequences and direction overrides cannot act on a terminal or a page."""
    assert clean_text("a\x1b[31mb\N{RIGHT-TO-LEFT OVERRIDE}c") == "a\ufffd[31mb\ufffdc"


def test_devices_stay_whole() -> None:
    """The list of visible devices is evidence, not a label: it is not cut."""
    devices = ",".join(f"GPU-{number:032d}" for number in range(16))

    assert clean_identity(Identity("r", 0, visible_devices=devices)).visible_devices == devices


@pytest.mark.parametrize("run", ["", " ", "\N{NO-BREAK SPACE}\t"])
def test_run_without_a_name_is_refused(run: str) -> None:
    """A run must have a name that can be seen."""
    with pytest.raises(WireError) as caught:
        clean_identity(Identity(run, 0))

    assert caught.value.reason == "bad_identity"
