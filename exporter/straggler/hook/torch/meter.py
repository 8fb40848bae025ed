"""Where the training thread's time goes, phase by phase.

Phases nest: what an inner phase takes is taken out of the outer one, so each moment counts once and the phases add up
to the step. That is what makes it safe to mark the same wait from several places, e.g. a ``Work.wait`` inside the
bracket around the reducer's finalize. ``checkpoint`` and ``eval`` keep all time inside them: an all-reduce of a
validation's loss is no waiting of the training.

Only the training thread is measured. A checkpoint thread that runs collectives would otherwise give time away that the
training thread never lost. Autograd's device threads work on behalf of the training thread while it is blocked in
``backward``: they are let in by the caller's ``borrowed`` flag.

Two clocks: ``HostMeter`` here, and ``EventMeter`` in ``cuda_clock.py`` for a GPU that computes behind the host's back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import get_ident
from time import monotonic_ns
from typing import Any, NamedTuple

from straggler.wire import layout

MEASURED = "measured"
_EXCLUDED = frozenset(layout.EXCLUDED)


class TimedStep(NamedTuple):
    """One finished step. Times in nanoseconds."""

    wall_ns: int
    phase_ns: list[int]
    """Length ``layout.PHASE_COUNT``, in that order; adds up to ``wall_ns``."""
    own_reason: str
    """``measured``, or why own time must not be derived."""
    end_ns: int
    """On the host's monotonic clock."""
    host_data_ns: int
    """Time the host waited for batches where the phases are a GPU's; else 0."""
    amounts: Mapping[str, Any]
    """Tokens and the like, as ``StepTimer.publish_step`` takes them."""


Publish = Callable[[TimedStep], None]


class Meter:
    """A stack of phases; what a change of phase means is the clock's business.

    Args:
        publish: called with each finished step, in order.
        now: nanoseconds on the host's monotonic clock.
    """

    clock = ""

    def __init__(self, publish: Publish, now: Callable[[], int] = monotonic_ns) -> None:
        self._publish = publish
        self._now = now
        self._phases = [layout.OTHER]
        self._tokens = [0]
        """Which ``enter`` opened the phase at the same place in ``_phases``; never used twice."""
        self._last_token = 0
        self.owner: int | None = None
        """Identifier of the thread that is measured, the one that steps; ``None`` before the first boundary."""

    def enter(self, phase: int, borrowed: bool = False) -> int | None:  # noqa: FBT001, FBT002 - by position, for speed
        """Begin a phase.

        Args:
            phase: index into ``layout.PHASES``.
            borrowed: another thread is working for the training thread, which is blocked meanwhile.

        Returns:
            A token to leave the phase with; ``None`` where nothing is measured, which ``leave`` ignores.
        """
        if self.owner is None or not (borrowed or get_ident() == self.owner):
            return None
        current = self._phases[-1]
        if not self._may_switch(phase):
            return None
        self._switch(current)
        self._phases.append(current if current in _EXCLUDED else phase)
        self._last_token += 1
        self._tokens.append(self._last_token)
        return self._last_token

    def leave(self, token: int | None) -> bool:
        """End the phase of this token, and any inner one that was left open.

        Returns:
            Whether a ``checkpoint`` or an ``eval`` ended.
        """
        if token is None or token not in self._tokens:
            return False
        ended = self._phases[-1]
        self._switch(ended)
        place = self._tokens.index(token)
        del self._phases[place:], self._tokens[place:]
        return ended in _EXCLUDED and self._phases[-1] not in _EXCLUDED

    def excluded(self) -> int | None:
        """Which of ``checkpoint`` and ``eval`` is open."""
        return self._phases[-1] if self._phases[-1] in _EXCLUDED else None

    def boundary(self, own_reason: str = MEASURED, amounts: Mapping[str, Any] | None = None) -> bool:
        """End a step here and begin the next one; the first call only begins.

        Args:
            own_reason: of the step that ends.
            amounts: of the step that ends.

        Returns:
            False in a thread that is not ours: nothing happened.
        """
        if self.owner is None:
            self.owner = get_ident()
            self._begin()
            return True
        if get_ident() != self.owner:
            return False
        self._end(own_reason, amounts or {})
        return True

    def flush(self) -> None:
        """Publish what is finished but has not been published."""

    def _may_switch(self, _phase: int) -> bool:
        """Whether a change to this phase can be timed here and now."""
        return True

    def _switch(self, ended: int) -> None:
        """This phase was on top until now."""
        raise NotImplementedError

    def _begin(self) -> None:
        """The first step begins."""
        raise NotImplementedError

    def _end(self, own_reason: str, amounts: Mapping[str, Any]) -> None:
        """A step ends and the next begins."""
        raise NotImplementedError


class HostMeter(Meter):
    """Phases on the host's clock: right where the host itself computes and waits."""

    clock = "host"

    def __init__(self, publish: Publish, now: Callable[[], int] = monotonic_ns) -> None:
        super().__init__(publish, now)
        self._sums = [0] * layout.PHASE_COUNT
        self._began = self._since = 0

    # What runs in each step is written out: in a real loop the caches are cold, and there each function takes 1 us.

    def enter(self, phase: int, borrowed: bool = False) -> int | None:  # noqa: FBT001, FBT002 - as above
        """See ``Meter.enter``."""
        if get_ident() != self.owner and (self.owner is None or not borrowed):
            return None
        phases = self._phases
        current = phases[-1]
        now = self._now()
        self._sums[current] += now - self._since
        self._since = now
        phases.append(current if current in _EXCLUDED else phase)
        self._last_token = token = self._last_token + 1
        self._tokens.append(token)
        return token

    def leave(self, token: int | None) -> bool:
        """See ``Meter.leave``."""
        tokens, phases = self._tokens, self._phases
        if token not in tokens:
            return False
        ended = phases[-1]
        now = self._now()
        self._sums[ended] += now - self._since
        self._since = now
        place = tokens.index(token)
        del phases[place:], tokens[place:]
        return ended in _EXCLUDED and phases[-1] not in _EXCLUDED

    def boundary(self, own_reason: str = MEASURED, amounts: Mapping[str, Any] | None = None) -> bool:
        """See ``Meter.boundary``."""
        if self.owner != get_ident():
            return super().boundary()
        now = self._now()
        sums, self._sums = self._sums, [0] * layout.PHASE_COUNT
        sums[self._phases[-1]] += now - self._since
        wall, self._began, self._since = now - self._began, now, now
        self._publish(TimedStep(wall, sums, own_reason, now, 0, amounts or {}))
        return True

    def _begin(self) -> None:
        self._began = self._since = self._now()
