"""What is not on the path of each step: odd calls, second threads, steps that are none or never end.

A step ends when the ``with`` block of ``step()`` is left, or when ``tick()`` is called; the next one begins at the same
moment. Some calls are no step: inside ``checkpoint`` and ``eval`` (the same loop may do training and validation),
inside another open step, and in another thread.

An open step may never be left: a generator that is not run to its end, an interrupt at the wrong moment. It is known by
no reference but our own being left to it, and then ends where the next one begins, as failed.
"""

from __future__ import annotations

from _thread import get_ident  # threading, which has it too, costs 1 ms of import
from collections.abc import Sequence
from sys import getrefcount
from typing import TYPE_CHECKING

from straggler.hook.book import Amounts
from straggler.hook.guard import guarded, guarded_arrive, guarded_record
from straggler.hook.marks import OUTSIDE, Marks
from straggler.wire import layout

if TYPE_CHECKING:
    from straggler.hook.session import Session

_MOST_NESTED = 100
"""After so many steps inside one that never ended, it is taken for lost even though somebody refers to it."""
_MOST_NS = 1 << 50


class Loop:
    """The rare side of one session's stopwatch (``stopwatch.Rare``)."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._inner: Marks | None = None
        """A step inside the open one."""
        self._nested = 0
        self._nested_serial = 0
        """How many steps were begun inside the open one, and how many records there were then."""
        self.warn = session.warn
        self.arrive = guarded_arrive(session.recorder.arrive, session.fail)
        self.record = guarded_record(session.recorder.record, session.fail)

    def fail(self, error: Exception) -> None:
        """See ``guard``."""
        self._session.fail(error)

    def admit(self) -> bool:
        """Tell whether a caller may go on that is not the owner."""
        return bool(self._admit())

    @guarded
    def _admit(self) -> bool:
        return self._session.admit()

    @guarded
    def enter_step(self, step: Marks) -> None:
        """Open a step, if this is one."""
        session = self._session
        watch = session.watch
        if watch.stepper() != get_ident() and not session.admit_step():
            return
        if watch.is_excluded():
            return
        if watch.open_step() is not None and not self._give_up_open(step):
            return
        if watch.phase() != OUTSIDE:
            self.warn("around", "a phase is open where a step begins: phases belong inside, so it ends here")
            watch.close_phases(watch.clock())
        watch.set_open_step(step)

    @guarded
    def leave_step(self, step: Marks) -> None:
        """Leave a step that is not the open one, or in another thread."""
        watch = self._session.watch
        if step is self._inner:
            self._inner = None
        elif step is watch.open_step():
            self._session.admit()

    def _give_up_open(self, step: Marks) -> bool:
        """Decide about the open step where another begins: is it around the new one, or lost?"""
        watch = self._session.watch
        _arrivals, serial, _excluded = self._session.recorder.glance()
        if serial != self._nested_serial:
            self._nested, self._nested_serial = 0, serial
        no_inner = self._inner is None or getrefcount(self._inner) <= 2  # the attribute's and this call's
        if not watch.open_step_is_lost() and no_inner and self._nested < _MOST_NESTED:
            self.warn("nested", "step() inside step() is ignored: a step is one optimizer step")
            self._inner = step
            self._nested += 1
            return False
        self.warn("lost", "a step() was never left: it ends where the next one begins, and counts as failed")
        watch.set_open_step(None)
        self._inner = None
        self._nested = 0
        watch.end_step(None, RuntimeError)
        return watch.stepper() == get_ident()

    def tick(self, amounts: Amounts) -> None:
        """End a step here. The first call begins one, if nothing did before."""
        session = self._session
        watch = session.watch
        if watch.stepper() != get_ident():
            owner = watch.owner()
            if not session.admit_step() or owner != get_ident():
                return
        if watch.is_excluded():
            return
        if watch.open_step() is not None:
            if not watch.open_step_is_lost():
                self.warn("tick", "tick() inside step() is ignored: mark steps by one of the two")
                return
            watch.set_open_step(None)
        watch.end_step(amounts, None)

    @guarded
    def phase_left_open(self, index: int, now: int) -> None:
        """Report a phase that was open where its step ended."""
        self.warn("open", f"phase {layout.PHASES[index]!r} was still open when its step ended")
        self._session.set_excluded(None, now)

    @guarded
    def excluded_changed(self, index: int | None, now: int) -> None:
        """Write that the rank enters or leaves ``checkpoint`` or ``eval``."""
        self._session.set_excluded(index, now)

    def add(self, amounts: Amounts) -> None:
        """Add to the totals between two steps."""
        session = self._session
        if session.watch.owner() == get_ident() or session.admit():
            session.recorder.add(amounts)

    def record_timed(  # noqa: PLR0917 - by position, for speed
        self, end: int, wall: int, phases: list[int], amounts: Amounts | None, reason: int, host_data: int
    ) -> None:
        """As ``publish``, for an instrument of ours: what it says is right, and it has a guard of its own."""
        session = self._session
        if session.watch.stepper() == get_ident() or session.admit_step():
            session.recorder.record(end, wall, phases, amounts, 0, reason, host_data)

    def publish(
        self,
        wall_ns: int,
        phase_ns: Sequence[int],
        amounts: Amounts,
        *,
        own_reason: str,
        host_data_ns: int,
        end_ns: int | None,
        failed: bool,
    ) -> None:
        """Record a step that somebody else timed."""
        session = self._session
        watch = session.watch
        if watch.stepper() != get_ident() and not session.admit_step():
            return
        phases = [min(max(int(value), 0), _MOST_NS) for value in phase_ns]
        if len(phases) != layout.PHASE_COUNT or own_reason not in layout.OWN_REASONS:
            raise ValueError(f"{len(phases)} phases, own_reason {own_reason!r}")
        wall = max(int(wall_ns), sum(phases))  # events on a GPU are rounded one by one
        now = watch.clock()
        flags = layout.FLAG_FAILED if failed else 0
        end = now if end_ns is None else int(end_ns)
        reason = layout.OWN_REASONS.index(own_reason)
        session.recorder.record(end, wall, phases, amounts, flags, reason, max(int(host_data_ns), 0))
        if watch.phase() not in layout.EXCLUDED:
            watch.restart(now)
