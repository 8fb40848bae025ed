"""Rank: why this one."""

from __future__ import annotations

from dashboards.src.charts import cause, phase_stack
from dashboards.src.columns import column, table
from dashboards.src.grafana import Json, dashboard, query_variable, row
from dashboards.src.kinds import stat, timeseries
from dashboards.src.panel import (
    CRITICAL,
    EXCESS,
    GOOD,
    GREY,
    OWN,
    SLOWDOWN_STEPS,
    TIMES,
    WARNING,
    dashed,
    fixed,
    override,
    query,
)
from dashboards.src.queries import (
    ABOUT_THIS,
    COMPARED,
    PEERS,
    RANK_OF_RESULT,
    THIS,
    each_rank,
    middle_rank,
    named,
    slowdown,
)
from dashboards.src.rank_differences import differences
from dashboards.src.rank_gpu import gpu, links
from dashboards.src.rank_host import host
from dashboards.src.rank_network import nccl, ports
from dashboards.src.tables import (
    LINKS,
    RANK_UID,
    RUNBOOKS,
    alert_marks,
    firing_alerts,
    restart_marks,
)

_STATES = {"running": GOOD, "hung": WARNING, "crashed": CRITICAL, "finished": GREY, "unseen": "purple"}
_IN_GROUP = 'cluster=~"$cluster", run="$run", peer_group="$peer_group"'


def _now(metric: str) -> list[Json]:
    """This rank's value, and the median of its peers."""
    return [
        query(f"max({metric}{{{THIS}}})", "this rank", instant=True),
        query(f"quantile(0.5, {each_rank(metric, PEERS)})", "peers' median", instant=True),
    ]


def _headline() -> list[Json]:
    return [
        stat(
            1,
            "Slowdown",
            "Own time over that of the peers. From 1.10 this rank delays all others, from 1.20 it pages. Green: it is "
            "not this one; take the slowest rank from the Run dashboard.",
            [query(slowdown(THIS), "rank {{rank}} on {{rank_node}}", instant=True)],
            steps=SLOWDOWN_STEPS,
            unit=TIMES,
            decimals=2,
            loud=True,
            named=True,
            size=(6, 5),
            empty="own time is not measured",
        ),
        cause(7, THIS, size=(5, 5), run=False),
        stat(
            2,
            "Own time",
            "Recent mean own time of a step. Longer than the peers': this rank is the one they wait for.",
            _now("training_recent_own_seconds"),
            unit="s",
            decimals=2,
            named=True,
            size=(5, 5),
        ),
        stat(
            3,
            "Waiting",
            "Recent mean time blocked on peers in a step. A straggler waits less than the others; a rank that waits "
            "more is a victim.",
            _now("training_recent_wait_seconds"),
            unit="s",
            decimals=2,
            named=True,
            size=(5, 5),
        ),
        stat(
            5,
            "State",
            "What the rank's ring and lock say. hung: no step for too long; crashed: gone without a goodbye; "
            "unseen: no exporter tells of it.",
            [
                query(
                    f"max by (state) (training_rank_state{{{THIS}}}) == 1\nor on ()\n"
                    f"{named('vector(0)', 'state', 'unseen')}",
                    "{{state}}",
                    instant=True,
                )
            ],
            unit="none",
            words=True,
            size=(3, 5),
            overrides=[override(state, color=fixed(colour)) for state, colour in _STATES.items()],
        ),
    ]


def _identity() -> Json:
    return table(
        6,
        "Where it is",
        "The machine, the GPU and the process behind this rank. Evidence says how the GPU was found; without it "
        "the GPU panels below are empty. Two lines: the rank moved or was restarted within the last minutes.",
        [
            query(
                "group by (rank_node, gpu, UUID, pci_bus_id, gpu_model, rank_pod, slurm_job, rank_user, framework,"
                f" clock, own_reason, evidence) (training_rank_info{{{THIS}}})",
                table=True,
            )
        ],
        columns=[
            column(source, heading, width, noValue="-")
            for source, heading, width in (
                ("rank_node", "node", 150),
                ("gpu", "GPU", 50),
                ("UUID", "GPU UUID", 345),
                ("pci_bus_id", "PCI bus", 155),
                ("gpu_model", "model", 200),
                ("rank_pod", "pod", 160),
                ("slurm_job", "Slurm job", 95),
                ("rank_user", "user", 80),
                ("framework", "framework", 120),
                ("clock", "clock", 65),
                ("own_reason", "own time", 100),
                ("evidence", "evidence", 85),
            )
        ],
        size=(24, 4),
        empty="nobody reports this rank",
    )


def _since_when() -> list[Json]:
    return [
        timeseries(
            20,
            "Slowdown",
            "Own time over the peers' since when. The dashed lines are the warning (1.10) and the critical (1.20) "
            "ratio. A step is an event: a fault, a new neighbour. A slope is heat or a leak. A comb is the loader.",
            [query(slowdown(THIS), "this rank")],
            unit="none",
            decimals=2,
            steps=((None, "transparent"), (1.10, WARNING), (1.20, CRITICAL)),
            lines=True,
            custom={"axisSoftMin": 0.95, "axisSoftMax": 1.25},
            overrides=[override("this rank", color=fixed(EXCESS))],
        ),
        timeseries(
            21,
            "Own time against the peers",
            "Mean and median own time of this rank, and the median of the peers. Mean far above the median: single "
            "long stalls, not a slow machine.",
            [
                query(f"max(training_recent_own_seconds{{{THIS}}})", "mean of this rank"),
                query(f"max(training_recent_own_median_seconds{{{THIS}}})", "median of this rank"),
                query(f"max(run:training_recent_own_seconds:median{{{_IN_GROUP}}})", "median of the peers"),
            ],
            unit="s",
            low=0,
            overrides=[
                override("mean of this rank", color=fixed(EXCESS)),
                override("median of this rank", color=fixed(OWN)),
                dashed("median of the peers", GREY),
            ],
        ),
    ]


def _phases() -> list[Json]:
    return [
        phase_stack(
            30,
            "Phases of rank $rank",
            "Where this rank spends a step. Compare with the panel beside it: what is thicker here takes longer.",
            THIS,
        ),
        phase_stack(
            31,
            "Phases of rank $compared, compared with it",
            "The same for the rank chosen above: unless you choose another, one that is as fast as the middle of the "
            "peers. Its grey wait is what this rank costs it.",
            COMPARED,
        ),
    ]


def build() -> Json:
    """The file ``rank.json``."""
    return dashboard(
        RANK_UID,
        "Straggler / Rank",
        "Why this rank is slow: its phases, its GPU and its links against its peers.",
        variables=[
            query_variable("cluster", "Cluster", "label_values(training_rank_info, cluster)", several=True),
            query_variable("run", "Run", 'label_values(training_rank_info{cluster=~"$cluster"}, run)', several=False),
            query_variable(
                "rank",
                "Rank",
                'label_values(training_rank_info{cluster=~"$cluster", run="$run"}, rank)',
                several=False,
                numeric=True,
            ),
            query_variable(
                "peer_group",
                "Peer group",
                f"label_values(training_rank_info{{{THIS}}}, peer_group)",
                several=False,
                hide=True,
            ),
            query_variable(
                "compared",
                "Compared with",
                middle_rank(PEERS),
                several=False,
                regex=RANK_OF_RESULT,
            ),
            query_variable(
                "uuid", "GPU", f"label_values(training_rank_info{{{THIS}}}, UUID)", several=False, hide=True
            ),
            query_variable(
                "compared_uuid",
                "GPU compared with",
                f"label_values(training_rank_info{{{COMPARED}}}, UUID)",
                several=False,
                hide=True,
            ),
            query_variable(
                "node", "Node", f"label_values(training_rank_info{{{THIS}}}, rank_node)", several=False, hide=True
            ),
            RUNBOOKS,
        ],
        links=LINKS,
        annotations=[alert_marks(ABOUT_THIS), restart_marks(THIS)],
        panels=[
            *_headline(),
            _identity(),
            *differences(),
            *row(100, "Since when", [*_since_when(), firing_alerts(22, ABOUT_THIS, size=(24, 5), runs=False)]),
            *row(101, "Phases", _phases()),
            *row(102, "GPU", gpu()),
            *row(104, "Host", host()),
            *row(105, "Network: the ports of its node, and NCCL", [*ports(), *nccl()]),
            *row(103, "PCIe, NVLink, memory and errors", links()),
        ],
    )
