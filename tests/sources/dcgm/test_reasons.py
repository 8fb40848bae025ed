"""Counting by reason."""

from __future__ import annotations

from straggler.model.reading import Problem
from straggler.sources.dcgm.reasons import DCGM_REASONS, MAX_DETAIL_CHARACTERS, Tally


def test_reasons_stand_once() -> None:
    """Each reason is a label value of its own."""
    assert len(DCGM_REASONS) == len(set(DCGM_REASONS))


def test_tally() -> None:
    """A reason that comes up often is one problem with its first detail, in the order of first sight."""
    tally = Tally()
    tally.add("bad_line", "first")
    tally.add("sentinel", "other")
    tally.add("bad_line", "second", 2)

    assert tally.problems() == (
        Problem(reason="bad_line", detail="first", count=3),
        Problem(reason="sentinel", detail="other", count=1),
    )
    assert "bad_line" in tally
    assert "no_uuid" not in tally


def test_foreign_text_is_shown_safely() -> None:
    """What a page says goes into the log as one printable line of bounded length."""
    tally = Tally()
    tally.add("bad_line", "a\nb\x1b[31m\u202e" + "x" * 10_000)
    (problem,) = tally.problems()

    assert problem.detail.isprintable()
    assert len(problem.detail) == MAX_DETAIL_CHARACTERS
