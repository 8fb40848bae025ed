"""Which sources a node has, in order of precedence. A new one is one method here and one entry in ``Node.sources``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from straggler.detect.policy import Policy
from straggler.errors import SourceAbsentError, SourceFailedError
from straggler.model.clock import Clock
from straggler.model.gpu import GpuFacts
from straggler.model.host import Writer
from straggler.model.rank import RankKey
from straggler.model.reading import Reading, SourceState
from straggler.sidecar.access import make_access
from straggler.sidecar.config import AUTO_DCGM_URL, Config, is_loopback, log_patterns, user_ranges
from straggler.sidecar.push_endpoint import PushTarget
from straggler.sidecar.scrape import Request, Source, SourceCounts
from straggler.sidecar.tokens import TokenFile
from straggler.sources.dcgm.read import DcgmSource
from straggler.sources.host.read import HostSource
from straggler.sources.infiniband.read import InfinibandSource
from straggler.sources.nccl.read import NcclSource
from straggler.sources.nvml.process import WorkerProcess, worker_command
from straggler.sources.nvml.read import NvmlSource
from straggler.sources.push.store import PushStore
from straggler.sources.rings.discover import default_ring_dir
from straggler.sources.rings.read import RingSource
from straggler.sources.rings.strangers import RingPolicy


class Node:
    """All origins of facts about this node, as the settings want them.

    Raises:
        ConfigError: a file that a setting names cannot be used.
    """

    def __init__(self, config: Config, policy: Policy, clock: Clock) -> None:
        self._config = config
        self._policy = policy
        self._clock = clock
        self.ring_dir = config.ring_dir or default_ring_dir()
        self.dcgm_url = AUTO_DCGM_URL if config.dcgm.url == "auto" else config.dcgm.url
        self.is_proven = config.dcgm.same_node or is_loopback(self.dcgm_url)
        self.push: PushTarget | None = None
        self._writers: Callable[[], Mapping[RankKey, Writer]]
        self._dcgm_suffices: bool | None = None
        self._ring_policy = RingPolicy(
            owners=user_ranges(config.rings.owners), namespaced_runs=config.rings.namespaced_runs
        )
        self.sources = (
            self._rings(),
            self._push(),
            self._dcgm(),
            self._nvml(),
            self._host(),
            self._infiniband(),
            self._nccl(),
        )

    def _rings(self) -> Source:
        rings = RingSource(
            self.ring_dir,
            clock=self._clock,
            hang_steps=self._policy.hang_steps,
            hang_min_seconds=self._policy.hang_min_seconds,
            hang_excluded_seconds=self._policy.hang_excluded_seconds,
            gone_seconds=self._policy.gone_counters_seconds,
            remove_after_seconds=self._config.remove_after_seconds or None,
            max_ranks=self._config.limits.ranks,
            policy=self._ring_policy,
        )
        self._writers = lambda: rings.writers
        return Source(name="rings", look=lambda _: rings.collect(), polled=True, counts=lambda: _ring_counts(rings))

    def _push(self) -> Source:
        if self._config.push.tokens_file is None:
            return Source(name="push", look=_absent)
        store = PushStore(
            self._clock,
            hang_steps=self._policy.hang_steps,
            hang_min_seconds=self._policy.hang_min_seconds,
            hang_excluded_seconds=self._policy.hang_excluded_seconds,
            gone_seconds=self._policy.gone_counters_seconds,
            max_ranks=self._config.limits.ranks,
        )
        self.push = PushTarget(
            TokenFile(self._config.push.tokens_file),
            lambda body, namespace: store.accept(body, allowed_namespace=namespace),
        )
        return Source(name="push", look=lambda _: store.collect(), counts=lambda: _push_counts(store))

    def _dcgm(self) -> Source:
        settings = self._config.dcgm
        access = make_access(settings, "dcgm.")
        if settings.url == "none":
            self._dcgm_suffices = False
            return Source(name="dcgm", look=_absent)
        dcgm = DcgmSource(
            [self.dcgm_url],
            clock=self._clock,
            access=access,
            required=settings.url != "auto",
            stale_after_seconds=settings.stale_after_seconds,
        )

        def look(request: Request) -> Reading[GpuFacts]:
            # A little less than the collection has: then the source itself can say what it was waiting for.
            timeout = min(settings.timeout_seconds, 0.95 * request.timeout_seconds)
            suffices = False
            try:
                reading = dcgm.collect(timeout, stepping=request.stepping)
                suffices = reading.state is SourceState.OK and not reading.blind
            finally:
                self._dcgm_suffices = suffices
            return reading

        return Source(name="dcgm", look=look if settings.url != "auto" else MissedOnceSeen(look))

    def _nvml(self) -> Source:
        settings = self._config.nvml
        if settings.use == "never":
            return Source(name="nvml", look=_absent)
        always = settings.use == "always"
        command = worker_command(settings.idle_seconds)
        nvml = NvmlSource(
            lambda: WorkerProcess(command), clock=self._clock, required=always, hang_seconds=settings.hang_seconds
        )

        def look(request: Request) -> Reading[GpuFacts]:
            return nvml.collect(min(settings.timeout_seconds, 0.95 * request.timeout_seconds))

        if always:
            return Source(name="nvml", look=look)
        needed = WhileNeeded(
            look,
            is_spared=lambda: self._dcgm_suffices is not False,
            release=nvml.close,
            clock=self._clock,
            idle_seconds=settings.idle_seconds,
        )
        return Source(name="nvml", look=needed)

    def _host(self) -> Source:
        if not self._config.host.enabled:
            return Source(name="host", look=_absent)
        # Always this process's own /proc and control groups: the lock gives pids of its own namespace, and in another
        # mount the same number is another process.
        host = HostSource(Path("/"))
        # The ranks of the rings' last look: both are asked at the same time.
        return Source(name="host", look=lambda _: host.collect(self._writers()))

    def _infiniband(self) -> Source:
        settings = self._config.infiniband
        if not settings.enabled:
            return Source(name="infiniband", look=_absent)
        ignore = [pattern.strip() for pattern in settings.ignore.split(",") if pattern.strip()]
        adapters = InfinibandSource(settings.sys_dir, ignore=ignore)
        return Source(name="infiniband", look=lambda _: adapters.collect())

    def _nccl(self) -> Source:
        patterns = log_patterns(self._config.nccl.logs)
        if not patterns:
            return Source(name="nccl", look=_absent)
        nccl = NcclSource(patterns, self._ring_policy.check_owner, ring_dir=self.ring_dir)
        return Source(name="nccl", look=lambda _: nccl.collect(), counts=lambda: SourceCounts(logs=nccl.logs))


class WhileNeeded:
    """Asks while ranks live here and nobody else says enough; else lets go.

    Args:
        look: asks the source.
        is_spared: whether another source is enough, or has not been asked yet.
        release: called when nobody needs it any more.
        clock: its monotonic side is used.
        idle_seconds: how long after the last rank it is still asked.
    """

    def __init__(
        self,
        look: Callable[[Request], Reading[GpuFacts]],
        *,
        is_spared: Callable[[], bool],
        release: Callable[[], None],
        clock: Clock,
        idle_seconds: float,
    ) -> None:
        self._look = look
        self._is_spared = is_spared
        self._release = release
        self._clock = clock
        self._idle_seconds = idle_seconds
        self._needed_until = float("-inf")

    def __call__(self, request: Request) -> Reading[GpuFacts]:
        """Look, or say that nobody needs it."""
        now = self._clock.monotonic()
        if request.occupied:
            self._needed_until = now + self._idle_seconds
        if now >= self._needed_until:
            self._release()
            raise SourceAbsentError("no rank lives here, so the GPUs are left alone")
        if self._is_spared():
            self._release()
            raise SourceAbsentError("dcgm-exporter says enough")
        return self._look(request)


class MissedOnceSeen:
    """A page that nobody asked for may be absent; but once it was there, its absence is a failure."""

    def __init__(self, look: Callable[[Request], Reading[GpuFacts]]) -> None:
        self._look = look
        self._seen = False

    def __call__(self, request: Request) -> Reading[GpuFacts]:
        """Look, and judge the absence."""
        reading = self._look(request)
        self._seen |= reading.state in (SourceState.OK, SourceState.STALE)
        if reading.state is SourceState.ABSENT and self._seen:
            raise SourceFailedError("refused", "nobody listens there any more; dcgm-exporter did before")
        return reading


def host_name() -> str:
    """What the hook would call this node if it ran here."""
    named = (os.environ.get(variable) for variable in ("STRAGGLER_NODE", "NODE_NAME", "SLURMD_NODENAME"))
    return next(filter(None, named), os.uname().nodename)


def _absent(_: Request) -> Reading[Any]:
    raise SourceAbsentError("switched off")


def _ring_counts(rings: RingSource) -> SourceCounts:
    counters = rings.counters
    return SourceCounts(
        records_read=counters.records_read,
        records_missed=counters.records_missed,
        rings_removed=counters.removed,
        ranks_refused=counters.refused_now,
    )


def _push_counts(store: PushStore) -> SourceCounts:
    counters = store.counters
    return SourceCounts(records_read=counters.records_read, records_missed=counters.records_missed)
