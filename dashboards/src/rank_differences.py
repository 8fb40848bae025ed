"""The Rank dashboard's bars: what explains the gap, which phase it is in, and what the GPU does differently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboards.src.grafana import Json
from dashboards.src.kinds import bars
from dashboards.src.panel import CAUSE_SHARE, EXCESS, GREY, WARNING, query
from dashboards.src.queries import PEERS, RUN_LEVEL, THIS, each_rank, named, on_gpu_of, phases_of_each, union

_LYING: Mapping[str, Any] = {
    "horizontal": True,
    "values": True,
    "unit": "percentunit",
    "decimals": 0,
    "size": (8, 9),
}
"""Bars of per cents, three beside each other."""


def differences() -> list[Json]:
    """Of this rank, against its peers."""
    explained = f"run_rank:training_cause:explained_share{{{THIS}}}"
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
            12,
            "What explains the gap",
            "How much of this rank's gap to its peers each cause explains. The first that explains more than half "
            "(red) is the cause; heat and brakes come before what they bring about. 0 %: looked at and ruled out. Not "
            "listed: not measured here. All short: unknown, then compare the phases beside it.",
            [query(f"sort_desc(clamp_min(max by (cause) ({explained}), 0))", table=True)],
            x="cause",
            columns=["of the gap"],
            custom={"axisSoftMin": 0, "axisSoftMax": 1},
            steps=((None, GREY), (CAUSE_SHARE, EXCESS)),
            empty="this rank is not slow",
            **_LYING,
        ),
        bars(
            10,
            "Which phase takes longer",
            "How much longer this rank spends in each phase than the median of its peers, as a share of the step. The "
            "longest red bar is the phase to explain. data: loader or storage (on the host: where phases are timed on "
            "the GPU). h2d: PCIe. forward, backward: the GPU, or more work than others have. other: the host. wait is "
            "negative on a straggler: the others wait for it.",
            [query(f"({this}\n- on (phase) {usual})\n/ on () group_left () {step} != 0", table=True)],
            x="phase",
            columns=["beyond the peers"],
            custom={"axisSoftMin": -0.3, "axisSoftMax": 0.3},
            steps=((None, GREY), (0.02, WARNING), (0.05, EXCESS)),
            **_LYING,
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
            columns=["against the peers"],
            custom={"axisSoftMin": -0.5, "axisSoftMax": 0.5},
            steps=((None, EXCESS), (-0.2, WARNING), (-0.05, GREY), (0.05, WARNING), (0.2, EXCESS)),
            **_LYING,
        ),
    ]
