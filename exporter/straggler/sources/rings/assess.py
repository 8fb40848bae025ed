"""How a rank stands: running, hung, crashed or finished. Pure: what was seen, and when, comes in.

What counts as evidence, in this order:

1. A goodbye in the live block. ``finished`` or, after an exception, ``crashed``. A hook that says it is *off* says
   nothing of its rank: such a ring is not published, and lives here as long as its lock does.
2. The lock, once it was seen held. When it is lost and nothing moves for a grace of two steps, the process is dead.
   If something moves after the loss, the lock was dropped by an open-and-close somewhere in that process: from then
   on it is no evidence.
3. Silence. A process that lives and gets no step done for longer than the policy allows is hung. A ring that never
   was locked and never moved while we looked has given no sign of life at all: if it should be stepping, it was dead
   before we came. One that moved but cannot be asked for a lock (some VM runtimes fake it) is hung first, and given up
   after the longest silence that is allowed anywhere.

The silence is timed by the observer; only at first sight is the file's age all that there is.
"""

from __future__ import annotations

from dataclasses import dataclass

from straggler.model.progress import HangLimits, Progress
from straggler.model.rank import RankState
from straggler.wire import layout
from straggler.wire.records import Live

_GRACE_STEPS = 2.0
_GRACE_MIN_SECONDS = 1.0
_GRACE_FIRST_STEP_SECONDS = 10.0
"""Before the first step no pace is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One look at one ring. The lock was asked for before the rest was read: what a dead process wrote is all there."""

    now: float
    """The observer's monotonic clock, in seconds."""
    held: bool | None
    """The lock; ``None`` if it cannot be told."""
    live: Live | None
    """``None`` as long as it was never read whole."""
    serial: int
    """Of the newest record; 0 before the first."""
    mean_step_seconds: float | None
    """``None`` before the first step."""


class Liveness:
    """The state of one ring over time.

    Args:
        limits: how long silence may last.
        now: monotonic seconds at first sight.
        age_seconds: how long before that the file was last written to.
    """

    def __init__(self, limits: HangLimits, *, now: float, age_seconds: float) -> None:
        self._limits = limits
        self.progress = Progress(now, age_seconds)
        self._seen_held = False
        self._seen_moving = False
        self._lost = False
        self._lock_lies = False
        self.state = RankState.RUNNING
        self.gone_since: float | None = None
        """Monotonic time from which the rank is known to be gone; ``None`` while it lives."""

    def assess(self, sight: Sight) -> RankState:
        """Take note of a look and give the state that follows."""
        moved = self.progress.observe(sight.now, sight.serial, sight.live)
        self._seen_moving |= moved
        self._note_lock(sight.held, moved=moved)
        self.state = self._judge(sight)
        if self.state in (RankState.RUNNING, RankState.HUNG):
            self.gone_since = None
        elif self.gone_since is None:
            self.gone_since = sight.now if self._shown_life else self.progress.since
        return self.state

    @property
    def _shown_life(self) -> bool:
        return self._seen_held or self._seen_moving

    def _note_lock(self, held: bool | None, *, moved: bool) -> None:  # noqa: FBT001  # three-valued, as lock_held gives it
        if held:
            self._seen_held = True
            self._lost = False
        elif held is False and self._seen_held:
            self._lock_lies |= self._lost and moved
            self._lost = True

    def _judge(self, sight: Sight) -> RankState:
        status = layout.STATUS_RUNNING if sight.live is None else sight.live.status
        if status == layout.STATUS_FINISHED:
            return RankState.FINISHED
        if status == layout.STATUS_EXCEPTION:
            return RankState.CRASHED
        if status == layout.STATUS_OFF:
            return RankState.RUNNING if sight.held else RankState.FINISHED
        silence = self.progress.age(sight.now)
        excluded = sight.live is not None and sight.live.excluded_phase is not None
        limit = self._limits.seconds(sight.mean_step_seconds, excluded=excluded)
        grace = self._grace(sight.mean_step_seconds)
        if self._lost and not self._lock_lies and silence > grace:
            return RankState.CRASHED
        stepping = sight.mean_step_seconds is not None and not excluded
        if not self._shown_life and silence > (grace if stepping else limit):
            return RankState.CRASHED
        if silence <= limit:
            return RankState.RUNNING
        if not sight.held and silence > limit + self._limits.excluded_seconds:
            return RankState.CRASHED
        return RankState.HUNG

    def _grace(self, mean_step_seconds: float | None) -> float:
        """How long a ring may rest after its lock was lost: a step in progress needs its time to show itself."""
        if mean_step_seconds is None:
            return _GRACE_FIRST_STEP_SECONDS
        return min(max(_GRACE_STEPS * mean_step_seconds, _GRACE_MIN_SECONDS), self._limits.min_seconds)
