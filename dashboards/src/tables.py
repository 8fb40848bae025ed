"""Panels that stand on more than one dashboard, and the links between the dashboards."""

from __future__ import annotations

from dashboards.src.grafana import Json, annotation, constant_variable, link
from dashboards.src.kinds import table
from dashboards.src.panel import (
    CRITICAL,
    SLOWDOWN_CELL_STEPS,
    TIMES,
    WARNING,
    override,
    query,
    thresholds,
    value_texts,
)
from dashboards.src.queries import RANK, alerts, each_rank, only, slowdown

FLEET_UID, RUN_UID, RANK_UID, EXPORTER_UID = "straggler-fleet", "straggler-run", "straggler-rank", "straggler-exporter"

LINKS = (
    link("Fleet", FLEET_UID),
    link("Run", RUN_UID),
    link("Rank", RANK_UID),
    link("Exporter", EXPORTER_UID),
)

_KEEP = "${datasource:queryparam}&${__url_time_range}"
"""Every link inside a table keeps the data source and the time range."""
_RUN_OF_ROW = "var-cluster=${__data.fields.cluster}&var-run=${__data.fields.run}"
"""Without a ``cluster`` label the value is empty, and Grafana falls back to All."""

_RUN_CHOSEN = "${cluster:queryparam}&${run:queryparam}"
"""Where the dashboard is about one run, and rows do not repeat it."""

TO_RUN: Json = {"title": "Open the run", "url": f"/d/{RUN_UID}?{_KEEP}&{_RUN_OF_ROW}"}
TO_RUNBOOK: Json = {"title": "Runbook", "url": "${runbooks}/${__data.fields.alertname}", "targetBlank": True}

RUNBOOKS = constant_variable("runbooks", "https://runbooks.example/straggler")
"""Where the runbooks are published: the same base as in the alerts' ``runbook_url``."""


def to_rank(rank: str, *, runs: bool) -> Json:
    """A link to why a rank is slow.

    Args:
        rank: Grafana's expression for its number.
        runs: whether the row says of which run it is.
    """
    run = _RUN_OF_ROW if runs else _RUN_CHOSEN
    return {"title": "Why this rank", "url": f"/d/{RANK_UID}?{_KEEP}&{run}&var-rank={rank}"}


_RANK_OF_ROW = "${__data.fields.rank}"

COLOURED_CELL: Json = {"type": "color-background", "mode": "basic"}

SEVERITIES = value_texts(
    {"critical": ("critical", CRITICAL), "warning": ("warning", WARNING), "info": ("info", "blue")}
)


def worst_ranks(number: int, selector: str, *, count: int, size: tuple[int, int], runs: bool) -> Json:
    """The slowest ranks now, with all that is needed to find the machine.

    Args:
        number: panel id.
        selector: which ranks.
        count: how many rows at most.
        size: width and height.
        runs: whether ranks of several runs can be among them.
    """
    worst = f"topk({count}, {slowdown(selector)})"
    identity = f"group by ({RANK}, gpu, UUID, rank_pod) (training_rank_info{{{selector}}})"
    since = f'1000 * min by ({RANK}) (ALERTS_FOR_STATE{{alertname="TrainingStraggler", {selector}}})'
    return table(
        number,
        "Slowest ranks now",
        "The ranks whose own time is longest beside their peers'. From 1.10 a rank delays all others (warning), from "
        "1.20 it pages. It works longer and waits less: a slow rank with a long wait is a victim, not the cause. Click "
        "the rank for the reason, then drain the node or cap the others.",
        [
            query(worst, table=True),
            query(only(each_rank("training_recent_own_seconds", selector), worst), table=True),
            query(only(each_rank("training_recent_wait_seconds", selector), worst), table=True),
            query(only(identity, worst), table=True),
            query(since, table=True),
        ],
        columns={
            **({"run": "run"} if runs else {}),
            "rank": "rank",
            "Value #A": "slowdown",
            "Value #E": "slow since",
            "rank_node": "node",
            "gpu": "GPU",
            "Value #B": "own time",
            "Value #C": "waits",
            "UUID": "GPU UUID",
            "rank_pod": "pod",
            **({"cluster": "cluster"} if runs else {}),
            "peer_group": "peer group",
        },
        sort={"slowdown": True},
        size=size,
        overrides=[
            override(
                "slowdown",
                unit=TIMES,
                decimals=2,
                custom__cellOptions=COLOURED_CELL,
                color={"mode": "thresholds"},
                thresholds=thresholds(SLOWDOWN_CELL_STEPS),
                custom__width=95,
            ),
            override("rank", links=[to_rank(_RANK_OF_ROW, runs=runs)], custom__width=60),
            *([override("run", links=[TO_RUN], custom__width=140)] if runs else []),
            override("node", custom__width=150),
            override("GPU", custom__width=50),
            override("own time", unit="s", decimals=2, noValue="-", custom__width=85),
            override("waits", unit="s", decimals=2, noValue="-", custom__width=95),
            override("slow since", unit="dateTimeFromNow", noValue="-", custom__width=130),
            override("GPU UUID", custom__width=325),
            override("pod", custom__width=160),
            *([override("cluster", custom__width=100)] if runs else []),
            override("peer group", custom__width=100),
        ],
        empty="no rank reports its own time",
    )


def firing_alerts(number: int, selector: str, *, size: tuple[int, int], runs: bool) -> Json:
    """What fires now, with the runbook a click away.

    Args:
        number: panel id.
        selector: which alerts.
        size: width and height.
        runs: whether alerts of several runs can be among them.
    """
    return table(
        number,
        "Firing alerts",
        "What Prometheus fires now: critical before warning, the oldest first. Click the alert for its runbook and "
        "the rank for the reason. A hang or a crash explains the stragglers beside it: begin there. Empty is good, if "
        "the Exporter dashboard says that the rules are loaded.",
        [query(alerts(selector), table=True)],
        columns={
            "severity": "severity",
            "alertname": "alert",
            "Value #A": "since",
            **({"run": "run"} if runs else {}),
            "rank": "rank",
            "rank_node": "node",
            **({"cluster": "cluster"} if runs else {}),
        },
        sort={"severity": False, "since": False},
        size=size,
        overrides=[
            override(
                "severity",
                mappings=SEVERITIES,
                custom__cellOptions=COLOURED_CELL,
                custom__width=80,
            ),
            override("alert", links=[TO_RUNBOOK], custom__width=170),
            override("since", unit="dateTimeFromNow", custom__width=120),
            *([override("run", links=[TO_RUN], noValue="-", custom__width=120)] if runs else []),
            override("rank", links=[to_rank(_RANK_OF_ROW, runs=runs)], noValue="-", custom__width=50),
            override("node", noValue="-", custom__width=120),
            *([override("cluster", noValue="-", custom__width=100)] if runs else []),
        ],
        empty="nothing fires",
    )


def alert_marks(selector: str) -> Json:
    """The moments at which alerts began to fire, on all time axes. Not for how long: that would tint everything."""
    firing = f'ALERTS{{alertstate="firing", alertname=~"Training.+", {selector}}}'
    labels = f"alertname, severity, {RANK}"
    return annotation(
        "Alerts",
        f"max by ({labels}) ({firing})\nunless max by ({labels}) ({firing} offset 1m)",
        title="{{alertname}}",
        text="rank {{rank}} on {{rank_node}}",
        colour="red",
    )


def restart_marks(selector: str) -> Json:
    """Starts of a run, as its counters show them: a new process begins at zero."""
    return annotation(
        "Restarts",
        f"sum by (cluster, run) (resets(training_step_seconds_count{{{selector}}}[2m])) > 0",
        title="{{run}} restarted",
        text="the step counters of its ranks began anew",
        colour="blue",
    )
