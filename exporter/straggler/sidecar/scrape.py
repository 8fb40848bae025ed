"""Asking all sources at once, within a given time.

A source may be slow or hang: a driver, a network, a file system. So each is asked in a thread of its own, and there is
never more than one such thread per source. Whoever is not back in time has *failed* with the reason ``timeout``; when
the look ends after all, its result is used by the next collection instead of being thrown away. A look that has had
as much time as a collection has is not waited for again: a hung source costs one slow scrape and not every one.

``except Exception`` stands here, and in the hook's guard, and nowhere else: a source that raises what nobody expected
is a failed source, not the end of the page. Whatever else must not take the sidecar down runs in ``shielded``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from straggler.errors import SourceAbsentError, SourceFailedError
from straggler.model.clock import Clock
from straggler.model.reading import Problem, Reading, SourceState

_log = logging.getLogger(__name__)

Result = TypeVar("Result")

LEAST_TIMEOUT_SECONDS = 0.1
MOST_TIMEOUT_SECONDS = 60.0
"""A scraper cannot make a thread wait longer."""


class Request(NamedTuple):
    """What a source is told when it is asked."""

    timeout_seconds: float
    stepping: bool
    """Whether ranks are stepping now: GPU values that do not change meanwhile are frozen."""
    occupied: bool = False
    """Whether any rank lives: who keeps devices open for them need not without them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCounts:
    """What a source counts by itself since its start; ``None`` where it does not."""

    records_read: int | None = None
    records_missed: int | None = None
    rings_removed: int | None = None
    logs: int | None = None
    """Followed at present."""
    ranks_refused: Mapping[str, int] = field(default_factory=dict)
    """At present, by reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An origin of facts."""

    name: str
    """The label ``source``."""
    look: Callable[[Request], Reading[Any]]
    """Called by one thread at a time."""
    polled: bool = False
    """Whether it must also be asked between scrapes."""
    counts: Callable[[], SourceCounts] = SourceCounts
    """What it has counted so far; any thread may ask."""


class Outcome(NamedTuple):
    """What a source said, and when."""

    reading: Reading[Any]
    ended: float
    """On the monotonic clock."""


def time_for_scrape(announced: str | None, default_seconds: float, offset_seconds: float) -> float:
    """How long a collection may take.

    Args:
        announced: the header ``X-Prometheus-Scrape-Timeout-Seconds``, if there is one.
        default_seconds: without it, or if it is no number.
        offset_seconds: how much earlier the answer shall be on its way; at most half of what is announced.
    """
    try:
        seconds = float(announced or "")
    except ValueError:
        seconds = 0.0
    chosen = seconds - min(offset_seconds, seconds / 2) if seconds > 0 else default_seconds
    return max(LEAST_TIMEOUT_SECONDS, min(chosen, MOST_TIMEOUT_SECONDS))


class Asker:
    """One source and the look at it that is under way, if any."""

    def __init__(self, source: Source, clock: Clock) -> None:
        self.source = source
        self._clock = clock
        self._look: Future[Outcome] | None = None
        self._began = 0.0
        self._late: Outcome | None = None
        self._surprised = False

    def begin(self, request: Request) -> Future[Outcome] | None:
        """Start a look unless one is still under way.

        Returns:
            What to wait for; ``None`` where the look under way, or the last one, has had as much time as there is now:
            then waiting is not worth it.
        """
        self._late = None
        now = self._clock.monotonic()
        if self._look is not None:
            if not self._look.done():
                return self._look if now - self._began < request.timeout_seconds else None
            self._late = self._look.result()
        self._began = now
        self._look = self._start(request)
        slow = self._late is not None and (self._late.reading.duration_seconds or 0.0) >= request.timeout_seconds
        return None if slow else self._look

    def end(self) -> Outcome | None:
        """Give the best there is now: the look's result, else one that came late. Each is given once."""
        if self._look is not None and self._look.done():
            outcome = self._look.result()
            self._look = None
            return outcome
        return self._late

    def too_slow(self, timeout_seconds: float) -> Outcome:
        """What to say of a source that has given nothing in time."""
        detail = f"no answer within {timeout_seconds:.3g} s; its result will be used when it comes"
        return Outcome(self._failed("timeout", detail), self._clock.monotonic())

    def _start(self, request: Request) -> Future[Outcome]:
        look = Future[Outcome]()
        thread = threading.Thread(target=self._run, args=(look, request), name=f"look-{self.source.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system allows no more threads
            look.set_result(Outcome(self._failed("no_thread", str(error)), self._clock.monotonic()))
        return look

    def _run(self, look: Future[Outcome], request: Request) -> None:
        began = self._clock.monotonic()
        try:
            reading = self.source.look(request)
            self._surprised = False
        except SourceAbsentError as error:
            _log.debug("%s: %s", self.source.name, error)
            reading = Reading(source=self.source.name, state=SourceState.ABSENT)
        except SourceFailedError as error:
            reading = self._failed(error.reason, error.detail)
        except Exception as error:  # noqa: BLE001 - whatever a source raises, the others are still shown
            if not self._surprised:
                _log.error("%s: unexpected error; please report it", self.source.name, exc_info=True)
            self._surprised = True
            reading = self._failed("unexpected_error", f"{type(error).__name__}: {error}")
        ended = self._clock.monotonic()
        look.set_result(Outcome(replace(reading, duration_seconds=ended - began), ended))

    def _failed(self, reason: str, detail: str) -> Reading[Any]:
        return Reading(
            source=self.source.name, state=SourceState.FAILED, problems=(Problem(reason=reason, detail=detail),)
        )


def gather(askers: Sequence[Asker], request: Request) -> Mapping[Asker, Outcome | None]:
    """Ask all of them in parallel and give what they said after at most ``request.timeout_seconds``.

    Not to be called by two threads at a time.

    Returns:
        By asker, in their order; ``None`` for those that were too slow.
    """
    waited_for = [look for asker in askers if (look := asker.begin(request)) is not None]
    wait(waited_for, timeout=request.timeout_seconds)
    return {asker: asker.end() for asker in askers}


def shielded(what: str, call: Callable[[], Result], otherwise: Result) -> Result:
    """Call something whose failure is a defect of ours, but no reason to stop.

    Args:
        what: for the log.
        call: what to do.
        otherwise: the result if it raises; the error is then in the log with its traceback.
    """
    try:
        return call()
    except Exception:  # noqa: BLE001 - see the head of this file
        _log.exception("%s: unexpected error; please report it", what)
        return otherwise
