"""A profile of a few steps, when somebody asks for it. Otherwise it costs one reading of the clock a step.

Once a second, between two steps, the rank looks for a request beside its ring (``requests.py``). Then it runs a
profiler for the steps that were asked for, writes the trace and an answer, and everything is as before. At most one
profile a minute, of ``MAX_STEPS`` steps and about ``_MOST_SECONDS``; never by itself.

The steps under the profiler, the one before the first marked one, and the one in which the trace is written are
published as profiled, so that no verdict compares them. If the training starts a profiler of its own meanwhile, ours
goes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any

import torch

from straggler.hook.guard import attempt, guarded
from straggler.hook.torch import patches
from straggler.hook.torch.profiling import NoProfileError, Profiling, TorchProfiling, make_profiling
from straggler.hook.torch.requests import Mailbox
from straggler.wire import profile
from straggler.wire.profile import Answer, Request

if TYPE_CHECKING:
    from straggler.hook.torch.tracker import Tracker

_LOOK_EVERY_NS = 1_000_000_000
_GAP_NS = 60_000_000_000
_MOST_SECONDS = 60
_GRAPHS = NoProfileError(
    "cuda_graph", "this process replays CUDA graphs, and the end of a profile may crash such a process"
)
"""torch says so where it works around it for its own compiler: the tracing library is torn down and set up again."""
TRACE_DIRECTORY_VARIABLE = "STRAGGLER_TRACE_DIR"


class Profiler:
    """Waits for requests, and runs one profile at a time.

    Args:
        tracker: of this process.
        environment: where traces are to go.
        make: the profiler to run.
        now: monotonic nanoseconds.
    """

    def __init__(
        self,
        tracker: Tracker,
        environment: Mapping[str, str],
        make: Callable[[], Profiling] = make_profiling,
        now: Callable[[], int] = monotonic_ns,
    ) -> None:
        self._tracker = tracker
        self.fail = tracker.fail
        self._make = make
        self._now = now
        self._directory = environment.get(TRACE_DIRECTORY_VARIABLE, "")
        self._mailbox: Mailbox | None = None
        self._look_at = 0
        self._not_before: int | None = None
        self._request: Request | None = None
        self._running: Profiling | None = None
        self._until = 0
        self._first = 0
        """Number of the first marked step; 0 before it."""

    def install(self) -> None:
        """Let go of ours where the training starts a profiler of its own: there can be only one."""
        for owner, name in (
            (torch.autograd.profiler.profile, "_prepare_trace"),
            (torch.autograd.profiler.emit_nvtx, "__enter__"),
            (torch.autograd.profiler.emit_itt, "__enter__"),
        ):
            patches.replace(owner, name, self._giving_way)
        self._tracker.on_stop.append(self.stop)

    def _giving_way(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def begin(other: Any, *args: Any, **kwargs: Any) -> Any:
            self.give_way(other)
            return original(other, *args, **kwargs)

        return begin

    @guarded
    def give_way(self, other: object) -> None:
        """Some profiler begins: if it is not ours, ours ends without a trace."""
        running = self._running
        if running is None or not isinstance(running, TorchProfiling) or running.is_of(other):
            return
        self._running = None
        running.stop()
        self._answer(profile.REFUSED, "profiler_busy", "the training started a profiler of its own")
        self._end()

    def between_steps(self, ended: int) -> None:
        """So many steps have ended, and the next one begins."""
        now = self._now()
        if self._running is not None:
            self._advance(self._running, ended, now)
        elif self._request is not None:
            if ended + 1 >= self._request.first_step:
                self._start(self._request, now)
        else:
            self._tracker.profiled = False
            if now >= self._look_at:
                self._look_at = now + _LOOK_EVERY_NS
                self._look(now)

    def _look(self, now: int) -> None:
        ring = None if self._tracker.timer is None else self._tracker.timer.ring_path
        if ring is None:
            return
        if self._mailbox is None or self._mailbox.ring != ring:
            self._mailbox = Mailbox(ring, self._tracker.warn)
        request = self._mailbox.look()
        if request is None or request.expires_realtime_ns < time_ns():
            return
        self._request = request
        if self._not_before is not None and now < self._not_before:
            wait = (self._not_before - now) // 1_000_000_000 + 1
            self._answer(profile.REFUSED, "too_soon", f"the last profile has just ended: ask again in {wait} s")
            self._request = None

    def _start(self, request: Request, now: int) -> None:
        if request.expires_realtime_ns < time_ns():
            self._request = None
            return
        self._first = 0
        self._until = now + _MOST_SECONDS * 1_000_000_000
        self._tracker.profiled = True
        profiling = self._make()
        error = _GRAPHS if self._tracker.lasting.has_graphs else attempt(profiling.start)
        if error is not None:
            self._refuse(error)
            self._request = None
        else:
            self._running = profiling
            self._answer(profile.RUNNING)

    def _advance(self, running: Profiling, ended: int, now: int) -> None:
        request = self._request
        if request is None:
            return
        if not self._first:
            self._first = ended + 1
        marked = ended + 1 - self._first
        error = None
        if marked < request.steps and now < self._until:
            error = attempt(running.step, ended + 1)
            if error is None:
                return
        self._running = None
        path = self._path()
        error = attempt(running.stop) or error
        if error is None:
            sizes: list[int | None] = []
            error = attempt(lambda: sizes.append(running.save(path)))
            if error is None:
                told = "" if sizes[0] is None else path if self._directory else os.path.basename(path)  # noqa: PTH119 - as everywhere in the hook
                self._answer(profile.DONE, trace=told, steps=marked, trace_bytes=sizes[0] or 0)
        if error is not None:
            self._refuse(error)
        self._end()

    def _path(self) -> str:
        stem = "" if self._mailbox is None else self._mailbox.stem
        if self._directory:
            stem = os.path.join(self._directory, os.path.basename(stem))  # noqa: PTH118, PTH119 - as everywhere in the hook
        return stem + profile.TRACE_SUFFIX

    def _refuse(self, error: Exception) -> None:
        reason, detail = (
            (error.reason, error.detail)
            if isinstance(error, NoProfileError)
            else ("failed", f"{type(error).__name__}: {error}")
        )
        self._tracker.warn("profiler", f"no profile was made: {detail}")
        self._answer(profile.REFUSED, reason, detail)

    def _end(self) -> None:
        self._request = self._running = None
        self._not_before = self._now() + _GAP_NS

    def _answer(self, state: str, reason: str = "", detail: str = "", **more: Any) -> None:
        if self._request is None or self._mailbox is None:
            return
        answer = Answer(self._request.id, state, reason, detail, first_step=self._first, **more)
        error = attempt(self._mailbox.answer, answer)
        if error is not None:
            self._tracker.warn("profiled", f"the answer to a request for a profile cannot be written: {error}")

    def stop(self) -> None:
        """Profile no further."""
        running, self._running, self._request = self._running, None, None
        if running is not None:
            attempt(running.stop)
