"""The table of counters: units, widths, and what counts where."""

from __future__ import annotations

from pathlib import Path

import pytest

from port_trees import ports_of, unpack, write
from straggler.metrics.catalogue import NETWORK_METRICS, Kind
from straggler.sources.infiniband.counters import COUNTERS, JUDGED


@pytest.mark.parametrize(
    ("machine", "port", "sent", "received"),
    [
        # 250,000,000,001 words of four bytes; four lanes
        ("ndr_four_adapters", "mlx5_0 1", 1_000_000_000_004, 12),
        # 1 word; one lane
        ("ndr_four_adapters", "mlx5_2 1", 4, 0),
        # 1,000 and 2,000 words, on Ethernet
        ("roce_bond", "mlx5_bond_0 1", 4_000, 8_000),
        # 5 and 6 thousand million words in the directory of 64 bits; 32 bits beside it have stopped
        ("mlx4_before_4.5", "mlx4_0 1", 20_000_000_000, 24_000_000_000),
        # 10 and 20 words, on another maker's adapter
        ("omnipath", "hfi1_0 1", 40, 80),
        # bytes, as the driver says
        ("efa", "rdmap16s27 1", 1_234_567, 7_654_321),
        ("bnxt", "bnxt_re0 1", 111, 222),
    ],
)
def test_data_is_bytes(machine: str, port: str, sent: int, received: int, tmp_path: Path) -> None:
    """Words of four bytes are multiplied by four once, lanes multiply nothing, and bytes stay bytes."""
    counters = ports_of(unpack(machine, tmp_path))[port].counters

    assert (counters["transmit_bytes_total"], counters["receive_bytes_total"]) == (sent, received)


@pytest.mark.parametrize(
    ("device", "files", "expected"),
    [
        (
            "mana_0",  # Azure
            {"tx_bytes": 5, "rx_bytes": 6, "tx_packets": 1, "rx_packets": 2, "responder_oos": 3, "requester_oos_nak": 4}
            | {"requester_implicit_nak": 7, "requester_timeout": 8, "requester_rnr_nak": 9}
            | {"requester_retries_exceeded": 10, "responder_dup_request": 11, "received_cnps": 12, "current_rate": 13},
            {"transmit_bytes": 5, "receive_bytes": 6, "transmit_packets": 1, "receive_packets": 2, "out_of_sequence": 3}
            | {"sequence_errors": 4, "implied_sequence_errors": 7, "acknowledge_timeouts": 8, "receiver_not_ready": 9}
            | {"retries_exceeded": 10, "duplicate_requests": 11, "cnp_handled": 12},
        ),
        (
            "irdma0",  # Intel: octets apart for IPv4 and IPv6
            {"ip4OutOctets": 1, "ip6OutOctets": 2, "cnpSent": 3, "cnpHandled": 4, "cnpIgnored": 5, "RxECNMrkd": 6}
            | {"RetransSegs": 7, "RNR received": 8},
            {"cnp_sent": 3, "cnp_handled": 4, "cnp_ignored": 5, "ecn_marked": 6, "retransmissions": 7}
            | {"receiver_not_ready": 8},
        ),
        (
            "erdma_0",  # Alibaba
            {"hw_tx_bytes_cnt": 1, "hw_rx_bytes_cnt": 2, "hw_tx_packets_cnt": 3, "hw_rx_packets_cnt": 4},
            {"transmit_bytes": 1, "receive_bytes": 2, "transmit_packets": 3, "receive_packets": 4},
        ),
    ],
)
def test_drivers_own_names(device: str, files: dict[str, int], expected: dict[str, int], tmp_path: Path) -> None:
    """Adapters of the clouds count under names of their own, and what stands under no known name is not guessed."""
    port = tmp_path / "class" / "infiniband" / device / "ports" / "1"
    for name, text in {"state": "4: ACTIVE", "link_layer": "Ethernet", "rate": "200 Gb/sec (4X HDR)"}.items():
        write(port / name, f"{text}\n")
    for name, count in files.items():
        write(port / "hw_counters" / name, f"{count}\n")

    assert ports_of(tmp_path)[f"{device} 1"].counters == {f"{name}_total": count for name, count in expected.items()}


def test_all_counters_are_in_the_catalogue() -> None:
    """What is read is published, and what is published can be read."""
    published = {metric.name.removeprefix("network_") for metric in NETWORK_METRICS if metric.kind is Kind.COUNTER}

    assert {counter.name for counter in COUNTERS} == published
    assert published >= JUDGED


def test_no_file_is_two_counters() -> None:
    """A file that stood in two rows would be counted twice under two names."""
    files = [(origin.directory, origin.file) for counter in COUNTERS for origin in counter.origins]

    assert len(files) == len(set(files))


def test_lifespan_is_no_counter() -> None:
    """It is a setting that lies among the counters."""
    assert "lifespan" not in {origin.file for counter in COUNTERS for origin in counter.origins}


@pytest.mark.parametrize(
    ("file", "most"),
    [
        ("symbol_error", 65_535),
        ("port_rcv_errors", 65_535),
        ("port_rcv_remote_physical_errors", 65_535),
        ("port_xmit_discards", 65_535),
        ("VL15_dropped", 65_535),
        ("link_error_recovery", 255),
        ("link_downed", 255),
        ("port_xmit_constraint_errors", 255),
        ("port_rcv_constraint_errors", 255),
        ("local_link_integrity_errors", 15),
        ("excessive_buffer_overrun_errors", 15),
        ("port_xmit_wait", 4_294_967_295),
        ("port_xmit_data", 4_294_967_295),
        ("port_rcv_packets", 4_294_967_295),
    ],
)
def test_widths(file: str, most: int) -> None:
    """Each attribute stops where the kernel's table of widths says: 16, 8, 4 or 32 bits."""
    origins = [origin for counter in COUNTERS for origin in counter.origins if origin.directory == "counters"]

    assert [origin.most for origin in origins if origin.file == file] == [most]
