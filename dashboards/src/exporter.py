"""Exporter: is the monitor blind."""

from __future__ import annotations

from dashboards.src.grafana import Json, dashboard, query_variable, row
from dashboards.src.kinds import stat, states, table, timeseries
from dashboards.src.panel import (
    CRITICAL,
    GOOD,
    GREY,
    WARNING,
    colours,
    override,
    query,
)
from dashboards.src.queries import union
from dashboards.src.tables import EXPORTER_UID, LINKS, RUNBOOKS, firing_alerts

_WHERE = 'cluster=~"$cluster", instance=~"$instance"'
_BY = "cluster, instance"
_RATE = "[$__rate_interval]"

SOURCE_STATES = {
    "0": ("ok", GOOD),
    "1": ("absent", GREY),
    "2": ("stale", WARNING),
    "3": ("failed", CRITICAL),
}


def _count(metric: str) -> str:
    return f"sum({metric}{{{_WHERE}}}) or vector(0)"


def _headline() -> list[Json]:
    return [
        stat(
            1,
            "Exporters down",
            "Targets that served the exporter's page within the last day and cannot be scraped now. Their ranks are "
            "unseen, not healthy. See StragglerExporterDown.",
            [
                query(
                    f"count(up{{{_WHERE}}} == 0 and on (cluster, job, instance)\n"
                    f"last_over_time(straggler_exporter_build_info{{{_WHERE}}}[1d])) or vector(0)",
                    instant=True,
                )
            ],
            steps=((None, GOOD), (1, CRITICAL)),
            loud=True,
            decimals=0,
        ),
        stat(
            2,
            "Exporters",
            "Exporters that are scraped now: one on each node with training. Fewer than nodes: see the box beside, "
            "or the target is not discovered at all.",
            [query(f"count(straggler_exporter_build_info{{{_WHERE}}})", instant=True)],
            empty="none",
            decimals=0,
        ),
        stat(
            3,
            "Sources failed or stale",
            "Sources that are there but give nothing (failed), or say the same for ever (stale). What depends on them "
            "is absent, not zero.",
            [
                query(
                    f'sum(straggler_exporter_source_state{{state=~"failed|stale", {_WHERE}}}) or vector(0)',
                    instant=True,
                )
            ],
            steps=((None, GOOD), (1, WARNING)),
            decimals=0,
        ),
        stat(
            4,
            "Ranks without own time",
            "Living ranks whose own time cannot be measured: no verdict is possible for them. The reasons are below.",
            [query(_count("straggler_exporter_ranks_without_own_time"), instant=True)],
            steps=((None, GOOD), (1, WARNING)),
            decimals=0,
        ),
        stat(
            5,
            "Ranks without a GPU",
            "Living ranks that could not be matched with a GPU: verdicts work, causes do not. The reasons are below.",
            [query(_count("straggler_exporter_ranks_without_gpu"), instant=True)],
            steps=((None, GOOD), (1, WARNING)),
            decimals=0,
        ),
        stat(
            6,
            "Rules",
            "Whether Prometheus evaluates the recording rules. Not loaded: the Fleet and Run dashboards are empty and "
            "nothing alerts; load rules/recording and rules/alerts.",
            [query("count(run:training_ranks_alive:count) > bool 0 or vector(0)", instant=True)],
            mappings=[
                {
                    "type": "value",
                    "options": {
                        "0": {"text": "not loaded", "color": CRITICAL, "index": 0},
                        "1": {"text": "loaded", "color": GOOD, "index": 1},
                    },
                }
            ],
            unit="none",
            size=(4, 4),
        ),
    ]


def _sources() -> list[Json]:
    state = f"straggler_exporter_source_state{{{_WHERE}"
    code = union(
        [
            f'3 * (max by ({_BY}, source) ({state}, state="failed"}}) == 1)',
            f'2 * (max by ({_BY}, source) ({state}, state="stale"}}) == 1)',
            f'1 * (max by ({_BY}, source) ({state}, state="absent"}}) == 1)',
            f'0 * (max by ({_BY}, source) ({state}, state="ok"}}) == 1)',
        ]
    )
    ever = f'max_over_time({state}, state=~"failed|stale"}}[$__range] @ end())'
    troubled = f"topk(20, max by ({_BY}, source) ({ever}) > 0)"
    return [
        states(
            10,
            "Sources in trouble",
            "How each source was that failed or went stale in the time range, at most 20. stale: it answers, but what "
            "it says has stopped changing while the ranks step. failed: it is there and gives nothing; the exporter's "
            "log says why. What depends on it is absent meanwhile, not zero.",
            [query(f"({code})\nand on ({_BY}, source)\n{troubled}", "{{source}} on {{instance}}")],
            texts=SOURCE_STATES,
            unit="none",
            size=(14, 9),
            empty="no source failed or went stale",
        ),
        timeseries(
            11,
            "Sources by state",
            "All sources of all exporters, counted by state. Green should be all that are not absent.",
            [query(f"sum by (state) ({state}}})", "{{state}}")],
            stacked=True,
            unit="none",
            decimals=0,
            low=0,
            overrides=colours({"ok": GOOD, "absent": GREY, "stale": WARNING, "failed": CRITICAL}),
            size=(10, 9),
        ),
    ]


def _blindness() -> list[Json]:
    return [
        table(
            20,
            "What cannot be seen now",
            "Things that an exporter knows it does not see, with the reason. sm_active_absent: enable the profiling "
            "fields in dcgm-exporter's csv file; `straggler doctor` on the node prints the lines. Empty is good.",
            [
                query(
                    f"topk(50, sum by ({_BY}, source, reason) (straggler_exporter_blind{{{_WHERE}}}) > 0)",
                    table=True,
                )
            ],
            columns={
                "cluster": "cluster",
                "instance": "exporter",
                "source": "source",
                "reason": "reason",
                "Value #A": "things",
            },
            sort={"things": True},
            size=(12, 7),
            overrides=[override("things", unit="none", decimals=0, custom__width=90)],
            empty="nothing: all is seen",
        ),
        firing_alerts(21, 'cluster=~"$cluster", alertname=~"Straggler.+"', size=(12, 7), runs=True),
        timeseries(
            22,
            "Ranks without a GPU, by reason",
            "Living ranks that could not be matched. The hook says which GPU it uses only if the framework tells it; "
            "else the evidence must come from the pod or the bus id.",
            [query(f"sum by (run, reason) (straggler_exporter_ranks_without_gpu{{{_WHERE}}})", "{{run}}: {{reason}}")],
            unit="none",
            decimals=0,
            low=0,
            custom={"axisSoftMax": 1},
            size=(12, 6),
            empty="none",
        ),
        timeseries(
            23,
            "Ranks without own time, by reason",
            "Living ranks whose own time is absent. no_wait_phase: the loop does not mark its waiting. "
            "gpu_clock_missing: an asynchronous GPU timed by the host. Both are a line in the training script.",
            [
                query(
                    f"sum by (run, reason) (straggler_exporter_ranks_without_own_time{{{_WHERE}}})",
                    "{{run}}: {{reason}}",
                )
            ],
            unit="none",
            decimals=0,
            low=0,
            custom={"axisSoftMax": 1},
            size=(12, 6),
            empty="none",
        ),
    ]


def _intake() -> list[Json]:
    return [
        timeseries(
            30,
            "Refused, by reason",
            "Lines, files and pushes a second that were refused. A few after a restart are normal; a steady stream is "
            "a version that does not fit, a full tmpfs or a page that is not dcgm-exporter's. The log has an example.",
            [
                query(
                    f"sum by (source, reason) (rate(straggler_exporter_refused_total{{{_WHERE}}}{_RATE}))",
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
                query(f"sum(rate(straggler_exporter_records_read_total{{{_WHERE}}}{_RATE}))", "read"),
                query(f"sum(rate(straggler_exporter_records_missed_total{{{_WHERE}}}{_RATE}))", "missed"),
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
                query(f"max(straggler_exporter_scrape_seconds{{{_WHERE}}})", "slowest exporter"),
                query(f"quantile(0.5, straggler_exporter_scrape_seconds{{{_WHERE}}})", "median exporter"),
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
            [query(f"max by (source) (straggler_exporter_source_duration_seconds{{{_WHERE}}})", "{{source}}")],
            unit="s",
            low=0,
            size=(8, 7),
        ),
        timeseries(
            34,
            "Oldest facts, by source",
            "Age of the last look that gave facts, the oldest over all exporters. A ramp is a source that hangs or has "
            "failed since the ramp's foot.",
            [query(f"max by (source) (straggler_exporter_source_age_seconds{{{_WHERE}}})", "{{source}}")],
            unit="s",
            low=0,
            custom={"axisSoftMax": 60},
            size=(8, 7),
        ),
    ]


def build() -> Json:
    """The file ``exporter.json``."""
    return dashboard(
        EXPORTER_UID,
        "Straggler / Exporter",
        "Is the monitor blind: sources, refusals, ranks without a GPU or without own time.",
        variables=[
            query_variable("cluster", "Cluster", "label_values(straggler_exporter_build_info, cluster)", several=True),
            query_variable(
                "instance",
                "Exporter",
                'label_values(straggler_exporter_build_info{cluster=~"$cluster"}, instance)',
                several=True,
            ),
            RUNBOOKS,
        ],
        links=LINKS,
        panels=[
            *_headline(),
            *row(100, "Sources", _sources()),
            *row(101, "What is not seen", _blindness()),
            *row(102, "Intake and scrape", _intake()),
        ],
    )
