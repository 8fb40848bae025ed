"""Tables and columns that stand on more than one dashboard, and the links between the dashboards."""

from __future__ import annotations

from dashboards.src.columns import Column, column, table
from dashboards.src.grafana import Json, annotation, constant_variable, link
from dashboards.src.panel import (
    CAUSES,
    CRITICAL,
    SLOWDOWN_CELL_STEPS,
    TIMES,
    WARNING,
    query,
    thresholds,
    value_texts,
)
from dashboards.src.queries import RANK, alerts, causes, each_rank, only, slowdown

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


def run_column(width: int | None = None) -> Column:
    """The run, and the way to it."""
    return column("run", width=width, noValue="-", links=[TO_RUN])


def rank_column(*, runs: bool) -> Column:
    """The rank, and the way to the reason. ``runs``: see ``to_rank``."""
    return column("rank", width=55, noValue="-", links=[to_rank(_RANK_OF_ROW, runs=runs)])


def since_column(value: str, heading: str) -> Column:
    """A moment, in milliseconds since 1970, as "33 minutes ago"."""
    return column(value, heading, 118, unit="dateTimeFromNow", noValue="-")


def slowdown_column(value: str, heading: str, width: int) -> Column:
    """Own time over the peers', coloured where it is slow."""
    return column(
        value,
        heading,
        width,
        unit=TIMES,
        decimals=2,
        noValue="-",
        custom__cellOptions=COLOURED_CELL,
        color={"mode": "thresholds"},
        thresholds=thresholds(SLOWDOWN_CELL_STEPS),
    )


def seconds_column(value: str, heading: str) -> Column:
    """Seconds a step."""
    return column(value, heading, 88, unit="s", decimals=2, noValue="-")


_CLUSTER = column("cluster", width=100, noValue="-")
_NODE = column("rank_node", "node", 145, noValue="-")


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
        "1.20 it pages. It works longer and waits less: a slow rank with a long wait is a victim, not the cause. The "
        "cause is what explains most of the gap; unknown says that nothing which is measured does. Click the rank for "
        "the numbers, then drain the node or cap the others.",
        [
            query(worst, table=True),
            query(only(each_rank("training_recent_own_seconds", selector), worst), table=True),
            query(only(each_rank("training_recent_wait_seconds", selector), worst), table=True),
            query(only(identity, worst), table=True),
            query(since, table=True),
            query(only(causes(selector), worst), table=True),
        ],
        columns=[
            *([run_column(130)] if runs else []),
            rank_column(runs=runs),
            slowdown_column("Value #A", "slowdown", 95),
            column("cause", width=110, noValue="-", mappings=value_texts(CAUSES)),
            since_column("Value #E", "slow since"),
            _NODE,
            column("gpu", "GPU", 50),
            seconds_column("Value #B", "own time"),
            seconds_column("Value #C", "waits"),
            column("UUID", "GPU UUID", 325),
            column("rank_pod", "pod", 160),
            *([_CLUSTER] if runs else []),
            column("peer_group", "peer group", 100),
        ],
        sort={"slowdown": True},
        size=size,
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
        columns=[
            column("severity", width=72, mappings=SEVERITIES, custom__cellOptions=COLOURED_CELL),
            column("alertname", "alert", 160, links=[TO_RUNBOOK]),
            since_column("Value #A", "since"),
            *([run_column(105)] if runs else []),
            rank_column(runs=runs),
            column("rank_node", "node", noValue="-"),
            *([_CLUSTER] if runs else []),
        ],
        sort={"severity": False, "since": False},
        size=size,
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
