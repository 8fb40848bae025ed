"""Log lines when trouble begins and ends."""

from __future__ import annotations

import logging

import pytest

from straggler.model.reading import Problem
from straggler.sidecar.trouble import MAX_OPEN, QUIET_SECONDS, TroubleLog


@pytest.fixture(autouse=True)
def _log_everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


BAD = (Problem(reason="bad_value", detail="line 7"),)


def test_begins_and_ends_once(caplog: pytest.LogCaptureFixture) -> None:
    """Trouble on each of a hundred scrapes gives two lines."""
    log = TroubleLog()
    for second in range(100):
        log.update("dcgm", BAD, now=float(second))
    log.update("dcgm", (), now=99 + QUIET_SECONDS)

    assert [record.getMessage() for record in caplog.records] == [
        "dcgm: bad_value: line 7",
        "dcgm: bad_value: no longer",
    ]


def test_short_pause_is_no_end(caplog: pytest.LogCaptureFixture) -> None:
    """What comes and goes with every other scrape is one trouble."""
    log = TroubleLog()
    for second in range(0, 200, 15):
        log.update("dcgm", BAD if second % 2 else (), now=float(second))

    assert len(caplog.records) == 1


def test_standing_trouble_does_not_end(caplog: pytest.LogCaptureFixture) -> None:
    """A refusal that a source reports only when it begins goes on as long as it stands."""
    log = TroubleLog()
    log.update("rings", BAD, now=0)
    for second in range(15, 1000, 15):
        log.update("rings", (), still={"bad_value"}, now=float(second))

    assert len(caplog.records) == 1


def test_another_source_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The end of a source's trouble is seen by a look at that source."""
    log = TroubleLog()
    log.update("dcgm", BAD, now=0)
    log.update("rings", (), now=10 * QUIET_SECONDS)

    assert len(caplog.records) == 1


def test_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """Endless new reasons are counted elsewhere, and do not fill the log or the memory."""
    log = TroubleLog()
    log.update("x", [Problem(reason=str(number)) for number in range(10 * MAX_OPEN)], now=0)

    assert len(caplog.records) == MAX_OPEN
