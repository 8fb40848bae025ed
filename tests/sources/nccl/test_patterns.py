"""What each line says, in each version's words."""

from __future__ import annotations

import pytest

from straggler.model.gpu_identity import normal_bus_id
from straggler.model.nccl import TRANSPORTS, WARNING_KINDS
from straggler.sources.nccl.kinds import KINDS, kind_of
from straggler.sources.nccl.patterns import (
    Channel,
    CutLineError,
    Fact,
    Graph,
    Init,
    Said,
    bus_id_of,
    parse,
    transport_of,
)

CHANNELS = [
    ("Ring 00 : 3[3] -> 1[1] via P2P/IPC", (0, 3, 1, "p2p"), "sends"),
    ("Ring 00 : 15 -> 0 [receive] via NET/Socket/0", (0, 0, 15, "socket"), "receives"),
    ("Ring 01 : 3 -> 6 [send] via NET/IB/0", (1, 3, 6, "ib"), "sends"),
    ("Ring 00 : 0[1b000] -> 7[41000] via direct shared memory", (0, 0, 7, "shm"), "sends"),
    ("Channel 00 : 0[6000] -> 7[c6000] via P2P/direct pointer", (0, 0, 7, "p2p"), "sends"),
    ("Channel 00 : 0[0] -> 1[1] via SHM/direct/direct", (0, 0, 1, "shm"), "sends"),
    ("Channel 07/0 : 3[3] -> 4[4] via P2P/CUMEM/read", (7, 3, 4, "p2p"), "sends"),
    ("Channel 07/0 : 3[3] -> 4[4] via P2P/indirect/5[5]", (7, 3, 4, "p2p"), "sends"),
    ("Channel 01/0 : 3[1] -> 4[0] [send] via NET/IBext_v8/5(2)/GDRDMA", (1, 3, 4, "ib"), "sends, GDR"),
    ("Channel 31/1 : 7[1] -> 0[0] [receive] via NET/IB/1/GDRDMA", (31, 0, 7, "ib"), "receives, GDR"),
    ("Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/3(1)/GDRDMA(PCI)/Shared", (0, 0, 8, "ib"), "sends, GDR"),
    ("Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/3/Shared", (0, 0, 8, "ib"), "receives"),
    ("Channel 00/0 : 8[0] -> 0[0] [receive] via NET/AWS Libfabric/1/GDRDMA", (0, 0, 8, "libfabric"), "receives, GDR"),
    ("Channel 00/0 : 8[0] -> 0[0] [receive] via NET/FasTrak/1", (0, 0, 8, "other"), "receives"),
    ("Channel 02/0 : 10[2] -> 2[2] [receive] via NET/gIB/2/GDRDMA", (2, 2, 10, "ib"), "receives, GDR"),
    ("Channel 01/0 : 2[c9000] -> 0[c1000] via P2P/IPC comm 0x10a5 nRanks 08", (1, 2, 0, "p2p"), "sends"),
    (
        "Channel 02/0 : 1[c6] -> 4[c1] [receive] via NET/IB/1/GDRDMA comm 0x9 nRanks 08",
        (2, 4, 1, "ib"),
        "receives, GDR",
    ),
    ("Coll 00/0 : 3 [receive] via COLLNET/SHARP/0/GDRDMA", (0, 3, 3, "collnet"), "receives, GDR"),
]
"""A line; channel, own rank, peer and transport; direction and how it ends."""


@pytest.mark.parametrize(("text", "ends", "how"), CHANNELS)
def test_channels(text: str, ends: tuple[int, int, int, str], how: str) -> None:
    """The rank that logs, the other one, the transport, and whether it ends in GPU memory."""
    assert parse(text) == Channel(*ends, receives=how.startswith("receives"), gdr=how.endswith("GDR"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "ncclCommInitRank comm 0x542f3f0 rank 2 nranks 8 cudaDev 0 nvmlDev 3 busId 88000 commId 0x7 - Init START",
            Init("0x542f3f0", 2, 8, "00000000:88:00.0", "start"),
        ),
        (
            "comm 0x7efe60002250 rank 0 nranks 16 cudaDev 0 busId 6000 - Init COMPLETE",
            Init("0x7efe60002250", 0, 16, "00000000:06:00.0", "complete"),
        ),
        (
            "ncclCommSplit comm 0x5d0 rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 18000 parent 0x5 color -1- Init START",
            Init("0x5d0", 0, 8, "00000000:18:00.0", "start"),
        ),
        (
            "[Rank 0] ncclCommInitRankConfig comm 0x5c0 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 18000 - Init START",
            Init("0x5c0", 0, 16, "00000000:18:00.0", "start"),
        ),
        ("comm 0x6 rank 3 nranks 8 cudaDev 1 nvmlDev 1 - Init COMPLETE", Init("0x6", 3, 8, "", "complete")),
        (
            "comm 0x636b080 rank 3 nranks 8 cudaDev 1 busId cb000 - Destroy COMPLETE",
            Init("0x636b080", 3, 8, "00000000:CB:00.0", "end"),
        ),
        ("Channel 00/02 :    0   1   2   3", Graph(rings=2)),
        ("24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels", Graph(rings=24, nvls_channels=0)),
        ("16 coll channels, 16 nvls channels, 16 p2p channels", Graph(rings=16, nvls_channels=16)),
        ("Trees [0] 14/-1/-1->13->12 [1] 14/-1/-1->13->12", Graph(trees=2, rank=13)),
        ("Trees [0] 1/-1/-1->0->7|7->0->1/-1/-1 [1] 1/-1/-1->0->7|7->0->1/-1/-1", Graph(trees=2, rank=0)),
        ("Trees [0] 22->23->-1/-1/-1 [1] -1->23->22/-1/-1", Graph(trees=2, rank=23)),
        ("Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1 comm 0xf3 nRanks 08 busId c1000", Graph(trees=2, rank=0)),
        ("Trees [0] 1/-1/-1->0->-1 [repeated 7x across cluster]", Graph(trees=1, rank=0)),
        ("Channel 00/02 :    0   1   2   3 [repeated 7x across cluster]", Graph(rings=2)),
        (
            "comm 0x55 rank 0 nranks 16 cudaDev 0 busId c1000 localSize 296 used 100 bytes on core 3 - Init COMPLETE",
            Init("0x55", 0, 16, "00000000:C1:00.0", "complete"),
        ),
        ("NCCL version 2.18.6+cuda12.1", Fact(version="2.18.6", cuda_version="12.1")),
        ("RCCL version : 2.26.6-HEAD:f224e2c", Fact(version="2.26.6")),
        ("RCCL version 2.18.3+hip5.7 HEAD:7a1cbb4", Fact(version="2.18.3")),
        ("Using network AWS Libfabric", Fact(network="AWS Libfabric")),
        ("Using network IBext_v8", Fact(network="IBext_v8")),
        (
            "NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_2:1/RoCE [RO]; OOB eth0:192.0.2.2<0>",
            Fact(devices=("mlx5_0:1", "mlx5_2:1")),
        ),
        (
            "NET/IB : Using [0]={[0] mlx5_2:1/RoCE, [1] mlx5_3:1/RoCE} [1]={[2] mlx5_0:1/RoCE} [RO]; OOB b:192.0.2.1",
            Fact(devices=("mlx5_2:1", "mlx5_3:1", "mlx5_0:1")),
        ),
        ("8 coll channels, 0 collnet channels, 8 p2p channels, 1 p2p channels per peer", Graph(rings=8)),
        ("NET/IB : No device found.", Fact(no_device=True)),
        ("NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", Fact(gdr_disabled="mlx5_0")),
        ("NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)", Fact(gdr_disabled="mlx5_0")),
        ("NVLS multicast support is not available on dev 2 (NVLS_NCHANNELS 0)", Fact(no_nvls=True)),
        ("Bootstrap : Using eth0:192.0.2.10<0>", Fact(begins=True)),
    ],
)
def test_facts(text: str, said: Said) -> None:
    """Communicators, rings, trees, and what is said once for the process."""
    assert parse(text) == said


@pytest.mark.parametrize(
    "text",
    [
        "GPU/1B000 (0/3/2) - NET/8 PCI/36000",
        "NET/8 (0/8/12.5)",
        "Tree 0 : -1 -> 0 -> 1/-1/-1",
        "              + PCI[48.0] - GPU/0-118000 (0)",
        "AllReduce: 33554432 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..31}",
        "+ PCI[24.0] - NIC/36000",
        "Ring 00 : 3 -> 2 -> 1",
        "=== System : maxBw 48.0 totalBw 48.0 ===",
        "NET/IB: Dev 0 Port 1 qpn 305 mtu 5 LID 4",
        "NET/Socket : Using [0]ens3:192.0.2.10<0> [1]docker0:192.0.2.11<0>",
        "DMA-BUF is available on GPU device 0",
        "MNNVL busId 0x44000 fabric UUID 0.0 cliqueId 0x0 state 3 healthMask 0x0",
        "Init timings - ncclCommInitRank: rank 2 nranks 8 total 0.75 (kernels 0.09)",
        "NVLS multicast support is available on dev 2",
        "transport/net.cc:1302 -> 6",
        "Trees [0] 1/-1/-1->0->-1 [1] 1/-",
        "Hipruntime version: 70226015, firmware version: 2650",
    ],
)
def test_what_only_looks_like_it_says_nothing(text: str) -> None:
    """Dumps of the topology, and lines that name a network without using it."""
    assert parse(text) is None


@pytest.mark.parametrize("length", range(12, len("Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/3") - 1))
def test_a_line_cut_short_is_never_another_channel(length: int) -> None:
    """Whatever a channel's line has lost, it says nothing or is refused."""
    try:
        said = parse("Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/3"[:length])
    except CutLineError:
        said = None

    assert said is None


@pytest.mark.parametrize("length", [40, 60, 76, 90])
def test_a_communicator_cut_short_is_none(length: int) -> None:
    """``nranks 12`` that has lost its end is not ``nranks 1``."""
    line = "comm 0x7efe60002250 rank 0 nranks 16 cudaDev 0 busId c6000 - Init COMPLETE"

    assert parse(line[: min(length, len(line) - 1)]) is None


def test_trees_that_may_have_lost_some_are_not_counted() -> None:
    """NCCL's buffer ends at 1,024 bytes, which may be the end of the list or not."""
    assert parse("Trees" + " [0] 14/-1/-1->13->12" * 48) is None
    assert parse("Trees [0] 3/-1/-1->2->1 [1] 3/-1/-1->2->1 [2]") is None


@pytest.mark.parametrize(
    ("number", "bus_id"),
    [("1b000", "0000:1b:00.0"), ("1e0", "0000:00:1e.0"), ("101c0", "0000:10:1c.0"), ("900c1001", "0900:c1:00.1")],
)
def test_bus_ids(number: str, bus_id: str) -> None:
    """One number, read as domain, bus, device and function; worked out by hand."""
    assert bus_id_of(number) == normal_bus_id(bus_id)


@pytest.mark.parametrize("number", ["", "1b208", "1b9", "ffffffffffff"])
def test_numbers_that_are_no_bus_id(number: str) -> None:
    """A device above 31, a function above 7, a domain of more than eight digits."""
    assert bus_id_of(number) == ""


def test_every_network_has_a_transport() -> None:
    """Names of NCCL's own networks and of plugins; an unknown one is ``other``."""
    names = ("IB", "IBP", "IBext", "IBext_v8", "Socket", "AWS Libfabric", "Libfabric", "FasTrak", "UCX")

    assert [transport_of(name) for name in names] == ["ib"] * 4 + ["socket"] + ["libfabric"] * 2 + ["other"] * 2
    assert {transport_of(name) for name in names} <= set(TRANSPORTS)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("NET/IB : Got completion from peer 192.0.2.9<5> with status=12 opcode=1 vendor err 129", "net_completion"),
        ("NET/IB : Got completion with error 4, opcode 8983, len 0, vendor err 81", "net_completion"),
        ("NET/OFI Request 0x7f completed with error. RC: 110. Error: Connection timed out", "net_completion"),
        ("NET/IB : mlx5_0:1 Got async event : port error", "net_async_event"),
        ("socketProgress: Connection closed by remote peer job-worker-3.headless<41000>", "remote_closed"),
        ("Net : Call to recv from 192.0.2.7<41000> failed : Connection reset by peer", "remote_closed"),
        ("Call to ibv_modify_qp failed with error Connection timed out", "net_setup"),
        ("Cuda failure 2 'out of memory'", "cuda"),
        ("nvmlDeviceGetHandleByPciBusId() failed: Not Found", "cuda"),
        ("Error while creating shared memory segment /dev/shm/nccl-Vpq2kN (size 9637888)", "memory"),
        ("Error: failed to extend /dev/shm/nccl-Vpq2kN to 5967876 bytes", "memory"),
        ("Failed to CUDA host alloc 4096 bytes", "memory"),
        ("Failed to malloc 4096 bytes", "memory"),
        ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000", "configuration"),
        ("[Proxy Service 3] Failed to execute operation Connect from rank 3, retcode 3", "proxy"),
        ("socketFinalizeAccept: wrong type 4 != 3", "socket"),
        ("Bootstrap : no socket interface found", "socket"),
        ('Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!', "configuration"),
        ("NUMA auto balancing enabled which can lead to variability in the RCCL performance!", "configuration"),
        ("something nobody has seen yet", "other"),
    ],
)  # fmt: skip
def test_kinds_of_warnings(text: str, kind: str) -> None:
    """The family of a warning, by what tells it."""
    assert kind_of(text) == kind


def test_kinds_are_those_of_the_model() -> None:
    """The table and the label's values are one list."""
    assert sorted([*(kind for kind, _ in KINDS), "other"]) == sorted(WARNING_KINDS)
