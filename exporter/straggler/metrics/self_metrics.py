"""What the exporter says about itself: how its sources are, what it refused, and what it cannot see."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from straggler import __version__
from straggler.join.view import RankView
from straggler.metrics.book import MetricBook
from straggler.model.reading import SourceState


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """How one source is now."""

    source: str
    state: SourceState
    duration_seconds: float | None = None
    """Of the last look that ended."""
    age_seconds: float | None = None
    """Since the last look that gave facts; ``None`` before the first."""
    blind: Mapping[str, int] = field(default_factory=dict)
    """What it cannot see, by reason."""
    records_read: int | None = None
    records_missed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterStatus:
    """All that the page says about the exporter and does not follow from the ranks."""

    sources: tuple[SourceStatus, ...] = ()
    refused: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By source and reason, since start."""
    ranks_refused: Mapping[str, int] = field(default_factory=dict)
    """By reason, at present."""
    scrape_seconds: float | None = None
    rings_removed: int | None = None
    hang_after_seconds: float | None = None
    nccl_logs: int | None = None
    nccl_unlinked: Mapping[str, int] = field(default_factory=dict)
    """Ranks in NCCL logs that belong to no rank here, by ``join.nccl.UNLINKED``."""


def add_exporter(book: MetricBook, status: ExporterStatus, views: Iterable[RankView]) -> None:
    """Add the ``straggler_exporter_`` series."""
    book.add("straggler_exporter_build_info", 1, (__version__, platform.python_version()))
    for source in status.sources:
        _add_source(book, source)
    for (name, reason), count in sorted(status.refused.items()):
        book.add("straggler_exporter_refused_total", count, (name, reason))
    for reason, count in sorted(status.ranks_refused.items()):
        book.add("straggler_exporter_ranks_refused", count, (reason,))
    book.add("straggler_exporter_scrape_seconds", status.scrape_seconds)
    book.add("straggler_exporter_rings_removed_total", status.rings_removed)
    book.add("straggler_exporter_nccl_logs", status.nccl_logs)
    for reason, count in sorted(status.nccl_unlinked.items()):
        book.add("straggler_exporter_nccl_unlinked", count, (reason,))
    book.add("straggler_exporter_hang_after_seconds", status.hang_after_seconds)
    _add_rank_counts(book, views)


def _add_source(book: MetricBook, status: SourceStatus) -> None:
    name = (status.source,)
    for state in SourceState:
        book.add("straggler_exporter_source_state", float(status.state is state), (*name, state.value))
    book.add("straggler_exporter_source_duration_seconds", status.duration_seconds, name)
    book.add("straggler_exporter_source_age_seconds", status.age_seconds, name)
    for reason, count in sorted(status.blind.items()):
        book.add("straggler_exporter_blind", count, (*name, reason))
    book.add("straggler_exporter_records_read_total", status.records_read, name)
    book.add("straggler_exporter_records_missed_total", status.records_missed, name)


def _add_rank_counts(book: MetricBook, views: Iterable[RankView]) -> None:
    ranks: Counter[str] = Counter()
    without_gpu: Counter[tuple[str, str]] = Counter()
    without_own_time: Counter[tuple[str, str]] = Counter()
    for view in views:
        run = view.rank.identity.run
        ranks[run] += 1
        if not view.rank.alive:
            continue
        if view.gpu is None:
            without_gpu[run, view.unmatched_reason] += 1
        if view.rank.own_reason != "measured":
            without_own_time[run, view.rank.own_reason] += 1
    for run, count in ranks.items():
        book.add("straggler_exporter_ranks", count, (run,))
    for key, count in without_gpu.items():
        book.add("straggler_exporter_ranks_without_gpu", count, key)
    for key, count in without_own_time.items():
        book.add("straggler_exporter_ranks_without_own_time", count, key)
