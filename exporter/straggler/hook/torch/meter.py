"""Where the training thread's time goes, phase by phase, on the host's clock.

Phases nest: what an inner phase takes is taken out of the outer one, so each moment counts once and the phases add up
to the step. That is what makes it safe to mark the same wait from several places, e.g. a ``Work.wait`` inside the
bracket around the reducer's finalize.

Only the training thread is measured. A checkpoint thread that runs collectives would otherwise give time away that the
training thread never lost. Autograd's device threads work on behalf of the training thread while it is blocked in
``backward``: they are let in by the caller's ``borrowed`` flag.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns

from straggler.wire import layout

NOT_OURS = -1
"""What ``enter`` returns in a thread that is not measured; ``leave`` ignores it."""

Publish = Callable[[int, tuple[int, ...]], None]
"""Takes the wall time of a step and its phases, in nanoseconds; length ``layout.PHASE_COUNT``."""


class HostMeter:
    """A stack of phases and a sum per phase, in nanoseconds.

    Args:
        publish: called at each boundary with the finished step.
        now: nanoseconds on a clock that never goes back.
    """

    clock = "host"

    def __init__(self, publish: Publish, now: Callable[[], int] = perf_counter_ns) -> None:
        self._publish = publish
        self._now = now
        self._owner: int | None = None
        self._stack = [layout.OTHER]
        self._sums = [0] * layout.PHASE_COUNT
        self._began = 0
        self._since = 0

    @property
    def running(self) -> bool:
        """Whether a first boundary has been seen: before it there is nothing to measure."""
        return self._owner is not None

    @property
    def owner(self) -> int | None:
        """Identifier of the thread that is measured; ``None`` before the first boundary."""
        return self._owner

    def enter(self, phase: int, *, borrowed: bool = False) -> int:
        """Begin a phase; returns the mark to leave it with.

        Args:
            phase: index into ``layout.PHASES``.
            borrowed: another thread is working for the training thread, which is blocked meanwhile.
        """
        if not borrowed and get_ident() != self._owner:
            return NOT_OURS
        if self._owner is None:
            return NOT_OURS
        now = self._now()
        stack = self._stack
        self._sums[stack[-1]] += now - self._since
        self._since = now
        stack.append(phase)
        return len(stack) - 1

    def leave(self, mark: int) -> None:
        """End the phase of this mark, and any inner one that an exception left open."""
        stack = self._stack
        if mark < 1 or mark >= len(stack):
            return
        now = self._now()
        self._sums[stack[-1]] += now - self._since
        self._since = now
        del stack[mark:]

    def boundary(self) -> bool:
        """End a step here and begin the next one; the first call only begins. False in a thread that is not ours."""
        if self._owner is None:
            self._owner = get_ident()
            self._began = self._since = self._now()
            return True
        if get_ident() != self._owner:
            return False
        now = self._now()
        self._sums[self._stack[-1]] += now - self._since
        self._since = now
        sums = tuple(self._sums)
        wall = now - self._began
        self._began = now
        for index in range(layout.PHASE_COUNT):
            self._sums[index] = 0
        self._publish(wall, sums)
        return True

    def forget(self) -> None:
        """Begin anew at the next boundary: what came before belongs to no step."""
        self._owner = None
        self._stack = [layout.OTHER]
        self._sums = [0] * layout.PHASE_COUNT
