"""The Rank dashboard's network: the RDMA ports of the rank's node, and what NCCL makes of them."""

from __future__ import annotations

from dashboards.src.columns import column, table
from dashboards.src.grafana import Json
from dashboards.src.kinds import bars, timeseries
from dashboards.src.panel import CALM, CRITICAL, GREY, OWN, WARNING, colours, query, thresholds
from dashboards.src.queries import BOTH, COMPARED, RATE, THIS
from dashboards.src.tables import COLOURED_CELL

_PORTS = 'cluster=~"$cluster", rank_node="$node"'
_BY = "device, port"
_NO_PORTS = "no RDMA port is seen on this node"
_NO_LOG = "no NCCL log says anything of this rank: see docs/nccl.md"

_COMPLAINTS = {
    "symbol errors": ("symbol_errors", CRITICAL),
    "recoveries": ("link_recoveries", WARNING),
    "downs": ("link_downs", "purple"),
    "receive errors": ("receive_errors", "yellow"),
    "discards": ("transmit_discards", "light-blue"),
    "out of order": ("out_of_sequence", "blue"),
    "sent again": ("retransmissions", "light-red"),
    "congestion marks": ("ecn_marked", GREY),
}
"""Counters that should stand still, in the order of how bad it is if they do not."""


_PART_OF_WHOLE = ((None, "transparent"), (0, CRITICAL), (0.9, "transparent"))
"""Below 90 % is degraded; what is not known is not red."""


def _now(metric: str) -> Json:
    return query(f"max by ({_BY}) (network_{metric}{{{_PORTS}}})", table=True)


def _counted(function: str, metric: str, window: str) -> Json:
    return query(f"max by ({_BY}) ({function}(network_{metric}_total{{{_PORTS}}}{window}))", table=True)


def ports() -> list[Json]:
    """All ports of the node: NCCL spreads the exchange over them, and it is as fast as the slowest."""
    return [
        table(
            70,
            "RDMA ports of its node",
            "Each port beside its like. Of expected is its speed beside the other ports of this node, or its own best; "
            "of other nodes is beside the port of the same name there. Below 90 %, down, or errors that grow: cable, "
            "transceiver or switch port; reseat, then replace. A bad port makes all ranks wait alike, so own time does "
            "not show it.",
            [
                query(f"group by ({_BY}, link_layer, rate, state) (network_port_info{{{_PORTS}}})", table=True),
                query(
                    f"max by ({_BY}) (network_rate_bytes_per_second{{{_PORTS}}})\n"
                    f"/ max by ({_BY}) (network_expected_rate_bytes_per_second{{{_PORTS}}} > 0)",
                    table=True,
                ),
                query(
                    f'max by ({_BY}) (\nrun_port:network_rate_bytes_per_second:share_of_peers{{run="$run", {_PORTS}}})',
                    table=True,
                ),
                _counted("rate", "receive_bytes", RATE),
                _counted("rate", "transmit_bytes", RATE),
                _counted("increase", "symbol_errors", "[$__range]"),
                _counted("increase", "link_recoveries", "[$__range]"),
                _counted("increase", "link_downs", "[$__range]"),
                _now("saturated_counters"),
            ],
            columns=[
                column("device", width=110),
                column("port", width=55),
                column("link_layer", "link", 105),
                column("rate", "speed", 190),
                column("state", width=80),
                *(
                    column(
                        value,
                        heading,
                        120,
                        unit="percentunit",
                        decimals=0,
                        noValue="-",
                        custom__cellOptions=COLOURED_CELL,
                        color={"mode": "thresholds"},
                        thresholds=thresholds(_PART_OF_WHOLE),
                    )
                    for value, heading in (("Value #B", "of expected"), ("Value #C", "of other nodes"))
                ),
                column("Value #D", "receives", 100, unit="Bps", decimals=1, noValue="-"),
                column("Value #E", "sends", 100, unit="Bps", decimals=1, noValue="-"),
                *(
                    column(
                        value,
                        heading,
                        125,
                        unit="short",
                        decimals=0,
                        noValue="-",
                        custom__cellOptions={"type": "color-text"},
                        color={"mode": "thresholds"},
                        thresholds=thresholds(((None, CALM), (1, CRITICAL))),
                    )
                    for value, heading in (
                        ("Value #F", "symbol errors"),
                        ("Value #G", "recoveries"),
                        ("Value #H", "downs"),
                        ("Value #I", "full counters"),
                    )
                ),
            ],
            sort={"of expected": False, "device": False},
            size=(24, 7),
            empty=_NO_PORTS,
        ),
        timeseries(
            71,
            "Sent, by port",
            "Bytes a second that each port of the node sends. They should lie on each other: NCCL uses all alike. "
            "One at zero: nobody uses that adapter, or it is down. All lower than before: the run is slower, whatever "
            "the reason.",
            [query(f"max by ({_BY}) (rate(network_transmit_bytes_total{{{_PORTS}}}{RATE}))", "{{device}}")],
            unit="Bps",
            low=0,
            width=1,
            size=(8, 8),
            empty=_NO_PORTS,
        ),
        timeseries(
            72,
            "What its ports complain about",
            "Counts a second, summed over the ports of the node. Symbol errors, recoveries and downs are a cable; out "
            "of order and sent again are lost packets; congestion marks are a full switch and no fault of this node.",
            [
                query(f"sum(rate(network_{metric}_total{{{_PORTS}}}{RATE}))", text)
                for text, (metric, _) in _COMPLAINTS.items()
            ],
            unit="eps",
            low=0,
            custom={"axisSoftMax": 1},
            size=(8, 8),
            overrides=colours({text: colour for text, (_, colour) in _COMPLAINTS.items()}),
            empty=_NO_PORTS,
        ),
    ]


def nccl() -> list[Json]:
    """What NCCL's logs say of this rank and of the compared one."""
    return [
        bars(
            73,
            "NCCL channels, by transport",
            "How many channels use each way to the peers. p2p is NVLink, ib is InfiniBand or RoCE: good. shm inside a "
            "node: the GPUs cannot reach each other. socket: TCP, many times slower than an adapter; a container "
            "without /dev/infiniband, or a library that is missing. Both ranks should be alike.",
            [
                query(f"max by (transport) (training_nccl_channels{{{selector}}})", table=True)
                for selector in (THIS, COMPARED)
            ],
            x="transport",
            columns=["this rank", "compared rank"],
            unit="short",
            decimals=0,
            low=0,
            values=True,
            legend=True,
            size=(8, 8),
            overrides=colours({"this rank": OWN, "compared rank": GREY}),
            empty=_NO_LOG,
        ),
        table(
            74,
            "NCCL of this rank and of the compared one",
            "What each says of itself. Another version or network than the peer's: another image. GPUDirect below the "
            "peer's: each byte goes through the host's memory; is nvidia_peermem loaded? Warnings: read the log with "
            "`straggler inspect LOG`.",
            [
                query(
                    f"group by (rank, rank_node, version, cuda_version, network, nvls) (training_nccl_info{{{BOTH}}})",
                    table=True,
                ),
                query(f"max by (rank, rank_node) (training_nccl_gdr_ratio{{{BOTH}}})", table=True),
                query(
                    f"sum by (rank, rank_node) (\nincrease(training_nccl_warnings_total{{{BOTH}}}[$__range]))",
                    table=True,
                ),
            ],
            columns=[
                column("rank", width=70),
                column("rank_node", "node", 200),
                column("version", width=120, noValue="-"),
                column("cuda_version", "for CUDA", 120, noValue="-"),
                column("network", width=150, noValue="-"),
                column("nvls", "NVLink SHARP", 140, noValue="-"),
                column("Value #B", "GPUDirect", 120, unit="percentunit", decimals=0, noValue="-"),
                column("Value #C", "warnings", 110, unit="short", decimals=0, noValue="-"),
            ],
            size=(24, 5),
            empty=_NO_LOG,
        ),
    ]
