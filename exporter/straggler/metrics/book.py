"""The page in the making: samples under catalogue names, built anew on each scrape.

Whoever adds a sample gives a catalogue name and label values in the catalogue's order; help, type and label names come
from there, so that no second spelling exists. What is not added is absent from the page: nothing is set to zero.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample

from straggler.metrics.catalogue import BY_NAME, METRICS, Kind, Metric

_UNPRINTABLE = {0: "\N{REPLACEMENT CHARACTER}"}
"""Prometheus' lexer takes a NUL for the end of the page, in a label value too."""


def clean(text: str) -> str:
    """Make a label value that every parser reads: no NUL, no half of a surrogate pair."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode("utf-8").translate(_UNPRINTABLE)


def _all_clean(texts: Sequence[str]) -> tuple[str, ...]:
    """``clean`` for each; they are looked at together, since nearly all are plain."""
    together = "".join(texts)
    return tuple(texts) if together.isascii() and "\0" not in together else tuple(map(clean, texts))


class MetricBook:
    """Samples by family. What would spoil the page is left out and counted in ``refused``."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}
        self._seen: set[tuple[str, tuple[str, ...]]] = set()
        self.refused: Counter[str] = Counter()
        """By reason: ``not_finite``, ``negative_counter``, ``duplicate_series``, ``unknown_name``."""

    def add(self, name: str, value: float | None, labels: Sequence[str] = ()) -> None:
        """Add one sample of a counter, gauge or info.

        Args:
            name: as in the catalogue; another one is refused.
            value: in base units; ``None`` is absent and adds nothing.
            labels: values in the order of the catalogue's label names.
        """
        if value is None:
            return
        metric = BY_NAME.get(name)
        if metric is None:
            self.refused["unknown_name"] += 1
        elif not math.isfinite(value):
            self.refused["not_finite"] += 1
        elif metric.kind is Kind.COUNTER and value < 0:
            self.refused["negative_counter"] += 1
        elif (label_set := self._open(metric, labels)) is not None:
            self._families[name].samples.append(Sample(name, label_set, value))

    def add_summary(self, name: str, *, total: float, count: int, labels: Sequence[str]) -> None:
        """Add ``_count`` and ``_sum`` of a summary."""
        metric = BY_NAME[name]
        if not math.isfinite(total):
            self.refused["not_finite"] += 1
        elif (label_set := self._open(metric, labels)) is not None:
            samples = self._families[name].samples
            samples.append(Sample(f"{name}_count", label_set, count))
            samples.append(Sample(f"{name}_sum", label_set, total))

    def _open(self, metric: Metric, labels: Sequence[str]) -> dict[str, str] | None:
        """Make sure of the family and give the series' labels; ``None`` if it has this very series already."""
        values = _all_clean(labels)
        if (metric.name, values) in self._seen:
            self.refused["duplicate_series"] += 1
            return None
        self._seen.add((metric.name, values))
        if metric.name not in self._families:
            self._families[metric.name] = Family(_family_name(metric), metric.help, metric.kind.value)
        return dict(zip(metric.labels, values, strict=True))

    def collect(self) -> Iterator[Family]:
        """Give the families that have samples, in the order of the catalogue."""
        for metric in METRICS:
            if metric.name in self._families:
                yield self._families[metric.name]


def _family_name(metric: Metric) -> str:
    """OpenMetrics names the family without the suffix; prometheus_client adds it for the older text format."""
    if metric.kind is Kind.COUNTER:
        return metric.name.removesuffix("_total")
    if metric.kind is Kind.INFO:
        return metric.name.removesuffix("_info")
    return metric.name
