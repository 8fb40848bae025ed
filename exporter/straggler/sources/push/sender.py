"""One process that pushes: what it said so far, and how often it speaks."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from straggler.model.from_wire import own_reason_of, totals_of
from straggler.model.progress import HangLimits, Progress
from straggler.model.rank import RankFacts, RankState
from straggler.model.window import Window
from straggler.wire import layout
from straggler.wire.push import PushBatch

FIRST_INTERVAL_SECONDS = 20.0
"""Assumed until a sender has spoken twice."""
_LEAST_INTERVAL_SECONDS = 1.0
_MOST_INTERVAL_SECONDS = 60.0
_GAPS = 4

_ENDS = {layout.STATUS_FINISHED: RankState.FINISHED, layout.STATUS_EXCEPTION: RankState.CRASHED}


class Taken(NamedTuple):
    """What became of the records of one push."""

    accepted: int
    repeated: int
    """Known already, or older than what is known."""
    missed: int
    """Serials that were left out: the sender's queue was full."""


class Sender:
    """A rank, as one process of it describes it.

    Args:
        batch: its first push.
        now: monotonic seconds.
    """

    def __init__(self, batch: PushBatch, now: float) -> None:
        self.created_realtime_ns = batch.created_realtime_ns
        self.identity = batch.identity
        self.live = batch.live
        self._window = Window()
        self._progress = Progress(now)
        self._heard = now
        self._gaps: deque[float] = deque(maxlen=_GAPS)

    @property
    def is_off(self) -> bool:
        """Whether the hook switched itself off: the rank may live, but is unseen."""
        return self.live.status == layout.STATUS_OFF

    @property
    def has_ended(self) -> bool:
        """Whether the process said goodbye."""
        return self.live.status in _ENDS

    def silence(self, now: float) -> float:
        """Seconds since the last push."""
        return now - self._heard

    @property
    def interval_seconds(self) -> float:
        """Between two pushes, as far as that is known: the longest of the last few."""
        longest = max(self._gaps, default=FIRST_INTERVAL_SECONDS)
        return min(max(longest, _LEAST_INTERVAL_SECONDS), _MOST_INTERVAL_SECONDS)

    def take(self, batch: PushBatch, now: float, *, first: bool) -> Taken:
        """Take in a push of the same process. One that comes late, or again, changes nothing that is newer."""
        if not first:
            self._gaps.append(now - self._heard)
        self._heard = now
        newest = self._window.newest
        known = newest.serial if newest is not None else 0
        fresh = [record for record in batch.records if record.serial > known]
        self._window.extend(fresh)
        if batch.live.updated_monotonic_ns >= self.live.updated_monotonic_ns and not self.has_ended:
            self.live = batch.live
            self.identity = batch.identity
        self._progress.observe(now, fresh[-1].serial if fresh else known, self.live)
        missed = fresh[-1].serial - known - len(fresh) if fresh and known else 0
        return Taken(len(fresh), len(batch.records) - len(fresh), missed)

    def facts(self, limits: HangLimits, now: float) -> RankFacts:
        """How the rank stands."""
        newest = self._window.newest
        age = self._progress.age(now)
        excluded = self.live.excluded_phase
        is_hung = age > limits.seconds(self._window.mean_step_seconds, excluded=excluded is not None)
        state = _ENDS.get(self.live.status, RankState.HUNG if is_hung else RankState.RUNNING)
        return RankFacts(
            identity=self.identity,
            state=state,
            totals=totals_of(newest, self.live, clock=self.identity.clock) if newest is not None else None,
            recent=None if self.has_ended else self._window.recent,
            step=newest.step if newest is not None else None,
            last_step_timestamp_seconds=newest.end_realtime_ns * 1e-9 if newest is not None else None,
            excluded_phase=None if excluded is None or self.has_ended else layout.PHASES[excluded],
            own_reason=own_reason_of(newest, self.identity),
            source="push",
            since_progress_seconds=age,
        )
