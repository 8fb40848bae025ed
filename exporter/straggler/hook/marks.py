"""What the stopwatch, and those who use it, expect of each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from types import TracebackType

    from straggler.hook.book import Amounts

NOBODY = 0
"""Owner before the first use."""
DEAD = -1
"""Owner when the hook is off, closed, or in a forked child: equal to no thread, so one comparison covers all."""
OUTSIDE = -1
"""The open phase where none is open."""


class Marks(Protocol):
    """A phase or a step: something to write behind ``with``."""

    def __enter__(self) -> object:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """End; an exception passes."""


class StepMarks(Marks, Protocol):
    """A step."""

    amounts: Amounts | None
    """What the loop says about it; to be set before it ends."""


class Rare(Protocol):
    """What is not on the path of each step. None of it raises."""

    def admit(self) -> bool:
        """Tell whether a caller may go on that is not the owner."""

    def enter_step(self, step: Marks) -> None:
        """Decide about a step that is entered by another thread, or while something is open."""

    def leave_step(self, step: Marks) -> None:
        """Take note that a step is left which is not the open one."""

    def arrive(self, now: int) -> None:
        """Take note that ``wait`` is entered."""

    def record(  # noqa: PLR0917 - by position, for speed
        self,
        end: int,
        wall: int,
        phases: list[int],
        amounts: Amounts | None,
        flags: int,
        reason: int,
        host_data: int,
        /,
    ) -> None:
        """Record a step: see ``recorder``."""

    def phase_left_open(self, index: int, now: int) -> None:
        """Take note of a phase that is open where its step ends."""

    def excluded_changed(self, index: int | None, now: int) -> None:
        """Take note that ``checkpoint`` or ``eval`` is entered, or left (``None``)."""

    def warn(self, about: str, text: str) -> None:
        """Report something, once."""


class Stopwatch(NamedTuple):
    """What ``make_stopwatch`` gives. Times are the clock's, in nanoseconds."""

    clock: Callable[[], int]
    phases: dict[str, Marks]
    """All phases but the excluded ones; entered any number of times."""
    excluded_phase: Callable[[int], Marks]
    """Make a ``checkpoint`` or an ``eval``, by index; anew for each use."""
    step: Callable[[], StepMarks]
    """Make a step; anew for each use."""
    end_step: Callable[[Amounts | None, type[BaseException] | None], None]
    """End the running step now; an exception type means that it failed."""
    restart: Callable[[int], None]
    """Begin a step at this time, with no phase open."""
    close_phases: Callable[[int], None]
    """Close whatever phase is open."""
    owner: Callable[[], int]
    set_owner: Callable[[int], None]
    stepper: Callable[[], int]
    """The owner once it has entered or ended a step; else ``NOBODY``."""
    set_stepper: Callable[[int], None]
    open_step: Callable[[], Marks | None]
    set_open_step: Callable[[Marks | None], None]
    open_step_is_lost: Callable[[], bool]
    """Whether nobody refers to the open step any more, so that nobody will ever leave it."""
    phase: Callable[[], int]
    """Index of the open phase, or ``OUTSIDE``."""
    is_excluded: Callable[[], bool]
    """Whether the open phase is an excluded one that somebody will leave."""
    start: Callable[[], int]
    """When the running step began."""


class _DeadPhase:
    def __init__(self, index: int) -> None:
        self._index = index

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def dead_phase(index: int) -> Marks:
    """A phase that measures nothing."""
    return _DeadPhase(index)
