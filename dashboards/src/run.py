"""Run: one run, from the straggler's name to what it costs."""

from __future__ import annotations

from dashboards.src.charts import cause
from dashboards.src.grafana import Json, custom_variable, dashboard, query_variable, row
from dashboards.src.kinds import bars, heatmap, stat
from dashboards.src.panel import (
    BEHIND,
    CALM,
    CRITICAL,
    EXCESS,
    GOOD,
    LOST_STEPS,
    OWN,
    SLOWDOWN_STEPS,
    TIMES,
    WAIT,
    colours,
    fixed,
    override,
    override_query,
    query,
)
from dashboards.src.queries import (
    ABOUT_RUN,
    GROUP,
    RANK_OF_RESULT,
    RUN,
    RUN_LEVEL,
    SLOWEST,
    each_rank,
    ever_slowest,
    in_order,
    lost_gpus,
    lost_share,
    middle_rank,
    only,
    slowdown,
    slowest,
    slowest_rank,
)
from dashboards.src.run_over_time import phases, since_when, throughput
from dashboards.src.tables import (
    LINKS,
    RUN_UID,
    RUNBOOKS,
    alert_marks,
    firing_alerts,
    restart_marks,
    to_rank,
    worst_ranks,
)

_STEP = f"run:training_recent_step_seconds:mean{{{RUN_LEVEL}}}"
_STANDS = f"run:training_hung_ranks:count{{{RUN_LEVEL}}}"
_BEHIND = each_rank("run_rank:training_rank_arrivals:behind", RUN)
_MEDIAN = f"run:training_recent_own_seconds:median{{{RUN}}}"


def _headline() -> list[Json]:
    return [
        stat(
            1,
            "Slowest rank",
            "The rank with the longest own time beside its peers', and how many times as long it is. Green: no rank "
            "delays the others. From 1.10 one does, from 1.20 it pages. Next: the bars below must show the same rank "
            "with no waiting; then open it for the reason. While the run hangs, or after a crash, nobody is slow: "
            "then it counts the hung ranks, and names the one that is furthest behind in arrivals, if one is.",
            [
                query(
                    f"topk(1, {slowdown(RUN)}\nunless on (cluster, run) {_STANDS})",
                    "rank {{rank}} on {{rank_node}}",
                    instant=True,
                ),
                query(f"sum({_STANDS})", "hung ranks", instant=True),
                query(f"topk(1, {_BEHIND})", "rank {{rank}} on {{rank_node}}", instant=True),
            ],
            steps=SLOWDOWN_STEPS,
            unit=TIMES,
            decimals=2,
            loud=True,
            named=True,
            size=(6, 5),
            links=[to_rank("${__field.labels.rank}", runs=False)],
            overrides=[
                override("hung ranks", unit="none", decimals=0, color=fixed(CRITICAL)),
                override_query("C", unit=BEHIND, decimals=0, color=fixed(CRITICAL)),
            ],
            empty="own time is not measured",
        ),
        cause(7, SLOWEST, size=(4, 5), run=True),
        stat(
            2,
            "Share lost",
            "Work lost to waiting for each other, as a share of all GPUs: what the run would gain if all ranks were "
            "equal; all while it hangs. Some is normal, since no two steps take equally long. Orange from 5 %, red "
            "from 15 %.",
            [query(f"max({lost_share(RUN_LEVEL)})", instant=True)],
            unit="percentunit",
            decimals=1,
            steps=LOST_STEPS,
            size=(3, 5),
            empty="not measured",
        ),
        stat(
            3,
            "GPUs lost",
            "The same in GPUs: so many could be switched off and nothing would be missed.",
            [query(f"max({lost_gpus(RUN_LEVEL)})", instant=True)],
            decimals=1,
            steps=((None, CALM),),
            size=(3, 5),
            empty="not measured",
        ),
        stat(
            4,
            "Step",
            "Recent mean time of a step; all ranks share it. It tells that the run is slower, never who makes it so.",
            [query(f"max({_STEP})", instant=True)],
            unit="s",
            decimals=2,
            size=(3, 5),
            empty="no step yet",
        ),
        stat(
            5,
            "Ranks running",
            "Ranks that are running, and the number that the run was started with. Fewer: some hang, died, or are on "
            "a node that is not scraped.",
            [
                query(
                    f'count(max by (rank) (training_rank_state{{state="running", {RUN}}}) == 1) or vector(0)',
                    "running",
                    instant=True,
                ),
                query(f"max(training_world_size{{{RUN}}})", "started with", instant=True),
            ],
            decimals=0,
            named=True,
            size=(3, 5),
        ),
        stat(
            6,
            "Stopped",
            "Ranks that make no step any more, or died. Other than 0: see the alert and its runbook first.",
            [
                query(
                    f'count(max by (rank) (training_rank_state{{state=~"hung|crashed", {RUN}}}) == 1) or vector(0)',
                    instant=True,
                )
            ],
            steps=((None, GOOD), (1, CRITICAL)),
            decimals=0,
            size=(2, 5),
        ),
    ]


def _who() -> list[Json]:
    own = each_rank("training_recent_own_seconds", RUN)
    excess = f"clamp_min({own} - on ({GROUP}) group_left () {_MEDIAN}, 0)"
    worst = slowest(RUN, "24")
    return [
        bars(
            10,
            "Own time and waiting, by rank",
            "All ranks take the same step; what differs is how much of it is work. Blue: work as long as the median "
            "rank's. Red: work beyond that. Grey: waiting for others. The straggler is the bar with the red top and "
            "(nearly) no grey; everybody else's grey is that red. Grey on all bars alike is the exchange itself. At "
            "most 24 ranks, the slowest ones, by number.",
            [
                query(f"max by (order, rank) ({in_order(only(f'{own} - {excess}', worst))})", table=True),
                query(f"max by (order, rank) ({in_order(only(excess, worst))})", table=True),
                query(
                    f"max by (order, rank) ({in_order(only(each_rank('training_recent_wait_seconds', RUN), worst))})",
                    table=True,
                ),
            ],
            x="rank",
            columns=["own, as the median rank", "own, beyond it", "waiting"],
            order="order",
            stacked=True,
            unit="s",
            low=0,
            color={"mode": "palette-classic"},
            overrides=colours({"own, as the median rank": OWN, "own, beyond it": EXCESS, "waiting": WAIT}),
            size=(12, 12),
        ),
        heatmap(
            11,
            "Slowdown, rank by time",
            "One line for each rank, at most so many as chosen above: those that were slowest at any time. Faint is "
            "as fast as the peers; the red line is the straggler, and its left end is when it began. A red block of "
            "lines is a slow node; dots that jump from line to line are uneven batches; "
            "a column across all lines is one common stall.",
            [
                query(
                    in_order(only(slowdown(RUN), ever_slowest(RUN, "$ranks"))),
                    "rank {{rank}} {{rank_node}}",
                )
            ],
            low=0.96,
            high=1.3,
            size=(12, 12),
        ),
    ]


def build() -> Json:
    """The file ``run.json``."""
    return dashboard(
        RUN_UID,
        "Straggler / Run",
        "Who delays this run, since when, and what it costs.",
        variables=[
            query_variable("cluster", "Cluster", "label_values(training_rank_info, cluster)", several=True),
            query_variable("run", "Run", 'label_values(training_rank_info{cluster=~"$cluster"}, run)', several=False),
            query_variable(
                "peer_group",
                "Peer group",
                'label_values(training_rank_info{cluster=~"$cluster", run="$run"}, peer_group)',
                several=True,
                numeric=True,
            ),
            query_variable(
                "slowest", "Slowest rank", slowest_rank(RUN), several=False, hide=True, regex=RANK_OF_RESULT
            ),
            query_variable(
                "slowest_group",
                "Its peer group",
                f"label_values(training_rank_info{{{SLOWEST}}}, peer_group)",
                several=False,
                hide=True,
            ),
            query_variable(
                "typical",
                "Typical rank",
                middle_rank(f'{RUN_LEVEL}, peer_group="$slowest_group", rank!="$slowest"'),
                several=False,
                hide=True,
                regex=RANK_OF_RESULT,
            ),
            custom_variable("ranks", "Ranks shown", ("48", "16", "96", "256")),
            RUNBOOKS,
        ],
        links=LINKS,
        annotations=[alert_marks(ABOUT_RUN), restart_marks(RUN)],
        panels=[
            *_headline(),
            *_who(),
            *row(
                100,
                "Which machine",
                [
                    worst_ranks(12, RUN, count=8, size=(15, 8), runs=False),
                    firing_alerts(13, ABOUT_RUN, size=(9, 8), runs=False),
                ],
            ),
            *row(101, "Since when", since_when()),
            *row(102, "In which phase", phases()),
            *row(103, "Throughput and exchange", throughput()),
        ],
    )
