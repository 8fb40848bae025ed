"""A snapshot as metric families."""

from __future__ import annotations

from straggler.metrics.book import MetricBook
from straggler.metrics.families import add_gpus, add_network, add_node, add_ranks
from straggler.metrics.self_metrics import add_exporter
from straggler.sidecar.state import Snapshot


def build_page(snapshot: Snapshot) -> MetricBook:
    """Make all series anew; what is gone from the snapshot is gone from the page."""
    book = MetricBook()
    add_ranks(book, snapshot.views)
    add_gpus(book, snapshot.gpus)
    if snapshot.node is not None:
        add_node(book, snapshot.node)
    add_network(book, snapshot.ports, snapshot.node_name)
    add_exporter(book, snapshot.status, snapshot.views)
    return book
