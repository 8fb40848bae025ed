"""The lower half of the Run dashboard: since when, in which phase, and what becomes of the throughput."""

from __future__ import annotations

from dashboards.src.charts import phase_stack, utilization
from dashboards.src.columns import column, table
from dashboards.src.grafana import Json
from dashboards.src.kinds import timeseries
from dashboards.src.panel import (
    DASHES,
    EXCESS,
    GOOD,
    LOST_STEPS,
    OWN,
    WAIT,
    WARNING,
    colours,
    dashed,
    fixed,
    override,
    query,
)
from dashboards.src.queries import RATE, RUN, RUN_LEVEL, SLOWEST, TYPICAL, link_faults

_STEP = f"run:training_recent_step_seconds:mean{{{RUN_LEVEL}}}"
_MEDIAN = f"run:training_recent_own_seconds:median{{{RUN}}}"


def since_when() -> list[Json]:
    """The gap, in shares and in seconds."""
    return [
        timeseries(
            20,
            "What the slowest rank costs",
            "Longest minus median own time, as a share of the step; the worst peer group. From 5 % it matters, from "
            "15 % it is dear (dashed). A step up is the moment at which something broke; a climb is heat or memory.",
            [query(f"max(run:training_recent_own_seconds:max_minus_median_share{{{RUN}}})", "share of the step")],
            unit="percentunit",
            low=0,
            fill=25,
            lines=True,
            steps=((None, "transparent"), *LOST_STEPS[2:]),
            custom={"axisSoftMax": 0.2},
            overrides=colours({"share of the step": EXCESS}),
        ),
        timeseries(
            21,
            "Step, own time and gap",
            "The step (grey), inside it the longest (red) and the median (blue) own time, and below the gap between "
            "both. Red leaves blue and lifts the step: a straggler. Red and blue rise together: everybody has more "
            "work. The step rises alone: the exchange, so the network.",
            [
                query(f"max({_STEP})", "step"),
                query(f"max(run:training_recent_own_seconds:max{{{RUN}}})", "longest own time"),
                query(f"max({_MEDIAN})", "median own time"),
                query(f"max(run:training_recent_own_seconds:max_minus_median{{{RUN}}})", "gap"),
            ],
            unit="s",
            low=0,
            overrides=[
                *colours({"step": WAIT, "longest own time": EXCESS, "median own time": OWN}),
                override("gap", color=fixed(WARNING), custom__fillOpacity=30, custom__lineWidth=1),
            ],
        ),
    ]


def phases() -> list[Json]:
    """Of the slowest rank, and of a typical one."""
    return [
        phase_stack(
            30,
            "Phases of rank $slowest, the slowest",
            "Where the rank that is slowest at the end of the time range spends a step. Compare with the panel beside "
            "it, which has a typical rank of the same peer group: the phase that is thicker here is the one to "
            "explain. Data: loader or storage. Forward and backward: the GPU. Other: the host.",
            SLOWEST,
        ),
        phase_stack(
            31,
            "Phases of rank $typical, a typical one",
            "The same for the rank whose own time is in the middle of its peers'. A thick grey wait here is what the "
            "straggler costs all others.",
            TYPICAL,
        ),
    ]


def throughput() -> list[Json]:
    """Tokens, the exchange, utilization, progress."""
    return [
        timeseries(
            40,
            "Throughput",
            "Tokens a second (left) and model floating point operations a second (right), summed over the ranks, where "
            "the training says them or the hook sees them. Both fall by the share lost when a straggler appears.",
            [
                query(f"sum(run:training_tokens:per_second{{{RUN_LEVEL}}})", "tokens"),
                query(f"sum(run:training_flops:per_second{{{RUN_LEVEL}}})", "operations"),
            ],
            unit="short",
            low=0,
            overrides=[
                override("tokens", color=fixed("green"), unit="short", custom__axisLabel="tokens/s"),
                override(
                    "operations",
                    color=fixed("purple"),
                    unit="flops",
                    custom__axisPlacement="right",
                    custom__lineStyle=DASHES,
                ),
            ],
            size=(8, 8),
            empty="the training says neither tokens nor operations",
        ),
        timeseries(
            44,
            "Of what the GPUs could do",
            "MFU: operations of the model as a share of the GPUs' peak in bfloat16. Scaling: tokens of each GPU as a "
            "share of what one GPU makes alone. Both fall by the share lost when a straggler appears; low from the "
            "first step on, it is the code, the batch or the network.",
            [
                query(f"max(run:training_flops:mfu_ratio{{{RUN_LEVEL}}})", "MFU"),
                query(f"max(run:training_tokens:scaling_efficiency{{{RUN_LEVEL}}})", "scaling"),
            ],
            unit="percentunit",
            low=0,
            custom={"axisSoftMax": 1},
            size=(8, 8),
            empty="no operations or no peak is known: see docs/throughput.md",
            overrides=colours({"MFU": "purple", "scaling": GOOD}),
        ),
        timeseries(
            43,
            "Progress",
            "Number of the last finished step: the furthest and the least advanced rank. They stay together; where "
            "they part, or stand still, the run hangs. A fall is a restart from a checkpoint.",
            [
                query(f"max(training_step{{{RUN}}})", "furthest rank"),
                query(f"min(training_step{{{RUN}}})", "last rank"),
            ],
            unit="none",
            decimals=0,
            points=150,
            size=(8, 8),
            overrides=[
                override("furthest rank", color=fixed(GOOD)),
                dashed("last rank", WARNING),
            ],
        ),
        timeseries(
            41,
            "Exchange: bytes and exposed waiting",
            "All-reduce bytes a second of a typical rank (right), and how long ranks are blocked in a step. The least "
            "wait is the exchange itself: if it rises while bytes do not, the network is slow. What the mean wait has "
            "above it is waiting for each other.",
            [
                query(f"max(run:training_recent_wait_seconds:mean{{{RUN}}})", "mean wait"),
                query(f"max(run:training_recent_min_wait_seconds:min{{{RUN}}})", "least wait"),
                query(f"max(rate(training_allreduce_bytes_total{{{TYPICAL}}}{RATE}))", "all-reduce"),
            ],
            unit="s",
            low=0,
            size=(8, 8),
            overrides=[
                override("mean wait", color=fixed(WAIT), custom__fillBelowTo="least wait", custom__fillOpacity=20),
                override("least wait", color=fixed(OWN)),
                override("all-reduce", color=fixed("purple"), unit="Bps", custom__axisPlacement="right"),
            ],
        ),
        table(
            45,
            "Links in trouble",
            "Ports of the run's nodes that are down, too slow (speed left) or count errors, and nodes whose NCCL takes "
            "sockets, or goes through the host's memory, though there is better. All wait for the slowest link: "
            "no rank is slow. Open a rank of that node; reseat or replace the cable, mend the image.",
            [
                query(
                    f"topk(50, group by (rank_node, device, port, fault) (\n{link_faults(RUN_LEVEL)}))",
                    table=True,
                ),
                query(
                    "max by (rank_node, device, port, fault) (port:network_port:degraded\n* on (cluster, rank_node) "
                    f"group_left (run) run_node:training_rank_state:sole{{{RUN_LEVEL}}})",
                    table=True,
                ),
            ],
            columns=[
                column("fault", width=110),
                column("rank_node", "node", 150),
                column("device", width=90, noValue="-"),
                column("port", width=50, noValue="-"),
                column("Value #B", "speed left", 90, unit="percentunit", decimals=0, noValue="-"),
            ],
            sort={"node": False},
            size=(8, 8),
            empty="no port is at fault, and NCCL takes the adapters",
        ),
        utilization(
            42,
            f"max(run:training_gpu_utilization_ratio:mean{{{RUN_LEVEL}}})",
            f"max(run:training_gpu_sm_active_ratio:mean{{{RUN_LEVEL}}})",
            size=(8, 8),
        ),
    ]
