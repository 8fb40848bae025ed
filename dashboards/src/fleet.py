"""Fleet: which runs lose what."""

from __future__ import annotations

from dashboards.src.charts import utilization
from dashboards.src.columns import column, table
from dashboards.src.grafana import Json, dashboard, query_variable, row
from dashboards.src.kinds import stat, states, timeseries
from dashboards.src.panel import (
    CRITICAL,
    GOOD,
    GREY,
    LOST_STEPS,
    WARNING,
    query,
    thresholds,
    value_texts,
)
from dashboards.src.queries import FLEET, lost_gpus, lost_share, slowdown, union
from dashboards.src.tables import (
    COLOURED_CELL,
    FLEET_UID,
    LINKS,
    RUNBOOKS,
    alert_marks,
    firing_alerts,
    run_column,
    seconds_column,
    slowdown_column,
    worst_ranks,
)

STATES = {
    "0": ("running", GOOD),
    "1": ("rank unseen", "purple"),
    "2": ("straggler", WARNING),
    "3": ("hung", "dark-orange"),
    "4": ("crashed", CRITICAL),
    "5": ("ended", GREY),
}
"""The worst that can be said of a run."""

_VERDICT = union(
    [
        f"0 * max by (cluster, run) (run_rank:training_crashed:arrivals_behind{{{FLEET}}}) + 4",
        f"0 * run:training_hung_ranks:count{{{FLEET}}} + 3",
        f"0 * max by (cluster, run) (run:training_slow_ranks:count{{{FLEET}}}) + 2",
        f"0 * run:training_ranks_unseen:count{{{FLEET}}} + 1",
        f"0 * run:training_ranks_alive:count{{{FLEET}}}",
        f'0 * sum by (cluster, run) (run:training_rank_state:count{{state=~"finished|crashed", {FLEET}}}) + 5',
    ]
)
_LOST = lost_gpus(FLEET)
_LOST_HOURS = f"max by (cluster, run) (run:training_lost_gpu_seconds:since_start{{{FLEET}}}) / 3600"
_ALIVE = f"run:training_ranks_alive:count{{{FLEET}}}"


def _weighted(metric: str) -> str:
    """The mean over all GPUs of the fleet from the means of the runs."""
    return f"sum({metric}{{{FLEET}}} * on (cluster, run) {_ALIVE})\n/ sum({_ALIVE} and on (cluster, run) {metric})"


def _headline() -> list[Json]:
    return [
        stat(
            1,
            "GPUs lost now",
            "GPUs' worth of work that is lost because all ranks wait for the slowest one, summed over the runs; of a "
            "run that hangs, all. 4 means that four GPUs could be switched off and nothing would be missed. Orange "
            "from 2, red from 8: the tables below say in which run, and which rank it is.",
            [query(f"sum({_LOST})", instant=True)],
            steps=((None, GOOD), (2, WARNING), (8, CRITICAL)),
            decimals=1,
            loud=True,
            size=(5, 4),
            empty="no run reports",
        ),
        stat(
            2,
            "Share lost",
            "The same as a share of the GPUs in training. Some waiting is normal, since no two steps take equally "
            "long. Orange from 5 %, red from 15 %.",
            [query(f"sum({_LOST}) / sum({_ALIVE})", instant=True)],
            unit="percentunit",
            decimals=1,
            steps=LOST_STEPS,
            size=(4, 4),
            empty="no run reports",
        ),
        stat(
            3,
            "GPU-hours lost",
            "GPUs lost, added up: over the time range that you look at, and since the living runs began (at most as "
            "long as Prometheus remembers). Multiply by the price of a GPU-hour.",
            [
                query(f"sum(sum_over_time({_LOST}[$__range:1m])) / 60", "in this time range", instant=True),
                query(f"sum({_LOST_HOURS})", "since the start", instant=True),
            ],
            decimals=1,
            named=True,
            size=(5, 4),
            empty="no run reports",
        ),
        stat(
            4,
            "GPUs in training",
            "Ranks that live now. Fewer than before: Runs by state tells which run ended.",
            [query(f"sum({_ALIVE})", instant=True)],
            decimals=0,
            size=(3, 4),
            empty="0",
        ),
        stat(
            5,
            "Runs with a straggler",
            "Runs in which a rank is slower than its peers by 10 % or more, and of all runs.",
            [
                query(
                    f"count(max by (cluster, run) (run:training_slow_ranks:count{{{FLEET}}})) or vector(0)",
                    instant=True,
                )
            ],
            steps=((None, GOOD), (1, WARNING)),
            decimals=0,
            size=(4, 4),
        ),
        stat(
            6,
            "Hung or crashed",
            "Runs in which ranks hang, or have crashed while others live. These first: such a run burns all its GPUs.",
            [
                query(
                    f"count(max by (cluster, run) (run:training_hung_ranks:count{{{FLEET}}}\n"
                    f"or run_rank:training_crashed:arrivals_behind{{{FLEET}}})) or vector(0)",
                    instant=True,
                )
            ],
            steps=((None, GOOD), (1, CRITICAL)),
            decimals=0,
            size=(3, 4),
        ),
    ]


def _runs() -> list[Json]:
    return [
        table(
            10,
            "Runs",
            "One line for each run, the most costly first. Share lost is what the run would gain if all ranks were "
            "equal; GPU-hours lost is since its start; slowest rank is that rank's slowdown; MFU is what the model "
            "computes as a share of what its GPUs could. Click the run.",
            [
                query(_VERDICT, table=True),
                query(_LOST, table=True),
                query(lost_share(FLEET), table=True),
                query(f"max by (cluster, run) ({slowdown(FLEET)})", table=True),
                query(f"max by (cluster, run) ({_ALIVE})", table=True),
                query(f"max by (cluster, run) (run:training_recent_step_seconds:mean{{{FLEET}}})", table=True),
                query(_LOST_HOURS, table=True),
                query(f"max by (cluster, run) (run:training_flops:mfu_ratio{{{FLEET}}})", table=True),
            ],
            columns=[
                run_column(135),
                column("Value #A", "state", 100, mappings=value_texts(STATES), custom__cellOptions=COLOURED_CELL),
                column("Value #B", "GPUs lost", 95, unit="short", decimals=1, noValue="-"),
                column(
                    "Value #C",
                    "share lost",
                    unit="percentunit",
                    decimals=1,
                    noValue="-",
                    min=0,
                    max=0.5,
                    custom__cellOptions={"type": "gauge", "mode": "basic", "valueDisplayMode": "text"},
                    color={"mode": "thresholds"},
                    thresholds=thresholds(LOST_STEPS),
                ),
                column("Value #G", "GPU-hours lost", 120, unit="short", decimals=1, noValue="-"),
                slowdown_column("Value #D", "slowest rank", 105),
                column("Value #E", "ranks", 60, unit="short", decimals=0, noValue="0"),
                seconds_column("Value #F", "step"),
                column("Value #H", "MFU", 65, unit="percentunit", decimals=0, noValue="-"),
                column("cluster", width=85, noValue="-"),
            ],
            sort={"GPUs lost": True},
            size=(16, 8),
            empty="no run reports",
        ),
        states(
            11,
            "Runs by state",
            "The worst that can be said of each run at each moment. Orange: a rank is slow. Dark orange: ranks make no "
            "step. Red: a rank died while others live. Purple: ranks are not seen although the run steps.",
            [query(_VERDICT, "{{run}}")],
            texts=STATES,
            size=(8, 8),
        ),
    ]


def _cost() -> list[Json]:
    worst = f"topk(10, sum_over_time(run:training_lost_gpu_seconds:per_second{{{FLEET}}}[$__range] @ end()))"
    return [
        timeseries(
            20,
            "GPUs lost, by run",
            "GPUs' worth of work lost to waiting; the ten runs that lost most in the time range. A step up is the "
            "moment at which a rank became slow: compare with the alerts, drawn in red.",
            [query(f"{_LOST}\nand on (cluster, run) {worst}", "{{run}}")],
            stacked=True,
            low=0,
            custom={"axisSoftMax": 2},
        ),
        utilization(
            21,
            _weighted("run:training_gpu_utilization_ratio:mean"),
            _weighted("run:training_gpu_sm_active_ratio:mean"),
            size=(12, 8),
        ),
    ]


def build() -> Json:
    """The file ``fleet.json``."""
    return dashboard(
        FLEET_UID,
        "Straggler / Fleet",
        "Which training runs lose GPUs to a slow rank, and which rank it is.",
        variables=[
            query_variable("cluster", "Cluster", "label_values(training_rank_info, cluster)", several=True),
            query_variable("run", "Run", 'label_values(training_rank_info{cluster=~"$cluster"}, run)', several=True),
            RUNBOOKS,
        ],
        links=LINKS,
        annotations=[alert_marks(FLEET)],
        panels=[
            *_headline(),
            worst_ranks(30, FLEET, count=15, size=(14, 9), runs=True),
            firing_alerts(31, FLEET, size=(10, 9), runs=True),
            *row(100, "Runs", _runs()),
            *row(101, "What it costs", _cost()),
        ],
    )
