"""A page with every metric of the catalogue."""

from __future__ import annotations

import pytest

from straggler.metrics.book import MetricBook
from straggler.metrics.catalogue import METRICS, Kind


@pytest.fixture
def everything() -> MetricBook:
    """One sample of each family."""
    book = MetricBook()
    for metric in METRICS:
        labels = [f"some-{label}" for label in metric.labels]
        if metric.kind is Kind.SUMMARY:
            book.add_summary(metric.name, total=1.5, count=3, labels=labels)
        else:
            book.add(metric.name, 1, labels)
    return book
