"""One timer's life: it wakes at the first sign of the training loop, writes, says goodbye, or falls silent.

It wakes that late because a ring belongs to a training loop, not to an import: a DataLoader worker started by ``spawn``
imports the training script again and makes its timer again, but never steps.

Threads: the first one that ends a step owns the timer, and what other threads call is ignored. Until then whoever came
first does, so that a thread which only prefetches batches does not lock the training thread out. There is no lock:
each entry compares the caller with ``Stopwatch.owner``.
"""

from __future__ import annotations

import itertools
import os
from _thread import get_ident  # threading, which has it too, costs 1 ms of import
from collections.abc import Callable
from typing import TYPE_CHECKING

from straggler.errors import RingError
from straggler.hook import process
from straggler.hook.book import MEASURED, NO_WAIT, Book
from straggler.hook.gpu_clock import gpu_is_open
from straggler.hook.guard import Reporter, attempt
from straggler.hook.loop import Loop
from straggler.hook.marks import DEAD, NOBODY
from straggler.hook.opening import open_ring
from straggler.hook.options import Options
from straggler.hook.recorder import make_recorder
from straggler.hook.stopwatch import make_stopwatch
from straggler.wire import layout
from straggler.wire.records import Identity

if TYPE_CHECKING:
    from straggler.hook.push import Pusher
    from straggler.hook.ring_writer import RingWriter
    from straggler.hook.serve import PageServer

GPU_CLOCK = layout.OWN_REASONS.index("gpu_clock_missing")
SWITCHED_OFF = layout.OWN_REASONS.index("switched_off")


class Session:
    """All that one timer has. The ``StepTimer`` holds it, and nothing in here holds the ``StepTimer``."""

    def __init__(
        self,
        identity: Identity,
        options: Options,
        reporter: Reporter,
        *,
        clock: Callable[[], int],
        wall_clock: Callable[[], int],
        step: int,
    ) -> None:
        self.identity = identity
        self.options = options
        self.warn = reporter.warn
        self.wall_clock = wall_clock
        self.book = Book(self._first_own_reason())
        self.recorder = make_recorder(
            self.book, step, wall_clock, lost=self.lose_ring, warn=self.warn, milestone=self.check_clock
        )
        self.loop = Loop(self)
        self.watch = make_stopwatch(clock, self.loop)
        self._claims = itertools.count()
        self._closed = False
        self._pid = os.getpid()
        self._pusher: Pusher | None = None
        self._server: PageServer | None = None

    # Who may, and waking up

    def admit(self) -> bool:
        """Tell whether a caller that is not the owner may go on; wakes the timer up for the first one."""
        owner = self.watch.owner()
        if owner == NOBODY:
            return self._wake()
        if owner != DEAD:
            self.warn("thread", "StepTimer is used from a second thread, which is ignored: use one timer in one thread")
        return False

    def admit_step(self) -> bool:
        """As ``admit``, for a caller that ends or enters a step: it becomes the owner if the owner never did so."""
        watch, me = self.watch, get_ident()
        owner = watch.owner()
        if owner in (NOBODY, DEAD):
            if not self.admit():
                return False
        elif owner != me:
            if watch.stepper() != NOBODY:
                return self.admit()
            watch.set_owner(me)
            watch.restart(watch.clock())
        watch.set_stepper(me)
        return True

    def _wake(self) -> bool:
        if next(self._claims):
            return False  # another thread is at it, or an interrupt ended the first try
        ring = self._open_ring() if self.options.wants_ring else None
        self.recorder.set_ring(ring)
        if self.options.push_url:
            from straggler.hook.push import start_pusher  # noqa: PLC0415 - imports http.client: only where chosen

            self._pusher = start_pusher(self)
        if self.options.serve is not None:
            from straggler.hook.serve import start_server  # noqa: PLC0415 - imports http.server: only where chosen

            self._server = start_server(self)
        if ring is None and self._pusher is None and self._server is None:
            self._fall_silent(layout.STATUS_OFF)
            return False
        self._look_for_twin()
        self.watch.restart(self.watch.clock())
        self.watch.set_owner(get_ident())
        return True

    def _open_ring(self) -> RingWriter | None:
        live = bytes(self.recorder.live(layout.STATUS_RUNNING, self.watch.clock()))
        keep = {ring.path for other in process.members() if (ring := getattr(other, "ring", None)) is not None}
        try:
            times_ns = self.wall_clock(), self.watch.clock()
            return open_ring(self.options, self.identity, live, times_ns, keep=keep, warn=self.warn)
        except RingError as error:
            self.warn("ring", f"no step ring, so this rank is not seen: {error}. Training goes on")
            return None

    @property
    def ring(self) -> RingWriter | None:
        """The ring, while it is written."""
        return self.recorder.ring()

    @property
    def page_port(self) -> int | None:
        """The port of the rank's own page, once it is served."""
        return None if self._server is None else self._server.port

    def _look_for_twin(self) -> None:
        name = (self.identity.run, self.identity.rank)
        others = [other for other in process.members() if isinstance(other, Session) and other is not self]
        if any(other.ring is not None and name == (other.identity.run, other.identity.rank) for other in others):
            self.warn("twin", f"two open StepTimers in this process are rank {name[1]}: close() the first one")

    # Writing

    def set_excluded(self, index: int | None, now: int) -> None:
        """Write which of ``checkpoint`` and ``eval`` the rank is in."""
        self.book.excluded = 0 if index is None else index + 1
        self.recorder.write_live(now)

    def lose_ring(self, error: Exception) -> None:
        """Go on without the ring, or fall silent if there was nothing else."""
        self.warn("ring", f"the step ring is given up, so this rank is not seen any more: {error}. Training goes on")
        ring = self.ring
        self.recorder.set_ring(None)
        if ring is not None:
            self._part(ring, layout.STATUS_OFF)
        if not self.book.queues:
            self._fall_silent(layout.STATUS_OFF)

    def set_identity(self, identity: Identity) -> None:
        """Say more about the rank."""
        self.identity = identity
        if self.book.own_reason == NO_WAIT and identity.world_size == 1:
            self.book.own_reason = MEASURED
        ring = self.ring
        if ring is not None:
            try:
                ring.write_identity(identity)
            except (OSError, RingError) as error:
                self.lose_ring(error)

    # Own time

    def _first_own_reason(self) -> int:
        if not self.options.own_time:
            self.identity = self.identity._replace(own_reason="switched_off")
            return SWITCHED_OFF
        return MEASURED if self.identity.world_size == 1 else NO_WAIT

    def check_clock(self) -> None:
        """Withdraw own time if a GPU turns out to run behind the host's back. Asked ever more rarely."""
        identity = self.identity
        if self.book.own_reason != MEASURED or identity.world_size == 1 or identity.clock == "cuda":
            return
        if not self.options.gpu_synchronized and gpu_is_open():
            self.book.own_reason = GPU_CLOCK
            self.warn(
                "gpu_clock",
                "this process uses a GPU, and the host's clock cannot see when a kernel waits: own time is not "
                "published. If every phase ends with a synchronization, say StepTimer(gpu_synchronized=True)",
            )

    # The end

    def fail(self, error: Exception) -> None:
        """Switch off after an error of our own."""
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        place = f" in {where.tb_frame.f_code.co_filename}:{where.tb_lineno}" if where is not None else ""
        self.warn(
            "failed", f"StepTimer is off after an error{place}: {type(error).__name__}: {error}. Training goes on"
        )
        attempt(lambda: self._fall_silent(layout.STATUS_OFF))

    def close(self, status: int) -> None:
        """Say goodbye and end; again is harmless."""
        if self._pid != os.getpid():
            self.orphan()  # somebody else's fork handler, which came before ours, has dropped the timer
        elif not self._closed:
            self._fall_silent(status)

    def orphan(self) -> None:
        """This is a forked child: never do anything again."""
        self._closed = True
        self._kill()
        self.book.queues.clear()
        ring = self.ring
        self.recorder.set_ring(None)
        if ring is not None:
            ring.abandon()
        if self._server is not None:
            self._server.orphan()
        self._server = self._pusher = None

    def _kill(self) -> None:
        self.watch.set_owner(DEAD)
        self.watch.set_stepper(DEAD)

    def _fall_silent(self, status: int) -> None:
        self._closed = True
        is_owner = self.watch.owner() in (NOBODY, get_ident())
        self._kill()
        process.leave(self)
        ring = self.ring
        self.recorder.set_ring(None)
        if ring is not None:
            self._part(ring, status, close=is_owner)
        if self._pusher is not None:
            self._pusher.stop(status, wait=status != layout.STATUS_OFF)
        if self._server is not None:
            self._server.stop(wait=status != layout.STATUS_OFF)

    def _part(self, ring: RingWriter, status: int, *, close: bool = True) -> None:
        """Say goodbye in a ring. The descriptor is given back by the thread that writes, or by nobody."""
        self.book.excluded = 0
        now = self.watch.clock()
        attempt(lambda: ring.say_goodbye(self.recorder.live(status, now)))
        if close:
            attempt(ring.close)
        else:
            ring.abandon()
