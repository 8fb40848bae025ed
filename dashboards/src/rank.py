"""Rank: why this one."""

from __future__ import annotations

from dashboards.src.grafana import Json, dashboard, query_variable, row
from dashboards.src.kinds import bars, stat, table, timeseries
from dashboards.src.panel import (
    CRITICAL,
    EXCESS,
    GOOD,
    GREY,
    OWN,
    SLOWDOWN_STEPS,
    TIMES,
    WARNING,
    colours,
    fixed,
    override,
    query,
)
from dashboards.src.queries import (
    COMPARED,
    PEERS,
    RANK_OF_RESULT,
    RUN_LEVEL,
    THIS,
    each_rank,
    middle_rank,
    named,
    on_gpu_of,
    phases_of_each,
    phases_per_step,
    slowdown,
    union,
)
from dashboards.src.rank_gpu import gpu, links
from dashboards.src.run_over_time import PHASES
from dashboards.src.tables import LINKS, RANK_UID, RUNBOOKS, alert_marks, firing_alerts, restart_marks

_DASHES = {"fill": "dash", "dash": [8, 6]}
_IN_GROUP = 'cluster=~"$cluster", run="$run", peer_group="$peer_group"'


def _now(metric: str) -> list[Json]:
    """This rank's value, and the median of its peers."""
    return [
        query(f"max({metric}{{{THIS}}})", "this rank", instant=True),
        query(f"quantile(0.5, {each_rank(metric, PEERS)})", "median of the peers", instant=True),
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
            4,
            "SM clock",
            "Clock of the GPU's multiprocessors. Lower than the peers' in the proportion of the slowdown: the GPU is "
            "throttled, see the reasons below.",
            _now("training_gpu_sm_clock_hertz"),
            unit="hertz",
            decimals=2,
            empty="not reported",
            named=True,
            size=(5, 5),
        ),
        stat(
            5,
            "State",
            "What the rank's ring and lock say. hung: no step for too long; crashed: gone without a goodbye.",
            [query(f"max by (state) (training_rank_state{{{THIS}}}) == 1", "{{state}}", instant=True)],
            unit="none",
            words=True,
            size=(3, 5),
            overrides=[
                override(state, color=fixed(colour))
                for state, colour in {"running": GOOD, "hung": WARNING, "crashed": CRITICAL, "finished": GREY}.items()
            ],
            empty="unseen",
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
        columns={
            "rank_node": "node",
            "gpu": "GPU",
            "UUID": "GPU UUID",
            "pci_bus_id": "PCI bus",
            "gpu_model": "model",
            "rank_pod": "pod",
            "slurm_job": "Slurm job",
            "rank_user": "user",
            "framework": "framework",
            "clock": "clock",
            "own_reason": "own time",
            "evidence": "evidence",
        },
        size=(24, 4),
        overrides=[
            override(column, noValue="-", custom__width=width)
            for column, width in {
                "node": 150,
                "GPU": 50,
                "GPU UUID": 345,
                "PCI bus": 155,
                "model": 200,
                "pod": 160,
                "Slurm job": 95,
                "user": 80,
                "framework": 120,
                "clock": 65,
                "own time": 100,
                "evidence": 85,
            }.items()
        ],
        empty="nobody reports this rank",
    )


def _differences() -> list[Json]:
    this = f"max by (phase) ({phases_of_each(THIS)})"
    usual = f"quantile by (phase) (0.5, {phases_of_each(PEERS)})"

    step = f"max(run:training_recent_step_seconds:mean{{{RUN_LEVEL}}})"

    def activity(selector: str) -> str:
        """Of the time in which it does not wait: waiting alone lowers the reported one."""
        parts = [
            each_rank(metric, selector)
            for metric in (
                "training_gpu_sm_active_ratio",
                "training_recent_step_seconds",
                "training_recent_own_seconds",
            )
        ]
        return f"{parts[0]} * {parts[1]} / {parts[2]}"

    def ratio(text: str, metric: str) -> str:
        return named(f"max({metric}{{{THIS}}}) / (quantile(0.5, {each_rank(metric, PEERS)}) > 0) - 1", "signal", text)

    def gpu_ratio(text: str, metric: str) -> str:
        peers = f"(quantile(0.5, {on_gpu_of(metric, PEERS)}) > 0)"
        return named(f"max({on_gpu_of(metric, THIS)}) / {peers} - 1", "signal", text)

    signals = union(
        [
            ratio("SM clock", "training_gpu_sm_clock_hertz"),
            named(f"max({activity(THIS)}) / quantile(0.5, {activity(PEERS)}) - 1", "signal", "SM active at work"),
            gpu_ratio("memory clock", "gpu_memory_clock_hertz"),
            gpu_ratio("power", "gpu_power_watts"),
            gpu_ratio("temperature", "gpu_temperature_celsius"),
            gpu_ratio("PCIe width", "gpu_pcie_link_width"),
            gpu_ratio("PCIe generation", "gpu_pcie_link_generation"),
        ]
    )
    return [
        bars(
            10,
            "Which phase takes longer",
            "How much longer this rank spends in each phase than the median of its peers, as a share of the step. The "
            "longest red bar is the phase to explain. data: loader or storage (on the host: where phases are timed on "
            "the GPU). h2d: PCIe. forward, backward: the GPU, or more work than others have. other: the host. wait is "
            "negative on a straggler: the others wait for it.",
            [query(f"({this}\n- on (phase) {usual})\n/ on () group_left () {step} != 0", table=True)],
            x="phase",
            horizontal=True,
            values=True,
            unit="percentunit",
            decimals=0,
            custom={"axisSoftMin": -0.3, "axisSoftMax": 0.3},
            steps=((None, GREY), (0.02, WARNING), (0.05, EXCESS)),
            transformations=_name_and_value("phase", "beyond the peers"),
            size=(12, 9),
        ),
        bars(
            11,
            "What its GPU does differently",
            "This rank's GPU against the median of its peers, as a difference in per cent. A clock that is lower by as "
            "much as own time is longer: throttled. Hotter at the same power: cooling. Less active while at work: "
            "starved, look at the host and the data. PCIe narrower: a bad slot or riser. All near zero and yet slow: "
            "more work (long sequences, hot experts), or the host.",
            [query(f"max by (signal) ({signals})", table=True)],
            x="signal",
            horizontal=True,
            values=True,
            unit="percentunit",
            decimals=0,
            custom={"axisSoftMin": -0.5, "axisSoftMax": 0.5},
            steps=((None, EXCESS), (-0.2, WARNING), (-0.05, GREY), (0.05, WARNING), (0.2, EXCESS)),
            transformations=_name_and_value("signal", "against the peers"),
            size=(12, 9),
        ),
    ]


def _name_and_value(name: str, value: str) -> list[Json]:
    return [
        {"id": "filterFieldsByName", "options": {"include": {"names": [name, "Value"]}}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {},
                "indexByName": {name: 0, "Value": 1},
                "renameByName": {"Value": value},
            },
        },
    ]


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
                override("median of the peers", color=fixed(GREY), custom__lineStyle=_DASHES),
            ],
        ),
    ]


def _phases() -> list[Json]:
    return [
        timeseries(
            30,
            "Phases of rank $rank",
            "Where this rank spends a step. Compare with the panel beside it: what is thicker here takes longer.",
            [query(phases_per_step(THIS), "{{phase}}")],
            stacked=True,
            unit="s",
            low=0,
            overrides=colours(PHASES),
        ),
        timeseries(
            31,
            "Phases of rank $compared, compared with it",
            "The same for the rank chosen above: unless you choose another, one that is as fast as the middle of the "
            "peers. Its grey wait is what this rank costs it.",
            [query(phases_per_step(COMPARED), "{{phase}}")],
            stacked=True,
            unit="s",
            low=0,
            overrides=colours(PHASES),
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
            RUNBOOKS,
        ],
        links=LINKS,
        annotations=[alert_marks(THIS), restart_marks(THIS)],
        panels=[
            *_headline(),
            _identity(),
            *_differences(),
            *row(100, "Since when", [*_since_when(), firing_alerts(22, THIS, size=(24, 5), runs=False)]),
            *row(101, "Phases", _phases()),
            *row(102, "GPU", gpu()),
            *row(103, "Links, memory and errors", links()),
        ],
    )
