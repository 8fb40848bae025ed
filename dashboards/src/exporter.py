"""Exporter: is the monitor blind."""

from __future__ import annotations

from dashboards.src.columns import column, table
from dashboards.src.exporter_intake import WHERE, intake
from dashboards.src.grafana import Json, dashboard, query_variable, row
from dashboards.src.kinds import bars, stat, states, timeseries
from dashboards.src.panel import (
    CRITICAL,
    GOOD,
    GREY,
    WARNING,
    colours,
    query,
)
from dashboards.src.queries import union
from dashboards.src.tables import EXPORTER_UID, LINKS, RUNBOOKS, firing_alerts

_BY = "cluster, instance"

SOURCE_STATES = {
    "0": ("ok", GOOD),
    "1": ("absent", GREY),
    "2": ("stale", WARNING),
    "3": ("failed", CRITICAL),
}


def _count(metric: str) -> str:
    return f"sum({metric}{{{WHERE}}}) or vector(0)"


def _headline() -> list[Json]:
    return [
        stat(
            1,
            "Exporters down",
            "Targets that served the exporter's page within the last day and cannot be scraped now. Their ranks are "
            "unseen, not healthy. See StragglerExporterDown.",
            [
                query(
                    f"count(up{{{WHERE}}} == 0 and on (cluster, job, instance)\n"
                    f"last_over_time(straggler_exporter_build_info{{{WHERE}}}[1d])) or vector(0)",
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
            [query(f"count(straggler_exporter_build_info{{{WHERE}}})", instant=True)],
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
                    f'sum(straggler_exporter_source_state{{state=~"failed|stale", {WHERE}}}) or vector(0)',
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
    state = f"straggler_exporter_source_state{{{WHERE}"
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
    each = {"ok": GOOD, "stale": WARNING, "failed": CRITICAL, "absent": GREY}
    return [
        bars(
            12,
            "Sources now",
            "Each source over all exporters, by state. rings and dcgm are needed: all green. nvml and host need the "
            "driver and the host's /proc; infiniband an adapter; nccl NCCL_DEBUG=INFO and a directory for its logs; "
            "push the HTTP listener. Absent (grey) is normal where there is no such thing; `straggler doctor` says "
            "which it is.",
            [
                query(f'sum by (source) (max by ({_BY}, source) ({state}, state="{name}"}}))', table=True)
                for name in each
            ],
            x="source",
            columns=list(each),
            stacked=True,
            horizontal=True,
            unit="none",
            decimals=0,
            low=0,
            overrides=colours(each),
            size=(8, 9),
        ),
        states(
            10,
            "Sources in trouble",
            "How each source was that failed or went stale in the time range, at most 20. stale: it answers, but what "
            "it says has stopped changing while the ranks step. failed: it is there and gives nothing; the exporter's "
            "log says why. What depends on it is absent meanwhile, not zero.",
            [query(f"({code})\nand on ({_BY}, source)\n{troubled}", "{{source}} on {{instance}}")],
            texts=SOURCE_STATES,
            unit="none",
            size=(9, 9),
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
            size=(7, 9),
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
                    f"topk(50, sum by ({_BY}, source, reason) (straggler_exporter_blind{{{WHERE}}}) > 0)",
                    table=True,
                )
            ],
            columns=[
                column("cluster", width=100, noValue="-"),
                column("instance", "exporter", 190),
                column("source", width=110),
                column("reason"),
                column("Value #A", "things", 80, unit="none", decimals=0),
            ],
            sort={"things": True},
            size=(12, 7),
            empty="nothing: all is seen",
        ),
        firing_alerts(21, 'cluster=~"$cluster", alertname=~"Straggler.+"', size=(12, 7), runs=True),
        timeseries(
            22,
            "Ranks without a GPU, by reason",
            "Living ranks that could not be matched. The hook says which GPU it uses only if the framework tells it; "
            "else the evidence must come from the pod or the bus id.",
            [query(f"sum by (run, reason) (straggler_exporter_ranks_without_gpu{{{WHERE}}})", "{{run}}: {{reason}}")],
            unit="none",
            decimals=0,
            low=0,
            custom={"axisSoftMax": 1},
            size=(8, 6),
            empty="none",
        ),
        timeseries(
            23,
            "Ranks without own time, by reason",
            "Living ranks whose own time is absent. no_wait_phase: the loop does not mark its waiting. "
            "gpu_clock_missing: an asynchronous GPU timed by the host. Both are a line in the training script.",
            [
                query(
                    f"sum by (run, reason) (straggler_exporter_ranks_without_own_time{{{WHERE}}})",
                    "{{run}}: {{reason}}",
                )
            ],
            unit="none",
            decimals=0,
            low=0,
            custom={"axisSoftMax": 1},
            size=(8, 6),
            empty="none",
        ),
        timeseries(
            24,
            "NCCL logs",
            "Logs that are followed, and ranks in them that could not be told for a rank of the node, by reason. "
            "no_such_process after a restart is the attempt before. other_node or no_host: the logs lack the host's "
            "name, set NCCL_DEBUG_FILE with %h and %p.",
            [
                query(f"sum(straggler_exporter_nccl_logs{{{WHERE}}})", "followed"),
                query(f"sum by (reason) (straggler_exporter_nccl_unlinked{{{WHERE}}})", "{{reason}}"),
            ],
            unit="none",
            decimals=0,
            low=0,
            custom={"axisSoftMax": 1},
            size=(8, 6),
            overrides=colours({"followed": GOOD}),
            empty="no logs are followed",
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
            *row(102, "Intake and scrape", intake()),
        ],
    )
