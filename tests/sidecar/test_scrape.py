"""Asking all sources at once, within a given time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import FakeClock
from straggler.errors import SourceAbsentError, SourceFailedError
from straggler.model.reading import Reading, SourceState
from straggler.sidecar.scrape import (
    LEAST_TIMEOUT_SECONDS,
    MOST_TIMEOUT_SECONDS,
    Asker,
    Outcome,
    Request,
    Source,
    shielded,
    time_for_scrape,
)
from straggler.sidecar.scrape import gather as gather_outcomes

SOON = Request(0.05, stepping=False)
PATIENT = Request(30.0, stepping=True)


class HeldSource:
    """A source that answers when it is let go, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.go = threading.Event()
        self.answered = threading.Semaphore(0)

    def look(self, request: Request) -> Reading[Any]:
        """Wait, then give the number of this look."""
        del request
        self.asked += 1
        number = self.asked
        self.go.wait(60)
        try:
            return Reading(source="held", state=SourceState.OK, facts=(number,))
        finally:
            self.answered.release()


@pytest.fixture
def held() -> Iterator[HeldSource]:
    """Let go at the end, so that no thread is left behind."""
    source = HeldSource()
    yield source
    source.go.set()
    _wait_for_threads("look-held")


def gather(askers: Sequence[Asker], request: Request) -> dict[str, Outcome]:
    """By name, as the collector makes it of a scrape."""
    outcomes = gather_outcomes(askers, request)
    return {
        asker.source.name: outcome or asker.too_slow(request.timeout_seconds) for asker, outcome in outcomes.items()
    }


def _asker(source: HeldSource, clock: FakeClock | None = None) -> Asker:
    return Asker(Source(name="held", look=source.look), clock or FakeClock())


def _quick(state: SourceState = SourceState.OK) -> Asker:
    return Asker(Source(name="quick", look=lambda _: Reading(source="quick", state=state, facts=("f",))), FakeClock())


def _wait_for_threads(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(30)


def test_all_sources_are_asked_in_parallel() -> None:
    """Two sources that wait for each other both answer: neither is asked after the other."""
    barrier = threading.Barrier(2, timeout=30)

    def look(request: Request) -> Reading[Any]:
        del request
        barrier.wait()
        return Reading(source="x", state=SourceState.OK)

    askers = [Asker(Source(name=name, look=look), FakeClock()) for name in ("a", "b")]

    outcomes = gather(askers, PATIENT)
    assert {name: outcome.reading.state for name, outcome in outcomes.items()} == {
        "a": SourceState.OK,
        "b": SourceState.OK,
    }


def test_slow_source_fails_and_the_others_are_given(held: HeldSource) -> None:
    """A source that is not back in time has failed for the reason timeout; the quick one is complete."""
    quick = _quick()
    look = quick.begin(PATIENT)
    assert look is not None
    look.result(30)  # however busy this machine is, it is not late
    outcomes = gather([_asker(held), quick], SOON)

    assert outcomes["held"].reading.state is SourceState.FAILED
    assert [problem.reason for problem in outcomes["held"].reading.problems] == ["timeout"]
    assert outcomes["quick"].reading.facts == ("f",)


def test_late_result_is_used_next_time(held: HeldSource) -> None:
    """What came after the deadline is in the next collection, once."""
    asker = _asker(held)
    gather([asker], SOON)
    held.go.set()
    held.answered.acquire(timeout=30)
    _wait_for_threads("look-held")
    held.go.clear()

    assert gather([asker], SOON)["held"].reading.facts == (1,)
    assert gather([asker], SOON)["held"].reading.state is SourceState.FAILED


def test_fresh_result_is_preferred_to_a_late_one(held: HeldSource) -> None:
    """Once the source is quick again its new result counts, not the old one."""
    asker = _asker(held)
    gather([asker], SOON)
    held.go.set()
    held.answered.acquire(timeout=30)
    _wait_for_threads("look-held")

    assert gather([asker], PATIENT)["held"].reading.facts == (2,)


def test_hung_source_has_one_thread_and_is_not_waited_for(held: HeldSource) -> None:
    """However often a hung source is asked, there is one thread, and only the first collection waits for it."""
    clock = FakeClock()
    asker = _asker(held, clock)
    gather([asker], SOON)
    clock.advance(PATIENT.timeout_seconds)

    for _ in range(5):
        assert asker.begin(PATIENT) is None
        assert asker.end() is None
    assert held.asked == 1
    assert [thread.name for thread in threading.enumerate()].count("look-held") == 1


def test_look_begun_by_a_hasty_collection_is_waited_for(held: HeldSource) -> None:
    """A look that a poll of a second has started still has the time that a scrape brings along."""
    asker = _asker(held)
    assert gather_outcomes([asker], SOON) == {asker: None}
    held.go.set()

    assert gather([asker], PATIENT)["held"].reading.facts == (1,)
    assert held.asked == 1


def test_source_that_is_always_slow_is_not_waited_for(held: HeldSource) -> None:
    """If the last look took longer than the collection may, its result is used and nobody waits for the new one."""
    clock = FakeClock()
    asker = _asker(held, clock)
    gather([asker], SOON)
    clock.advance(12.0)
    held.go.set()
    held.answered.acquire(timeout=30)
    _wait_for_threads("look-held")
    held.go.clear()

    assert asker.begin(Request(9.5, stepping=False)) is None
    late = asker.end()
    assert late is not None
    assert late.reading.facts == (1,)


@pytest.mark.parametrize(
    ("error", "state", "reasons"),
    [
        (SourceAbsentError("not here"), SourceState.ABSENT, []),
        (SourceFailedError("http_error", "500"), SourceState.FAILED, ["http_error"]),
        (ZeroDivisionError(), SourceState.FAILED, ["unexpected_error"]),
    ],
)
def test_errors_are_states(error: Exception, state: SourceState, reasons: list[str]) -> None:
    """Not here, broken and a defect of ours stay apart, and none of them ends the collection."""

    def look(request: Request) -> Reading[Any]:
        del request
        raise error

    reading = gather([Asker(Source(name="x", look=look), FakeClock())], PATIENT)["x"].reading
    assert reading.state is state
    assert [problem.reason for problem in reading.problems] == reasons


def test_unexpected_error_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A source that fails in the same way on each scrape gives one traceback, not one per scrape."""

    def look(request: Request) -> Reading[Any]:
        raise ZeroDivisionError(request)

    asker = Asker(Source(name="x", look=look), FakeClock())
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            gather([asker], PATIENT)
            _wait_for_threads("look-x")

    assert len(caplog.records) == 1


def test_look_is_timed() -> None:
    """How long the look took is measured here, whatever the source says."""
    clock = FakeClock()

    def look(request: Request) -> Reading[Any]:
        del request
        clock.advance(2.5)
        return Reading(source="x", state=SourceState.OK, duration_seconds=99)

    outcome = gather([Asker(Source(name="x", look=look), clock)], PATIENT)["x"]
    assert outcome.reading.duration_seconds == pytest.approx(2.5)
    assert outcome.ended == clock.ticks


def test_request_reaches_the_source() -> None:
    """Sources hear how long they have and whether ranks are stepping."""
    heard: list[Request] = []

    def look(request: Request) -> Reading[Any]:
        heard.append(request)
        return Reading(source="x", state=SourceState.OK)

    gather([Asker(Source(name="x", look=look), FakeClock())], PATIENT)
    assert heard == [PATIENT]


@pytest.mark.parametrize(
    ("announced", "seconds"),
    [
        (None, 9.5),
        ("", 9.5),
        ("ten", 9.5),
        ("nan", 9.5),
        ("-3", 9.5),
        ("0", 9.5),
        ("10", 9.5),
        ("5.0", 4.5),
        ("0.6", 0.3),
        ("0.001", LEAST_TIMEOUT_SECONDS),
        ("1e9", MOST_TIMEOUT_SECONDS),
        ("inf", MOST_TIMEOUT_SECONDS),
    ],
)
def test_time_for_scrape(announced: str | None, seconds: float) -> None:
    """The announced timeout less the offset, within sane bounds; the default where none is announced."""
    assert time_for_scrape(announced, 9.5, 0.5) == pytest.approx(seconds)


@given(st.none() | st.text() | st.floats().map(str))
def test_time_for_scrape_is_always_sane(announced: str | None) -> None:
    """Whatever the header says, the time is positive and bounded."""
    assert LEAST_TIMEOUT_SECONDS <= time_for_scrape(announced, 9.5, 0.5) <= MOST_TIMEOUT_SECONDS


def test_shielded(caplog: pytest.LogCaptureFixture) -> None:
    """A defect is logged with its traceback, and the other result is given."""
    assert shielded("adding", lambda: 1 + 1, 0) == 2
    assert shielded("dividing", lambda: 1 // 0, 7) == 7
    assert "dividing" in caplog.text
    assert "ZeroDivisionError" in caplog.text
