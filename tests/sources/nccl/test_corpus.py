"""Logs met in the field: what is read from each, written down. ``pytest -rP`` prints the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from straggler.model.nccl import NcclFacts
from straggler.sources.nccl.read import LOOKS_BEFORE_SILENT, NcclSource
from straggler.sources.nccl.watchdog import parse_timeout, unwrapped

IB3 = "mlx5_0:1,mlx5_1:1,mlx5_2:1"
EXPECTED: dict[str, list[str]] = {
    "01_v2.4.7_two_node_ib_gdr_disabled": [
        "node-a:11715; rank -/-; 2.4.7; found mlx5_0:1",
        "node-a:11718; rank 3/-; 2.4.7; p2p=1 ib=1",
        "node-b:11792; rank 7/-; 2.4.7; p2p=1",
        "node-a:11717; rank 2/-; 2.4.7; ib=1; gdr 0 %",
        "node-b:11791; rank 6/-; 2.4.7; ib=1",
    ],
    "02_v2.5.7_no_host_prefix_roce_busid_hex": [
        "-:-; rank 0/-; 2.5.7; p2p=1 shm=1 ib=1; gdr 0 %; found mlx5_0:1; 2 rings; 2 trees"
    ],
    "03_v2.10.3_single_process_8_gpus_per_node": [
        "nodea:26799; rank 0/16; 06:00.0; 2.10.3; network IB; p2p=1; found mlx5_6:1; 2 rings; complete",
        "nodea:26799; rank 1/-; 2.10.3; network IB; shm=1; found mlx5_6:1",
        "nodeb:65671; rank 13/-; 2.10.3; 2 trees",
        "nodeb:65671; rank 15/16; CF:00.0; 2.10.3; complete",
    ],
    "04_socket_fallback_multinode": [
        "node-00:45361; rank 0/4; 00:1E.0; 2.18.6; network Socket; socket=1; no device; 2 rings; complete"
    ],
    "07_v2.23_8rank_4node_IBext_v8_pxn_gdrdma": [
        "n34:34088; rank 0/-; p2p=1 ib=1; gdr 100 %; no nvls; 3 rings",
        "n36:20775; rank 2/8; 88:00.0; ib=1; gdr 100 %; complete",
        "n41:3928; rank 6/8; 07:00.0; complete",
        "n34:34089; rank 1/8; 0B:00.0; complete",
        "n36:20776; rank 3/8; CB:00.0; ib=1",
        "n41:3929; rank 7/-; ib=1",
    ],
    "08_v2.25_single_node_4gpu_cumem_busid_nonzero_device": [
        "ip-192-0-2-53:35115; rank 2/4; 20:1C.0; no nvls; complete",
        "ip-192-0-2-53:35113; rank 0/4; 10:1C.0; p2p=1; 24 rings; complete",
        "ip-192-0-2-53:35116; rank 3/4; 20:1D.0; p2p=1; no nvls; 24 rings; 3 trees; complete",
        "ip-192-0-2-53:35114; rank 1/4; 10:1D.0; complete",
    ],
    "10_v2.26plus_warn_timestamp_merged_nic_gdr_pci_shared": [
        f"job-worker-0:31; rank 0/16; 18:00.0; shm=1 ib=1; found {IB3}; complete; warned completion=1 remote_closed=1"
    ],
    "11_interleaved_and_truncated": [
        "node-a:101; rank 0/-; p2p=1",
        "node-a:102; rank 1/-; p2p=1",
        "node-a:999; rank -/-; network IB",
    ],
    "Mellanox__nv_peer_memory__56": ["master_node:11715; rank -/-; 2.4.7; found mlx5_0:1"],
    "NVIDIA__nccl-tests__245": ["-:-; rank 0/2; 00:1E.0; 2 rings"],
    "NVIDIA__nccl__1066": [f"node-g6:1080060; rank -/-; found {IB3}; 2 rings",
        "node-g6:1080061; rank -/-; warned cuda=1"],
    "NVIDIA__nccl__1358": ["server1:730476; rank 0/2; 44:00.0"],
    "NVIDIA__nccl__1405": ["worker-0:3468; rank -/-; warned completion=1"],
    "NVIDIA__nccl__1537": [
        "node-a:25668; rank 0/16; 1C:00.0; network IB; no gdr for mlx5_0,mlx5_1; found mlx5_0:1,mlx5_1:1"
    ],
    "NVIDIA__nccl__1538": ["job-00000000-1111-2222-3333-000000000000-worker-0:5666; rank 3/-; p2p=1"],
    "NVIDIA__nccl__1664": ["-:-; rank -/-; warned completion=1"],
    "NVIDIA__nccl__1814": [
        "node-a:982; rank 34/-; ib=1; gdr 0 %; warned completion=1",
        "node-a:987; rank 39/-; ib=1",
        "node-a:983; rank -/-; nvls; 16 rings",
        "node-a:984; rank 36/64; 9B:00.0; complete",
    ],
    "NVIDIA__nccl__1939": ["-:-; rank -/-; no gdr for mlx5_0"],
    "NVIDIA__nccl__367": ["0a1b2c3d4e5f:117291; rank 2/-; shm=1", "0a1b2c3d4e5f:117277; rank 0/-; socket=1"],
    "NVIDIA__nccl__707": [
        "192-0-2-152:120890; rank 0/-; ib=1; gdr 100 %; warned completion=1",
        "192-0-2-152:120890; rank 3/-; ib=1; warned completion=1",
    ],
    "NVIDIA__nccl__897": ["node-b:901; rank 9/-; ib=1",
        "node-a:401; rank 2/-; ib=1; gdr 0 %; no gdr for mlx5_0,mlx5_1"],
    "NVIDIA__nccl__952": ["node-a:924; rank -/-; no device"],
    "NVIDIA__nccl__988": ["0a1b2c3d4e60:28331; rank -/-; 2.12.9; network IBext; found mlx5_0:1,mlx5_1:1"],
}  # fmt: skip
"""A row for each rank. Any other log is one that does not speak of NCCL, and is counted as such."""

TIMEOUTS = {
    "huggingface__open-r1__620": "rank 2, BROADCAST 4, 1800 s",
    "mlcommons__training__546": "rank 4, ALLREDUCE None, 1809 s",
    "sgl-project__sglang__1693": "rank 5, _ALLGATHER_BASE 9141, 600 s",
}


def row(facts: NcclFacts) -> str:
    """All that is known of one rank."""
    parts = (
        f"{facts.host or '-'}:{facts.pid or '-'}",
        f"rank {'-' if facts.rank is None else facts.rank}/{facts.nranks or '-'}",
        facts.pci_bus_id.removeprefix("00000000:"),
        facts.version,
        facts.network and f"network {facts.network}",
        " ".join(f"{transport}={count}" for transport, count in facts.channels.items()),
        "" if facts.gdr_ratio is None else f"gdr {facts.gdr_ratio:.0%}".replace("%", " %"),
        facts.gdr_disabled and f"no gdr for {','.join(facts.gdr_disabled)}",
        facts.rdma_devices and f"found {','.join(facts.rdma_devices)}",
        facts.no_rdma_device and "no device",
        {None: "", True: "nvls", False: "no nvls"}[facts.nvls],
        facts.rings and f"{facts.rings} rings",
        facts.trees and f"{facts.trees} trees",
        facts.is_complete and "complete",
        facts.warnings
        and "warned " + " ".join(f"{kind.removeprefix('net_')}={count}" for kind, count in facts.warnings.items()),
    )
    return "; ".join(str(part) for part in parts if part)


def logs(corpus: Path) -> list[Path]:
    """All of them, also those of other programs."""
    return [*sorted((corpus / "nccl").glob("*.log")), *sorted((corpus / "issues").glob("*.log"))]


def test_each_log_gives_its_facts_or_is_refused(corpus: Path) -> None:
    """Nothing is missed, nothing is made up, and a log that says nothing is counted."""
    seen = set()
    table: list[str] = []
    for path in logs(corpus):
        source = NcclSource([str(path)])
        readings = [source.collect() for _ in range(LOOKS_BEFORE_SILENT)]
        rows = [row(facts) for facts in readings[-1].facts]
        refused = [problem.reason for reading in readings for problem in reading.problems]
        table.append(f"{path.stem}\n" + "\n".join(f"    {text}" for text in rows or [f"refused: {refused}"]))

        assert sorted(rows) == sorted(EXPECTED.get(path.stem, []))
        assert refused == ([] if rows else ["no_nccl_lines"])
        seen.add(path.stem)
    assert set(EXPECTED) <= seen
    print("\n".join(table))  # noqa: T201 - the table is for people


@pytest.mark.parametrize("stem", TIMEOUTS)
def test_the_watchdog_of_each_log(corpus: Path, stem: str) -> None:
    """The collective that did not end, from old, new and wrapped lines."""
    lines = (corpus / "issues" / f"{stem}.log").read_text("utf-8").splitlines()
    (found,) = [timeout for line in unwrapped(lines) if (timeout := parse_timeout(line))]

    assert f"rank {found.rank}, {found.operation} {found.sequence}, {found.ran_seconds:.0f} s" == TIMEOUTS[stem]
