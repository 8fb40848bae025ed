"""One collection at a time, shared by all who ask meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial

from straggler.model.clock import Clock
from straggler.sidecar.scrape import Asker, Request, Source, gather, shielded
from straggler.sidecar.state import NodeState, Snapshot

Observer = Callable[[Snapshot], None]
"""Called after each full collection, in the collecting thread; must be quick."""


class Collector:
    """Asks the sources and keeps the last snapshot.

    Args:
        sources: in order of precedence.
        state: what is known.
        clock: both clocks.
        observers: called after each collection of all sources.
    """

    def __init__(
        self, sources: Sequence[Source], state: NodeState, clock: Clock, observers: Sequence[Observer] = ()
    ) -> None:
        self._askers = [Asker(source, clock) for source in sources]
        self._state = state
        self._clock = clock
        self._observers = tuple(observers)
        self._collecting = threading.Lock()
        self._sharing = threading.Lock()
        self._shared: Future[Snapshot] | None = None
        self._last: Snapshot | None = None

    @property
    def last(self) -> Snapshot | None:
        """The last snapshot; ``None`` before the first collection has ended."""
        return self._last

    def recent(self, max_age_seconds: float, timeout_seconds: float) -> Snapshot:
        """Give the last snapshot if it is young enough, else collect: people reload more often than scrapers."""
        last = self._last
        if last is not None and self._clock.monotonic() - last.taken_monotonic <= max_age_seconds:
            return last
        return self.collect(timeout_seconds)

    def collect(self, timeout_seconds: float) -> Snapshot:
        """Ask all sources; or, while that is going on for somebody else, share the result.

        Whoever has less time than the collection under way gets the snapshot before it.
        """
        with self._sharing:
            shared = self._shared
            mine = Future[Snapshot]()
            if shared is None:
                self._shared = mine
        if shared is not None:
            try:
                return shared.result(timeout_seconds)
            except FutureTimeoutError:
                return self._last or Snapshot(taken=self._clock.time(), taken_monotonic=self._clock.monotonic())
        try:
            snapshot = self._collect(timeout_seconds)
            mine.set_result(snapshot)
        except BaseException as error:
            mine.set_exception(error)
            raise
        finally:
            with self._sharing:
                self._shared = None
        return snapshot

    def poll(self, timeout_seconds: float) -> None:
        """Ask only the sources that cannot wait for the next scrape; nothing if a collection is going on anyway.

        Who is too slow for that goes on in peace: nobody has asked for an answer yet.
        """
        if not self._collecting.acquire(blocking=False):
            return
        try:
            polled = [asker for asker in self._askers if asker.source.polled]
            outcomes = gather(polled, Request(timeout_seconds, stepping=False))
            self._state.apply({asker.source.name: outcome for asker, outcome in outcomes.items() if outcome})
        finally:
            self._collecting.release()

    def _collect(self, timeout_seconds: float) -> Snapshot:
        began = self._clock.monotonic()
        with self._collecting:
            stepping = self._last is not None and self._last.stepping
            occupied = self._last is not None and self._last.occupied
            left = timeout_seconds - (self._clock.monotonic() - began)
            outcomes = gather(self._askers, Request(max(left, 0.0), stepping, occupied))
            self._state.apply(
                {asker.source.name: outcome or asker.too_slow(timeout_seconds) for asker, outcome in outcomes.items()}
            )
            snapshot = self._state.snapshot(self._clock.monotonic() - began)
            self._last = snapshot
        for observe in self._observers:
            shielded("an observer", partial(observe, snapshot), None)
        return snapshot
