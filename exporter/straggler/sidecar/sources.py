"""Which sources a node has, in order of precedence. A new one is a line in ``Node``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from straggler.detect.policy import Policy
from straggler.model.clock import Clock
from straggler.sidecar.config import AUTO_DCGM_URL, Config, is_loopback
from straggler.sidecar.push_endpoint import PushTarget
from straggler.sidecar.scrape import Source
from straggler.sidecar.state import SourceCounts
from straggler.sources.rings.read import RingSource

SHARED_DIRECTORY = Path("/run/straggler")
"""Made by the packaging: its own small tmpfs."""


class Node:
    """All origins of facts about this node, as the settings want them.

    Raises:
        ConfigError: a file that a setting names cannot be used.
    """

    def __init__(self, config: Config, policy: Policy, clock: Clock) -> None:
        self.ring_dir = config.ring_dir or default_ring_dir()
        self.dcgm_url = AUTO_DCGM_URL if config.dcgm.url == "auto" else config.dcgm.url
        self.is_proven = config.dcgm.same_node or is_loopback(self.dcgm_url)
        rings = RingSource(
            self.ring_dir,
            clock=clock,
            hang_steps=policy.hang_steps,
            hang_min_seconds=config.hang_seconds,
            hang_excluded_seconds=policy.hang_excluded_seconds,
            gone_seconds=policy.gone_counters_seconds,
            remove_after_seconds=config.remove_after_seconds or None,
            max_ranks=config.limits.ranks,
        )
        self.sources = [
            Source(name="rings", look=lambda _: rings.collect(), polled=True),
        ]
        self.push: PushTarget | None = None
        self.counts: Mapping[str, Callable[[], SourceCounts]] = {"rings": lambda: _ring_counts(rings)}


def default_ring_dir() -> Path:
    """Where the hook writes if nobody tells it: the shared directory if there is one, else this user's own."""
    return SHARED_DIRECTORY if SHARED_DIRECTORY.is_dir() else Path(f"/dev/shm/straggler-{os.geteuid()}")  # noqa: S108 - as the hook has it


def _ring_counts(rings: RingSource) -> SourceCounts:
    counters = rings.counters
    return SourceCounts(
        records_read=counters.records_read,
        records_missed=counters.records_missed,
        rings_removed=counters.removed,
        ranks_refused=counters.refused_now,
    )
