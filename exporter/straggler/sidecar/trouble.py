"""Log lines when trouble begins and when it ends, and none in between."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable

from straggler.model.reading import Problem

_log = logging.getLogger(__name__)

QUIET_SECONDS = 120.0
"""Trouble that pauses for less than this has not ended: what comes and goes with every scrape gives two lines a day."""

MAX_OPEN = 256
"""More kinds of trouble at a time are counted and not logged: reasons are listed, so there are never that many."""


class TroubleLog:
    """Remembers which troubles are going on."""

    def __init__(self) -> None:
        self._last_seen: dict[tuple[str, str], float] = {}

    def update(
        self, source: str, problems: Iterable[Problem], *, still: Container[str] = (), said: bool = False, now: float
    ) -> None:
        """Take note of one look at a source.

        Args:
            source: whose problems these are.
            problems: what this look had.
            still: reasons that go on, though this look did not repeat them.
            said: whether these problems stand in the log already.
            now: monotonic seconds.
        """
        for problem in problems:
            key = (source, problem.reason)
            if key not in self._last_seen:
                if len(self._last_seen) >= MAX_OPEN:
                    continue
                if not said:
                    _log.warning("%s: %s: %s", source, problem.reason, problem.detail or "no details")
            self._last_seen[key] = now
        for key, seen in list(self._last_seen.items()):
            if key[0] != source:
                continue
            if key[1] in still:
                self._last_seen[key] = now
            elif now - seen >= QUIET_SECONDS:
                del self._last_seen[key]
                _log.info("%s: %s: no longer", *key)
