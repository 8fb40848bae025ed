"""The Rank dashboard's host: CPU, pressure, memory and disk."""

from __future__ import annotations

from dashboards.src.grafana import Json
from dashboards.src.kinds import timeseries
from dashboards.src.panel import CRITICAL, GREY, OWN, WARNING, colours, dashed, fixed, override, query
from dashboards.src.queries import COMPARED, RATE, THIS

_NOT_SEEN = "no exporter sees the process of this rank"
_RESOURCES = {"cpu": WARNING, "memory": "purple", "io": OWN}


def _rate(metric: str, selector: str) -> str:
    return f"max(rate(training_rank_host_{metric}{{{selector}}}{RATE}))"


def host() -> list[Json]:
    """What its process lacked, beside what the node as a whole lacked."""
    return [
        timeseries(
            60,
            "Ready, and no CPU free",
            "Share of the time in which the main thread could have run and did not: others had the CPUs, or the "
            "limit of its control group stopped it. Above the compared rank: look for a foreign process (`top` on the "
            "node) or too few CPUs in the job's request.",
            [
                query(_rate("run_delay_seconds_total", THIS), "no CPU free"),
                query(_rate("run_delay_seconds_total", COMPARED), "no CPU free, compared rank"),
                query(
                    f"{_rate('cpu_throttled_periods_total', THIS)}\n/ ({_rate('cpu_periods_total', THIS)} > 0)",
                    "stopped by its limit",
                ),
            ],
            unit="percentunit",
            low=0,
            custom={"axisSoftMax": 0.05},
            size=(8, 7),
            overrides=[
                override("no CPU free", color=fixed(OWN)),
                dashed("no CPU free, compared rank", GREY),
                override("stopped by its limit", color=fixed(CRITICAL)),
            ],
            empty=_NOT_SEEN,
        ),
        timeseries(
            61,
            "Standing still for want of",
            "Share of the time in which a task of the rank's control group (lines) or of the whole node (dashes) stood "
            "still for want of CPU, memory or disk. Memory above a few per cent: the node swaps or reclaims. The node "
            "high and the group low: somebody else suffers.",
            [
                query(
                    "max by (resource) (\n"
                    f'rate(training_rank_host_pressure_seconds_total{{share="some", {THIS}}}{RATE}))',
                    "{{resource}}",
                ),
                query(
                    'max by (resource) (\nrate(host_pressure_seconds_total{share="some", cluster=~"$cluster"}'
                    f"{RATE})\nand on (cluster, instance) training_rank_info{{{THIS}}})",
                    "{{resource}}, node",
                ),
            ],
            unit="percentunit",
            low=0,
            custom={"axisSoftMax": 0.05},
            size=(8, 7),
            overrides=[
                *colours(_RESOURCES),
                *(dashed(f"{name}, node", colour) for name, colour in _RESOURCES.items()),
            ],
            empty="no pressure is counted on this node",
        ),
        timeseries(
            62,
            "Memory and disk",
            "Share of the time in which the main thread waited for a disk (left); page faults that read from one, and "
            "how often its control group came to its memory limit, a second (right). Anything at the limit is trouble: "
            "the next is an out-of-memory kill.",
            [
                query(_rate("io_wait_seconds_total", THIS), "waits for a disk"),
                query(_rate("major_faults_total", THIS), "faults from disk"),
                query(
                    f'sum(rate(training_rank_host_memory_events_total{{event=~"max|oom|oom_kill", {THIS}}}{RATE}))',
                    "at its memory limit",
                ),
            ],
            unit="percentunit",
            low=0,
            custom={"axisSoftMax": 0.05},
            size=(8, 7),
            overrides=[
                override("waits for a disk", color=fixed(OWN)),
                override("faults from disk", color=fixed("purple"), unit="eps", custom__axisPlacement="right"),
                override("at its memory limit", color=fixed(CRITICAL), unit="eps", custom__axisPlacement="right"),
            ],
            empty=_NOT_SEEN,
        ),
    ]
