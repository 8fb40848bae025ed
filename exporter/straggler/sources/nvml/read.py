"""NVML as a source: asks the process that looks, judges how it fares, and counts XID events.

One request is under way at most. Who is not back in time is waited for at the next look: the first one may take long,
since without a persistence daemon the driver starts each GPU. Only after ``hang_seconds`` the process is killed, and
then, as after any failure, the next try waits, twice as long each time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from straggler.errors import ParseError
from straggler.model.clock import Clock
from straggler.model.gpu import GpuFacts, GpuKey
from straggler.model.reading import Problem, Reading, SourceState
from straggler.sources.nvml.page import NvmlPage, decode
from straggler.sources.nvml.process import Ended, WorkerProcess
from straggler.sources.nvml.session import SOURCE

HANG_SECONDS: Final = 60.0
FIRST_RETRY_SECONDS: Final = 10.0
MOST_RETRY_SECONDS: Final = 300.0
MOST_REMEMBERED: Final = 1024
"""GPUs; no node has as many."""


class NvmlSource:
    """This node's GPUs, as the driver's library has them. For one thread at a time.

    Args:
        start: starts the process that looks.
        clock: its monotonic side times hangs and retries.
        required: whether somebody asked for it: then a missing library is a failure.
        hang_seconds: how long a call may last before its process is killed.
    """

    def __init__(
        self,
        start: Callable[[], WorkerProcess],
        *,
        clock: Clock,
        required: bool = False,
        hang_seconds: float = HANG_SECONDS,
    ) -> None:
        self._start = start
        self._clock = clock
        self._required = required
        self._hang_seconds = hang_seconds
        self._worker: WorkerProcess | None = None
        self._asked_at: float | None = None
        self._dying: WorkerProcess | None = None
        self._failure: NvmlPage | None = None
        self._retry_at = 0.0
        self._retry_seconds = FIRST_RETRY_SECONDS
        self._seen: dict[str, None] = {}
        self._xids: defaultdict[GpuKey, Counter[int]] = defaultdict(Counter)

    def collect(self, timeout_seconds: float) -> Reading[GpuFacts]:
        """Look once. Raises nothing that is to be expected.

        Args:
            timeout_seconds: how long to wait for the driver.
        """
        page = self._look(timeout_seconds)
        self._count(page)
        if page.failure:
            return self._failed(page)
        here = {gpu.key.uuid for gpu in page.facts}
        missing = [uuid for uuid in self._seen if uuid not in here]
        blind = page.blind
        if missing:
            detail = f"{missing[0]} was there and is gone: see dmesg | grep Xid"
            blind = (*blind, Problem(reason="gpu_missing", detail=detail, count=len(missing)))
        for uuid in here:
            if len(self._seen) < MOST_REMEMBERED:
                self._seen[uuid] = None
        watched = frozenset(page.watched)
        return Reading(
            source=SOURCE,
            state=SourceState.OK,
            facts=tuple(self._with_xids(gpu, is_watched=gpu.key in watched) for gpu in page.facts),
            problems=page.problems,
            blind=blind,
        )

    def close(self) -> None:
        """End the process, and so let go of the GPUs."""
        if self._worker is not None:
            self._worker.kill()
            self._dying = self._worker
        if self._dying is not None and self._dying.gone():
            self._dying = None
        self._worker = self._asked_at = None

    def _look(self, timeout_seconds: float) -> NvmlPage:
        now = self._clock.monotonic()
        if self._failure is not None and now < self._retry_at:
            return self._failure
        if self._dying is not None:
            if not self._dying.gone():  # a second one would hang in the same driver
                return NvmlPage(failure="hung", detail=f"process {self._dying.pid} cannot be killed: reboot the node")
            self._dying = None
        try:
            line = self._answer(timeout_seconds, now)
            if line is None:
                return self._no_answer()
            page = decode(line)
        except Ended as error:
            return self._give_up(NvmlPage(failure="worker_died", detail=f"it ended with {error}"))
        except (OSError, ParseError) as error:
            return self._give_up(NvmlPage(failure="worker_died", detail=str(error)))
        self._asked_at = None
        if page.failure:
            return self._give_up(page)
        self._failure, self._retry_seconds = None, FIRST_RETRY_SECONDS
        return page

    def _answer(self, timeout_seconds: float, now: float) -> bytes | None:
        """The answer to the request under way, or else to a new one."""
        if self._asked_at is not None and self._worker is not None:
            return self._worker.answer(timeout_seconds)
        if self._worker is not None and not self._worker.gone():
            try:
                return self._ask(self._worker, timeout_seconds, now)
            except Ended as ended:
                if ended.code != 0:
                    raise  # else it has just ended, as nobody had asked for long
        self.close()
        self._worker = self._start()
        return self._ask(self._worker, timeout_seconds, now)

    def _ask(self, worker: WorkerProcess, timeout_seconds: float, now: float) -> bytes | None:
        worker.ask()
        self._asked_at = now
        return worker.answer(timeout_seconds)

    def _no_answer(self) -> NvmlPage:
        waited = self._clock.monotonic() - (self._asked_at or 0.0)
        if waited < self._hang_seconds:
            return NvmlPage(failure="timeout", detail=f"no answer for {waited:.0f} s; the call goes on")
        return self._give_up(NvmlPage(failure="hung", detail=f"no answer for {waited:.0f} s; killed"))

    def _give_up(self, failure: NvmlPage) -> NvmlPage:
        """End the process, and try again later."""
        self.close()
        self._failure = replace(failure, xids=())
        self._retry_at = self._clock.monotonic() + self._retry_seconds
        self._retry_seconds = min(2 * self._retry_seconds, MOST_RETRY_SECONDS)
        return failure

    def _count(self, page: NvmlPage) -> None:
        """Count XID events; those of an instance that is not there any more, for its GPU."""
        keys = {gpu.key for gpu in page.facts}
        for xid in page.xids:
            key = xid.key if xid.key in keys else GpuKey(xid.key.uuid)
            self._xids[key][xid.number] += 1

    def _failed(self, page: NvmlPage) -> Reading[GpuFacts]:
        reason = page.failure
        if reason == "absent":
            if not (self._required or self._seen):
                return Reading(source=SOURCE, state=SourceState.ABSENT)
            reason = "library_missing"
        problem = Problem(reason=reason, detail=page.detail)
        return Reading(source=SOURCE, state=SourceState.FAILED, problems=(problem,))

    def _with_xids(self, gpu: GpuFacts, *, is_watched: bool) -> GpuFacts:
        counts = self._xids.get(gpu.key)
        if not counts and not is_watched:
            return gpu
        counts = counts or Counter()
        total = {"xid_events_total": float(sum(counts.values()))}
        return replace(gpu, values={**gpu.values, **total}, xid_events=dict(counts))
