"""The lower half of the Rank dashboard: its GPU, its links, its memory."""

from __future__ import annotations

from dashboards.src.grafana import Json
from dashboards.src.kinds import states, timeseries
from dashboards.src.panel import (
    CRITICAL,
    GOOD,
    GREY,
    OWN,
    WARNING,
    colours,
    dashed,
    fixed,
    override,
    query,
    value_texts,
)
from dashboards.src.queries import COMPARED, RATE, THIS, on_gpu_of

_USUAL_REASONS = {
    "gpu_idle": GREY,
    "applications_clocks_setting": "blue",
    "display_clocks_setting": "blue",
    "sw_power_cap": WARNING,
    "sync_boost": WARNING,
}
"""Reasons that are no fault of the GPU: idle, a setting, the power limit that a busy GPU reaches, another GPU."""


def _over_time(metric: str) -> list[Json]:
    """A series of this rank's GPU, and of the one that it is compared with."""
    return [
        query(f"max({on_gpu_of(metric, THIS)})", "this rank"),
        query(f"max({on_gpu_of(metric, COMPARED)})", "compared rank"),
    ]


_TWO_LINES = [
    override("this rank", color=fixed(OWN)),
    dashed("compared rank", GREY),
]


def gpu() -> list[Json]:
    """Clocks, what holds them down, activity, heat, power."""
    return [
        timeseries(
            40,
            "SM clock",
            "Clock of the multiprocessors. Below the peers' while the GPU is busy: the reasons stand beside it.",
            [
                query(f"max(training_gpu_sm_clock_hertz{{{THIS}}})", "this rank"),
                query(f"max(training_gpu_sm_clock_hertz{{{COMPARED}}})", "compared rank"),
            ],
            unit="hertz",
            low=0,
            overrides=_TWO_LINES,
        ),
        states(
            41,
            "What holds the clock down",
            "Clocks event reasons as the driver reports them. Red: heat, a power brake, or the hardware itself: drain "
            "the node. Orange: the power limit, normal for a busy GPU unless the peers' clocks are higher; or sync "
            "boost, then look at the other GPUs. Blue: somebody set the clocks. Grey: idle. Only what was active in "
            "the time range is listed.",
            [query(f"max by (reason) ({on_gpu_of('gpu_clocks_event_reason', THIS)}) == 1", "{{reason}}")],
            texts={"1": ("active", CRITICAL)},
            legend=False,
            empty="nothing held it down",
            unit="none",
            overrides=[
                override(reason, mappings=value_texts({"1": ("active", colour)}))
                for reason, colour in _USUAL_REASONS.items()
            ],
        ),
        timeseries(
            42,
            "Share of time held down, by reason",
            "From the driver's counters, so that events shorter than a scrape are in it too. Thermal or power brake "
            "above 10 %: TrainingGpuThrottled.",
            [
                query(
                    f"max by (reason) (rate(training_gpu_clocks_event_seconds_total{{{THIS}}}{RATE}))",
                    "{{reason}}",
                )
            ],
            unit="percentunit",
            low=0,
            fill=20,
        ),
        timeseries(
            43,
            "Activity: SM, occupancy, tensor",
            "SM active: share of cycles with work resident. Tensor: share with the tensor pipe busy, the useful part. "
            "Grey: SM active of the compared rank. A straggler is often more active than its peers, since they wait; "
            "with low activity and long own time the GPU is starved by the host, the loader or PCIe.",
            [
                query(f"max(training_gpu_sm_active_ratio{{{THIS}}})", "SM active"),
                query(f"max(training_gpu_sm_occupancy_ratio{{{THIS}}})", "occupancy"),
                query(f"max(training_gpu_tensor_active_ratio{{{THIS}}})", "tensor active"),
                query(f"max(training_gpu_sm_active_ratio{{{COMPARED}}})", "SM active, compared rank"),
            ],
            unit="percentunit",
            low=0,
            high=1,
            overrides=[
                override("SM active", color=fixed(OWN)),
                override("occupancy", color=fixed("purple")),
                override("tensor active", color=fixed(GOOD)),
                dashed("SM active, compared rank", GREY),
            ],
        ),
        timeseries(
            44,
            "Temperature",
            "Core temperature. GPUs slow down by themselves near their limit (commonly 85 to 90 °C). Hotter than the "
            "peers: air, dust, pump; with all GPUs of the node: the node's cooling.",
            _over_time("gpu_temperature_celsius"),
            unit="celsius",
            custom={"axisSoftMin": 30, "axisSoftMax": 90},
            overrides=_TWO_LINES,
        ),
        timeseries(
            45,
            "Power",
            "Power draw, that of the compared rank, and the limit. At the limit with a low clock: capped. Far below "
            "the limit with a low clock: heat or a power brake.",
            [
                *_over_time("gpu_power_watts"),
                query(f"max({on_gpu_of('gpu_power_limit_watts', THIS)})", "limit"),
            ],
            unit="watt",
            low=0,
            overrides=[*_TWO_LINES, dashed("limit", CRITICAL)],
        ),
    ]


def _traffic(number: int, title: str, description: str, link: str, *, compared: tuple[str, str]) -> Json:
    """Bytes a second over one kind of link; ``compared``: which direction of the other rank's, and its word."""
    direction, word = compared

    def rate(way: str, selector: str, text: str) -> Json:
        return query(f"max({on_gpu_of(f'gpu_{link}_{way}_bytes_per_second', selector)})", text)

    return timeseries(
        number,
        title,
        description,
        [
            rate("receive", THIS, "received"),
            rate("transmit", THIS, "sent"),
            rate(direction, COMPARED, f"{word}, compared rank"),
        ],
        unit="Bps",
        low=0,
        overrides=[
            override("received", color=fixed(OWN)),
            override("sent", color=fixed("purple")),
            dashed(f"{word}, compared rank", GREY),
        ],
    )


def links() -> list[Json]:
    """PCIe, NVLink, memory, errors."""
    return [
        _traffic(
            50,
            "PCIe traffic",
            "Bytes a second over PCIe, and what the compared rank receives. Much more than it: data goes through the "
            "host that should go over NVLink or GPUDirect.",
            "pcie",
            compared=("receive", "received"),
        ),
        _traffic(
            51,
            "NVLink traffic",
            "Bytes a second over all NVLinks, and what the compared rank sends. All peers of an all-reduce send the "
            "same; less here means a link that is down.",
            "nvlink",
            compared=("transmit", "sent"),
        ),
        timeseries(
            52,
            "PCIe link",
            "Lanes in use and lanes possible. Fewer than possible under load: a bad slot, riser or card; reseat or "
            "drain. (Idle GPUs lower the generation, not the lanes.)",
            [
                query(f"max({on_gpu_of('gpu_pcie_link_width', THIS)})", "lanes"),
                query(f"max({on_gpu_of('gpu_pcie_link_width_max', THIS)})", "lanes possible"),
                query(f"max({on_gpu_of('gpu_pcie_link_generation', THIS)})", "generation"),
                query(f"max({on_gpu_of('gpu_pcie_link_generation_max', THIS)})", "generation possible"),
            ],
            unit="none",
            decimals=0,
            low=0,
            size=(8, 7),
            overrides=[
                override("lanes", color=fixed(OWN)),
                dashed("lanes possible", OWN),
                override("generation", color=fixed("purple")),
                dashed("generation possible", "purple"),
            ],
        ),
        timeseries(
            53,
            "Memory in use",
            "Frame buffer in use. At the top: the allocator frees and splits, which costs own time.",
            _over_time("gpu_memory_used_bytes"),
            unit="bytes",
            low=0,
            size=(8, 7),
            overrides=_TWO_LINES,
        ),
        timeseries(
            54,
            "Errors in the time range",
            "Memory errors, PCIe replays and NVLink errors. Uncorrected memory errors, or replays that keep coming: "
            "drain the GPU. Flat at zero is good.",
            [
                query(f"max({on_gpu_of(metric, THIS, 'increase')})", text)
                for text, metric in {
                    "memory, corrected": "gpu_ecc_single_bit_errors_total",
                    "memory, uncorrected": "gpu_ecc_double_bit_errors_total",
                    "PCIe replays": "gpu_pcie_replays_total",
                    "NVLink replays": "gpu_nvlink_replays_total",
                }.items()
            ],
            unit="short",
            decimals=0,
            low=0,
            size=(8, 7),
            custom={"axisSoftMax": 1},
            overrides=colours(
                {
                    "memory, corrected": WARNING,
                    "memory, uncorrected": CRITICAL,
                    "PCIe replays": OWN,
                    "NVLink replays": "purple",
                }
            ),
        ),
    ]
