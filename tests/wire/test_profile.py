"""Requests and answers of a profile: what is written is read, and nothing else is believed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from straggler.errors import WireError
from straggler.wire import profile
from straggler.wire.profile import Answer, Request, decode_answer, decode_request, encode

IDS = st.text("0123456789abcdef", min_size=1, max_size=32)
REQUESTS = st.builds(Request, IDS, st.integers(1, profile.MAX_STEPS), st.integers(0, 1 << 60), st.integers(0, 1 << 62))
ANSWERS = st.builds(
    Answer,
    IDS,
    st.sampled_from(profile.STATES),
    st.sampled_from(profile.REASONS),
    st.text(max_size=200),
    st.text(max_size=200),
    st.integers(0, 1 << 60),
    st.integers(0, 100),
    st.integers(0, 1 << 40),
)
GOOD: dict[str, Any] = {"version": 1, "id": "a1", "steps": 3, "first_step": 0, "expires_realtime_ns": 5}


@given(request=REQUESTS, answer=ANSWERS)
def test_what_is_written_is_read(request: Request, answer: Answer) -> None:
    """Both come back as they were, and fit."""
    assert decode_request(encode(request)) == request
    assert decode_answer(encode(answer)) == answer
    assert len(encode(answer)) <= profile.MAX_BYTES


@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Nothing but a listed error comes of garbage."""
    for decode in (decode_request, decode_answer):
        with pytest.raises(WireError):
            decode(data)


@pytest.mark.parametrize(
    "change",
    [
        {"id": ""},
        {"id": "A1"},
        {"id": "../../etc"},
        {"id": "a" * 33},
        {"id": 1},
        {"steps": 0},
        {"steps": profile.MAX_STEPS + 1},
        {"steps": True},
        {"steps": 2.0},
        {"steps": None},
        {"first_step": -1},
        {"expires_realtime_ns": "soon"},
    ],
)
def test_wrong_values_are_refused(change: dict[str, Any]) -> None:
    """No coercion: a text is no number, a truth value neither, and an id is no path."""
    with pytest.raises(WireError, match="bad_value"):
        decode_request(json.dumps({**GOOD, **change}).encode())


def test_another_version_is_refused_and_another_key_is_not() -> None:
    """A later minor version may say more."""
    assert decode_request(json.dumps({**GOOD, "colour": "red"}).encode()).steps == 3
    with pytest.raises(WireError, match="unknown_version"):
        decode_request(json.dumps({**GOOD, "version": 2}).encode())


def test_a_long_detail_is_cut() -> None:
    """A text of somebody else's library never makes an answer too long."""
    answer = decode_answer(encode(Answer("a1", profile.REFUSED, "failed", "\N{SNOWMAN}" * 5000)))

    assert answer.detail == "\N{SNOWMAN}" * 200
