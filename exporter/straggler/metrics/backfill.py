"""The metrics that a recorded run would have had live, as OpenMetrics with timestamps.

``promtool tsdb create-blocks-from openmetrics FILE DIR`` makes Prometheus blocks of it, so that rules and dashboards
can be tried on last month. This is the only place where a sample carries a timestamp.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from straggler.detect.recorded import Playback, Timeline
from straggler.join.view import RankView
from straggler.metrics.book import MetricBook
from straggler.metrics.families import add_ranks

INTERVAL_SECONDS = 5.0
"""As the shipped scrape configuration."""

_UNKNOWN = "training_rank_arrivals_total"
"""Every view has it, no recording knows it."""


class _Series(NamedTuple):
    name: str
    labels: tuple[tuple[str, str], ...]


class _Family(NamedTuple):
    kind: str
    help: str
    points: dict[_Series, list[tuple[float, float]]]


def backfill_lines(line: Timeline, run: str, interval_seconds: float = INTERVAL_SECONDS) -> Iterator[str]:
    """Write the page, line by line, each with its newline.

    Args:
        line: the recorded steps.
        run: the label ``run``.
        interval_seconds: of the recording's own time; a sample every step if steps are longer.
    """
    families: dict[str, _Family] = {}
    playback = Playback(line, run)
    last = float("-inf")
    final = len(line.steps) - 1
    for index in playback.play():
        now = playback.clock.now
        if now - last >= interval_seconds or (index == final and now > last):
            _add(families, now, playback.views())
            last = now
    for name, family in families.items():
        yield f"# HELP {name} {_escape(family.help)}\n"
        yield f"# TYPE {name} {family.kind}\n"
        for series, points in family.points.items():
            labels = ",".join(f'{key}="{_escape(value)}"' for key, value in series.labels)
            for at, value in points:
                yield f"{series.name}{{{labels}}} {value!r} {at:.3f}\n"
    yield "# EOF\n"


def _add(families: dict[str, _Family], at: float, views: Iterable[RankView]) -> None:
    book = MetricBook()
    add_ranks(book, views)
    for family in book.collect():
        kept = families.get(family.name)
        for sample in family.samples:
            if sample.name == _UNKNOWN:
                continue
            if kept is None:
                kept = families[family.name] = _Family(family.type, family.documentation, {})
            series = _Series(sample.name, tuple(sample.labels.items()))
            kept.points.setdefault(series, []).append((at, sample.value))


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
