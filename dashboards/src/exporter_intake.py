"""The lower part of the Exporter dashboard: what comes in, and how long that takes."""

from __future__ import annotations

from dashboards.src.grafana import Json
from dashboards.src.kinds import timeseries
from dashboards.src.panel import CRITICAL, WARNING, colours, override, query
from dashboards.src.queries import RATE

WHERE = 'cluster=~"$cluster", instance=~"$instance"'
"""Label matchers of the chosen exporters."""


def intake() -> list[Json]:
    """Refusals, step records, scrapes, sources."""
    return [
        timeseries(
            30,
            "Refused, by reason",
            "Lines, files and pushes a second that were refused. A few after a restart are normal; a steady stream is "
            "a version that does not fit, a full tmpfs or a page that is not dcgm-exporter's. The log has an example.",
            [
                query(
                    f"sum by (source, reason) (rate(straggler_exporter_refused_total{{{WHERE}}}{RATE}))",
                    "{{source}} {{reason}}",
                )
            ],
            unit="eps",
            low=0,
            custom={"axisSoftMax": 1},
        ),
        timeseries(
            31,
            "Step records",
            "Records read a second, and records that were overwritten before they were read (right). Missed records "
            "cost detail in the recent window, never the counters: each record carries its totals.",
            [
                query(f"sum(rate(straggler_exporter_records_read_total{{{WHERE}}}{RATE}))", "read"),
                query(f"sum(rate(straggler_exporter_records_missed_total{{{WHERE}}}{RATE}))", "missed"),
            ],
            unit="recps",
            low=0,
            overrides=[
                *colours({"read": "blue"}),
                override(
                    "missed",
                    color={"mode": "fixed", "fixedColor": CRITICAL},
                    custom__axisPlacement="right",
                    custom__axisSoftMax=1,
                ),
            ],
        ),
        timeseries(
            32,
            "Scrape",
            "How long an exporter takes to collect a page: the slowest and the median one. Close to Prometheus' scrape "
            "timeout the page loses sources, and says so as failed.",
            [
                query(f"max(straggler_exporter_scrape_seconds{{{WHERE}}})", "slowest exporter"),
                query(f"quantile(0.5, straggler_exporter_scrape_seconds{{{WHERE}}})", "median exporter"),
            ],
            unit="s",
            low=0,
            size=(8, 7),
            overrides=colours({"slowest exporter": WARNING, "median exporter": "blue"}),
        ),
        timeseries(
            33,
            "Slowest look, by source",
            "How long the slowest look at each source took, over all exporters.",
            [query(f"max by (source) (straggler_exporter_source_duration_seconds{{{WHERE}}})", "{{source}}")],
            unit="s",
            low=0,
            size=(8, 7),
        ),
        timeseries(
            34,
            "Oldest facts, by source",
            "Age of the last look that gave facts, the oldest over all exporters. A ramp is a source that hangs or has "
            "failed since the ramp's foot.",
            [query(f"max by (source) (straggler_exporter_source_age_seconds{{{WHERE}}})", "{{source}}")],
            unit="s",
            low=0,
            custom={"axisSoftMax": 60},
            size=(8, 7),
        ),
    ]
