"""``StepTimer``: what the training loop sees."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from straggler import __version__
from straggler.hook import process
from straggler.hook.book import Amounts, is_count
from straggler.hook.data import TimedLoader, timed
from straggler.hook.guard import Reporter, attempt, guarded
from straggler.hook.identity import find_identity, with_changes
from straggler.hook.marks import DEAD, NOBODY, Marks
from straggler.hook.options import Options, find_options, is_disabled
from straggler.hook.session import Session
from straggler.wire import layout
from straggler.wire.records import Identity

if TYPE_CHECKING:
    from types import TracebackType

T = TypeVar("T")


class StepTimer:
    """Times the steps of one rank's training loop and publishes them for the sidecar.

    Example::

        timer = StepTimer()
        for batch in timer.data(loader):
            with timer.step(tokens=batch.tokens):
                with timer.phase("forward"):
                    ...
                with timer.phase("wait"):
                    all_reduce()

    A step is one optimizer step, with as many batches, forward and backward passes inside as it takes. It runs from
    the end of the step before to its own end, so no time is lost between two; the first begins at the first call of
    any method here. Nothing this class does raises, waits or takes a lock: what goes wrong is logged once, and the
    timer falls silent.

    Args:
        run: name of the training run, the same on all its ranks. Default: from the launcher's environment.
        rank: global rank. Default: from the launcher's environment; 0 of 1 for a process that none started.
        world_size: likewise.
        local_rank: likewise.
        peer_group: names the ranks that do the same work, e.g. one pipeline stage.
        step: number of steps done before, e.g. by the checkpoint that training resumes from.
        directory: for the step ring; on tmpfs. Default: ``/run/straggler``, else the user's own in ``/dev/shm``.
        push: ``http(s)://host:port/api/v1/push`` of a sidecar that shares no directory with this process.
        push_token: what that sidecar demands.
        serve: port, or ``"host:port"``, on which this rank serves its own ``/metrics``.
        allow_any_filesystem: take a ``directory`` that is not on tmpfs; a write to it may block the training.
        own_time: ``False`` if own time must not be published.
        gpu_synchronized: the loop synchronizes with its GPU at the end of each phase, so the host's clock is right.
        clock: nanoseconds that never go back.
        wall_clock: nanoseconds since the epoch.

    What is not given here can be set in the environment as ``STRAGGLER_…``; docs/hook.md lists the variables.
    ``STRAGGLER_DISABLED=1`` switches all of this off.
    """

    def __init__(
        self,
        *,
        run: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        local_rank: int | None = None,
        peer_group: str | None = None,
        step: int = 0,
        directory: str | os.PathLike[str] | None = None,
        push: str | None = None,
        push_token: str | None = None,
        serve: int | str | None = None,
        allow_any_filesystem: bool | None = None,
        own_time: bool | None = None,
        gpu_synchronized: bool | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        wall_clock: Callable[[], int] = time.time_ns,
    ) -> None:
        reporter = Reporter()
        self._use(_dead_session(reporter))
        if is_disabled(os.environ):
            return
        session = self._find_session(
            reporter,
            {"clock": clock, "wall_clock": wall_clock, "step": step},
            {
                "run": run,
                "rank": rank,
                "world_size": world_size,
                "local_rank": local_rank,
                "peer_group": peer_group,
            },
            {
                "directory": directory,
                "push": push,
                "push_token": push_token,
                "serve": serve,
                "allow_any_filesystem": allow_any_filesystem,
                "own_time": own_time,
                "gpu_synchronized": gpu_synchronized,
            },
        )
        if session is not None:
            self._use(session)

    @guarded
    def _find_session(
        self,
        reporter: Reporter,
        how: dict[str, Any],
        who: dict[str, Any],
        choices: dict[str, Any],
    ) -> Session:
        environment = os.environ
        identity = find_identity(environment, warn=reporter.warn, hook_version=__version__, **who)
        options = find_options(environment, warn=reporter.warn, local_rank=identity.local_rank, **choices)
        if not is_count(how["step"]):
            reporter.warn("step", f"StepTimer(step={how['step']!r:.60}) is no number of steps: counting from 0")
            how["step"] = 0
        session = Session(identity, options, reporter, **how)
        process.join(session)
        return session

    def _use(self, session: Session) -> None:
        self._session = session
        self._loop = session.loop
        self._step = session.watch.step
        self._phases = session.watch.phases

    # The loop

    def step(
        self,
        number: int | None = None,
        *,
        tokens: float | None = None,
        samples: float | None = None,
        flops: float | None = None,
        allreduce_bytes: float | None = None,
        profiled: bool = False,
    ) -> Marks:
        """Mark one optimizer step: ``with timer.step(tokens=n):``.

        Args:
            number: the step's number as the loop counts; by default one more than the last.
            tokens: trained on in this step by this rank.
            samples: likewise.
            flops: floating point operations of the model in this step on this rank, without recomputation.
            allreduce_bytes: given to all-reduce by this rank.
            profiled: a profiler runs, so the step is not to be compared.
        """
        step = self._step()
        step.amounts = number, tokens, samples, flops, allreduce_bytes, profiled
        return step

    @guarded
    def tick(
        self,
        number: int | None = None,
        *,
        tokens: float | None = None,
        samples: float | None = None,
        flops: float | None = None,
        allreduce_bytes: float | None = None,
        profiled: bool = False,
    ) -> None:
        """Mark the end of a step, at the end of the loop's body: one call instead of ``step()``, same arguments.

        The step is the time since the last call. The first call begins the first step, unless a phase or ``data()``
        did so before: then it ends it.
        """
        self._loop.tick((number, tokens, samples, flops, allreduce_bytes, profiled))

    def phase(self, name: str) -> Marks:
        """Mark a phase: ``with timer.phase("forward"):``.

        One of ``data``, ``h2d``, ``forward``, ``backward``, ``wait``, ``optimizer``, ``checkpoint``, ``eval``,
        ``other``; another name is reported once and counts as ``other``. A phase inside another takes its time out of
        it. ``wait`` is for being blocked on peers, in collectives and send/recv: own time is what is left without it.
        Time in ``checkpoint`` and ``eval`` never counts as slowness, nor does anything inside them.
        """
        try:
            return self._phases[name]
        except (KeyError, TypeError):
            return self._rare_phase(name) or self._phases["other"]

    def exclude(self) -> Marks:
        """Mark time that is no training, whatever happens in it: the same as ``phase("eval")``."""
        return self.phase("eval")

    @guarded
    def _rare_phase(self, name: object) -> Marks:
        for index in layout.EXCLUDED:
            if name == layout.PHASES[index]:
                return self._session.watch.excluded_phase(index)
        names = ", ".join(layout.PHASES)
        self._session.warn("phase", f"phase {name!r:.60} counts as 'other': the phases are {names}")
        return self._phases["other"]

    def data(self, loader: Iterable[T]) -> TimedLoader[T]:
        """Iterate over a loader; the time to get a batch is phase ``data`` of the step that it is for."""
        return timed(self, loader)

    def add_tokens(self, count: float) -> None:
        """Add tokens that are known only later; they count for the step that is running."""
        self._add((None, count, None, None, None, False))

    def add_samples(self, count: float) -> None:
        """As ``add_tokens``."""
        self._add((None, None, count, None, None, False))

    def add_flops(self, count: float) -> None:
        """As ``add_tokens``: floating point operations of the model, without recomputation."""
        self._add((None, None, None, count, None, False))

    def add_allreduce_bytes(self, count: float) -> None:
        """As ``add_tokens``: bytes given to all-reduce."""
        self._add((None, None, None, None, count, False))

    @guarded
    def _add(self, amounts: Amounts) -> None:
        self._loop.add(amounts)

    # For instruments that time the steps themselves

    @guarded
    def publish_step(
        self,
        wall_ns: int,
        phase_ns: Sequence[int],
        *,
        own_reason: str = "measured",
        host_data_ns: int = 0,
        end_monotonic_ns: int | None = None,
        failed: bool = False,
        number: int | None = None,
        tokens: float | None = None,
        samples: float | None = None,
        flops: float | None = None,
        allreduce_bytes: float | None = None,
        profiled: bool = False,
    ) -> None:
        """Record a step that is over and was timed by somebody else, on a GPU's clock perhaps.

        Args:
            wall_ns: its length.
            phase_ns: in the order of ``wire.layout.PHASES``, all of them; what is missing from ``wall_ns`` is other.
            own_reason: one of ``wire.layout.OWN_REASONS``.
            host_data_ns: time the host waited for batches, where the phases are a GPU's.
            end_monotonic_ns: when it ended, on the host's clock; by default now.
            failed: it ended by an exception.
            number: as for ``step``, and so the rest.
            tokens: as for ``step``.
            samples: as for ``step``.
            flops: as for ``step``.
            allreduce_bytes: as for ``step``.
            profiled: as for ``step``.
        """
        self._loop.publish(
            wall_ns,
            phase_ns,
            (number, tokens, samples, flops, allreduce_bytes, profiled),
            own_reason=own_reason,
            host_data_ns=host_data_ns,
            end_ns=end_monotonic_ns,
            failed=failed,
        )

    @property
    def record_timed(self) -> Callable[[int, int, list[int], Amounts | None, int, int], None]:
        """As ``publish_step``, for an instrument of ours with a guard of its own: see ``Loop.record_timed``."""
        return self._loop.record_timed

    @property
    def arrive_timed(self) -> Callable[[int], None]:
        """As ``arrive``, for all but the first; called with the time."""
        return self._loop.arrive

    @guarded
    def arrive(self) -> None:
        """Count an arrival at a blocking point, and write it at once. ``phase("wait")`` does it by itself.

        From any thread: whoever calls this knows which threads' waits are the rank's.
        """
        session = self._session
        if session.watch.owner() > NOBODY or session.admit():
            session.loop.arrive(session.watch.clock())

    @guarded
    def mark_excluded(self, name: str | None) -> None:
        """Say that the rank is in ``checkpoint`` or ``eval`` (``None``: in neither), and write it at once.

        For who times phases by himself; ``phase()`` does it by itself.
        """
        session = self._session
        if session.watch.owner() > NOBODY or session.admit():
            index = layout.PHASE_INDEX.get(name or "")
            session.set_excluded(index if index in layout.EXCLUDED else None, session.watch.clock())

    @guarded
    def set_identity(self, /, **fields: Any) -> None:
        """Say more about the rank, or something better: any field of ``wire.records.Identity`` but ``own_reason``."""
        session = self._session
        if session.watch.owner() != DEAD:
            session.set_identity(with_changes(session.identity, fields, session.warn))

    # The rest

    @property
    def enabled(self) -> bool:
        """Whether steps are being recorded, or will be when the loop begins."""
        return self._session.watch.owner() != DEAD

    @property
    def identity(self) -> Identity:
        """Who this rank is said to be. With a run of ``""`` if the timer is disabled."""
        return self._session.identity

    @property
    def ring_path(self) -> str | None:
        """The ring file; ``None`` before the loop begins, and where there is none."""
        ring = self._session.ring
        return None if ring is None else ring.path

    @property
    def page_port(self) -> int | None:
        """The port of the rank's own page, once it is served."""
        return self._session.page_port

    @guarded
    def close(self) -> None:
        """Say that this rank has finished, as the interpreter's end does too. Later calls of anything do nothing."""
        self._session.close(layout.STATUS_FINISHED)

    def __enter__(self) -> StepTimer:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        failed = kind is not None and not issubclass(kind, process.WANTED_ENDS)
        attempt(self._session.close, layout.STATUS_EXCEPTION if failed else layout.STATUS_FINISHED)

    def __del__(self) -> None:
        # Two open timers would be two rings for one rank; a loop that drops its timer may well make another.
        attempt(self._session.close, layout.STATUS_FINISHED)

    def __reduce__(self) -> tuple[Callable[[], StepTimer], tuple[()]]:
        """A copy, in whatever process, measures nothing."""
        return dead_timer, ()

    def fail(self, error: Exception) -> None:
        """See ``guard``."""
        self._session.fail(error)


def dead_timer() -> StepTimer:
    """A timer that measures nothing."""
    timer = StepTimer.__new__(StepTimer)
    timer._use(_dead_session(Reporter()))  # noqa: SLF001 - this is its other constructor
    return timer


def _dead_session(reporter: Reporter) -> Session:
    session = Session(Identity("", 0), Options(), reporter, clock=time.monotonic_ns, wall_clock=time.time_ns, step=0)
    session.orphan()
    return session
