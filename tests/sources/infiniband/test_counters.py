"""The table of counters: units, widths, and what counts where."""

from __future__ import annotations

from pathlib import Path

import pytest

from port_trees import ports_of, unpack
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
