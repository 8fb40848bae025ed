"""Divides one thread's time among the phases of a step.

A step runs from the end of the one before to its own end, so no time falls between two steps. What is in no phase is
phase ``other``: the rest, so that all phases add up to the step exactly. A phase inside another takes its time out of
it. ``checkpoint`` and ``eval`` keep all time inside them, whatever is marked within: a forward pass of a validation is
no training.

Everything that runs at each phase stands in one function, ``make_stopwatch``, whose inner functions share its
variables. That is for speed: reading a variable of an enclosing function takes a fraction of reading an attribute, and
a step with five phases reads and writes about a hundred of them (together with ``recorder``: 8 us instead of 10).

An interrupt (Ctrl-C) may hit between any two lines. The order of the lines is such that it can lose time, and can leave
a phase open until the step ends, but never books time twice.
"""

from __future__ import annotations

from _thread import get_ident  # threading, which has it too, costs 1 ms of import
from collections.abc import Callable
from sys import getrefcount
from typing import TYPE_CHECKING

from straggler.hook.book import AS_BOOKED
from straggler.hook.marks import DEAD, NOBODY, OUTSIDE, Marks, Rare, Stopwatch, dead_phase
from straggler.wire import layout

if TYPE_CHECKING:
    from types import TracebackType

    from straggler.hook.book import Amounts

_WAIT = layout.WAIT
_FAILED = layout.FLAG_FAILED
_EXCLUDED = layout.EXCLUDED


def make_stopwatch(clock: Callable[[], int], rare: Rare) -> Stopwatch:  # noqa: C901, PLR0915 - see the top of this file
    """Make a stopwatch that has no owner yet."""
    owner = stepper = NOBODY
    phase = OUTSIDE
    """The phase whose time it is: the innermost open one, or an excluded one around it."""
    mark = start = 0
    """When the open phase was entered or resumed; when the step began."""
    spent = [0] * layout.PHASE_COUNT
    outer: list[int] = []
    """The phases around the open one, outermost first."""
    inside: list[int] = []
    """The phases marked inside an excluded one."""
    excluded_by: ExcludedPhase | None = None
    open_step: Step | None = None
    strangers = False
    """Whether anybody else than the owner ever came in: only then need the end of a phase look who it is."""
    arrive, record = rare.arrive, rare.record

    class Phase:
        """``with timer.phase("forward"):``. Not guarded: sums of our own integers raise nothing."""

        __slots__ = ("_index",)

        def __init__(self, index: int) -> None:
            self._index = index

        def __enter__(self) -> None:
            nonlocal mark, phase
            if owner != get_ident() and not admit():
                return
            if phase == OUTSIDE:
                mark = clock()
                phase = self._index
            else:
                enter_inside(self._index, clock())

        def __exit__(
            self, _kind: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
        ) -> None:
            nonlocal phase
            if strangers and owner != get_ident():
                return  # it was not admitted when it entered
            now = clock()
            index = self._index
            if phase == index and not outer:
                phase = OUTSIDE
                spent[index] += now - mark
            else:
                leave_inside(index, now)

        def __reduce__(self) -> tuple[Callable[[int], Marks], tuple[int]]:
            """A copy, in whatever process, measures nothing."""
            return dead_phase, (self._index,)

    class WaitPhase(Phase):
        """The phase ``wait``: entering it is an arrival, and written at once, since a hang may follow."""

        __slots__ = ()

        def __enter__(self) -> None:
            nonlocal mark, phase
            if owner != get_ident() and not admit():
                return
            now = clock()
            if phase == OUTSIDE:
                mark = now
                phase = _WAIT
            else:
                enter_inside(_WAIT, now)
            arrive(now)

    class ExcludedPhase(Phase):
        """The phases ``checkpoint`` and ``eval``."""

        __slots__ = ()

        def __enter__(self) -> None:
            nonlocal mark, phase, excluded_by
            if owner != get_ident() and not admit():
                return
            now = clock()
            if phase in _EXCLUDED:
                inside.append(self._index)  # one of them inside another is nothing new
                return
            excluded_by = self
            if phase == OUTSIDE:
                mark = now
                phase = self._index
            else:
                enter_inside(self._index, now)
            rare.excluded_changed(self._index, now)

        def __exit__(
            self, _kind: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
        ) -> None:
            if owner == get_ident():
                leave_inside(self._index, clock())

    class Step:
        """``with timer.step(tokens=...):``."""

        __slots__ = ("amounts",)

        amounts: Amounts | None

        def __enter__(self) -> None:
            nonlocal open_step
            if stepper == get_ident() and open_step is None and phase == OUTSIDE:
                open_step = self
            elif owner != DEAD:
                rare.enter_step(self)

        def __exit__(
            self, kind: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
        ) -> None:
            nonlocal open_step, spent, start
            if open_step is not self or stepper != get_ident():
                rare.leave_step(self)
                return
            open_step = None
            now = clock()
            left_open = phase
            if left_open != OUTSIDE:
                book(now)
            record(now, now - start, spent, self.amounts, 0 if kind is None else _FAILED, AS_BOOKED, 0)
            spent = [0, 0, 0, 0, 0, 0, 0, 0, 0]
            start = now
            if left_open != OUTSIDE:
                restart(now)
                rare.phase_left_open(left_open, now)

    def end_step(amounts: Amounts | None, kind: type[BaseException] | None) -> None:
        nonlocal open_step
        open_step = Step()
        open_step.amounts = amounts
        open_step.__exit__(kind, None, None)

    def admit() -> bool:
        """Whether a caller may go on that is not the owner; it becomes the owner if there is none."""
        nonlocal strangers
        strangers = strangers or owner != NOBODY
        return owner != DEAD and rare.admit()

    def book(now: int) -> None:
        nonlocal mark
        since, mark = mark, now
        spent[phase] += now - since

    def restart(now: int) -> None:
        nonlocal phase, mark, start, spent, excluded_by
        phase = OUTSIDE
        spent = [0, 0, 0, 0, 0, 0, 0, 0, 0]
        start = mark = now
        outer.clear()
        inside.clear()
        excluded_by = None

    def enter_inside(index: int, now: int) -> None:
        """Open a phase inside the open one."""
        nonlocal phase
        if phase in _EXCLUDED:
            inside.append(index)
            return
        book(now)
        outer.append(phase)
        phase = index

    def leave_inside(index: int, now: int) -> None:
        """Close a phase that others are around, or that is excluded, and what is still open inside it."""
        nonlocal phase, excluded_by
        if index in inside:
            while inside.pop() != index:
                warn_order(index)
            return
        if index != phase and index not in outer:
            return  # it was closed with the step in which it was opened
        if inside:
            inside.clear()
            warn_order(index)
        if phase in _EXCLUDED:
            rare.excluded_changed(None, now)  # first of all: an interrupt here is made good by ``is_excluded``
        book(now)
        while phase != index:
            warn_order(index)
            phase = outer.pop()
        phase = outer.pop() if outer else OUTSIDE
        if phase not in _EXCLUDED:
            excluded_by = None

    def warn_order(index: int) -> None:
        rare.warn("order", f"phase {layout.PHASES[index]!r} ended before a phase inside it did: both end here")

    def close_phases(now: int) -> None:
        if phase != OUTSIDE:
            leave_inside(outer[0] if outer else phase, now)

    def is_excluded() -> bool:
        if phase not in _EXCLUDED:
            return False
        if excluded_by is not None and getrefcount(excluded_by) <= 2:  # this variable's and the call's
            leave_inside(phase, clock())  # an interrupt came before its end could be noted
            return False
        return True

    def open_step_is_lost() -> bool:
        return open_step is not None and getrefcount(open_step) <= 2  # as above

    def set_owner(thread: int) -> None:
        nonlocal owner, strangers
        strangers = strangers or owner != NOBODY
        owner = thread

    def set_stepper(thread: int) -> None:
        nonlocal stepper
        stepper = thread

    def set_open_step(step: Marks | None) -> None:
        nonlocal open_step
        open_step = step  # type: ignore[assignment]  # only steps of this stopwatch come here

    phases: dict[str, Marks] = {
        name: WaitPhase(index) if index == _WAIT else Phase(index)
        for name, index in layout.PHASE_INDEX.items()
        if index not in _EXCLUDED
    }
    return Stopwatch(
        clock=clock,
        phases=phases,
        excluded_phase=ExcludedPhase,
        step=Step,
        end_step=end_step,
        restart=restart,
        close_phases=close_phases,
        owner=lambda: owner,
        set_owner=set_owner,
        stepper=lambda: stepper,
        set_stepper=set_stepper,
        open_step=lambda: open_step,
        set_open_step=set_open_step,
        open_step_is_lost=open_step_is_lost,
        phase=lambda: phase,
        is_excluded=is_excluded,
        start=lambda: start,
    )
