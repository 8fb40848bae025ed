"""What many lines amount to: communicators, their channels, and whose they are."""

from __future__ import annotations

import pytest

from straggler.model.nccl import NcclFacts
from straggler.sources.nccl.book import LogBook
from straggler.sources.nccl.communicators import MAX_COMMUNICATORS

BUS = "cudaDev 0 nvmlDev 0 busId 1b000"


def said(*texts: str, who: str = "n:1:2 [0]") -> list[str]:
    """Lines of one process."""
    return [f"{who} NCCL INFO {text}" for text in texts]


def read(*lines: str) -> list[NcclFacts]:
    """What a log amounts to."""
    book = LogBook()
    book.hear(lines)
    return list(book.facts())


def start(comm: str, rank: int, nranks: int, what: str = "Init START") -> str:
    """The line that announces a communicator."""
    return f"comm {comm} rank {rank} nranks {nranks} {BUS} commId 0x7 - {what}"


def net(number: int, sender: int, receiver: int, via: str, way: str = "receive") -> str:
    """A channel between nodes."""
    return f"Channel {number:02}/0 : {sender}[0] -> {receiver}[0] [{way}] via NET/{via}"


def test_the_world_is_the_communicator_with_the_most_ranks() -> None:
    """Of many communicators the greatest tells rank and size, whichever came last; all of them tell the channels."""
    (facts,) = read(
        *said(
            start("0xa", 5, 16),
            net(0, 4, 5, "IB/0/GDRDMA"),
            start("0xb", 1, 2),
            "Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM",
            start("0xb", 1, 2, "Init COMPLETE"),
        )
    )

    assert (facts.rank, facts.nranks, facts.channels) == (5, 16, {"p2p": 1, "ib": 1})


def test_a_channel_goes_to_a_communicator_that_has_both_ranks() -> None:
    """Since v2.22 channels come late: when a communicator ends, only its own channels go with it."""
    (facts,) = read(
        *said(
            start("0xa", 1, 16),
            start("0xb", 1, 2),
            net(3, 12, 1, "Socket/0"),
            "Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM",
            start("0xb", 1, 2, "Destroy COMPLETE"),
        )
    )

    assert facts.channels == {"socket": 1}


def test_before_218_a_communicator_is_named_after_its_channels() -> None:
    """Old versions say only COMPLETE, and what stood before it belongs to it."""
    (facts,) = read(
        *said(
            "Channel 00/04 :    0   1   2   3",
            net(0, 3, 0, "IB/0"),
            "comm 0xa rank 0 nranks 4 cudaDev 0 busId 1b000 - Init COMPLETE",
        )
    )

    assert (facts.nranks, facts.channels, facts.rings, facts.is_complete) == (4, {"ib": 1}, 4, True)
    assert facts.pci_bus_id == "00000000:1B:00.0"


def test_a_channel_counts_once() -> None:
    """Send and receive, and a repeated line, are one channel; two transports on one are both told."""
    (facts,) = read(
        *said(
            start("0xa", 0, 4),
            net(0, 3, 0, "IB/0"),
            net(0, 3, 0, "IB/0"),
            net(0, 0, 3, "IB/0", "send"),
            net(1, 3, 0, "IB/1"),
            "Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM",
        )
    )

    assert facts.channels == {"p2p": 1, "ib": 2}


def test_gdr_is_judged_by_what_is_received() -> None:
    """On many platforms NCCL sends without GPUDirect RDMA by its own choice: that alone is no fault."""
    (sends,) = read(*said(start("0xa", 0, 4), net(0, 0, 3, "IB/0", "send")))
    (half,) = read(*said(start("0xa", 0, 4), net(0, 3, 0, "IB/0/GDRDMA"), net(1, 3, 0, "IB/0")))
    (sockets,) = read(*said(start("0xa", 0, 4), net(0, 3, 0, "Socket/0")))

    assert (sends.gdr_ratio, half.gdr_ratio, sockets.gdr_ratio) == (None, 0.5, None)


def test_each_gpu_of_a_process_is_a_rank() -> None:
    """One process with several GPUs has several ranks, apart by their bus ids."""
    facts = read(
        "n:1:2 [0] NCCL INFO comm 0xa rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 6000 commId 0x7 - Init START",
        "n:1:3 [1] NCCL INFO comm 0xb rank 1 nranks 4 cudaDev 1 nvmlDev 1 busId 7000 commId 0x7 - Init START",
        "n:1:3 [1] NCCL INFO Channel 00/0 : 1[1] -> 2[2] via SHM/direct/direct",
    )

    assert [(each.rank, each.pci_bus_id, each.channels) for each in facts] == [
        (0, "00000000:06:00.0", {}),
        (1, "00000000:07:00.0", {"shm": 1}),
    ]


def test_a_process_that_starts_again_under_its_pid_is_another() -> None:
    """A container that is started again has the same host and pid: what the first one used is forgotten."""
    (facts,) = read(
        *said(
            "Bootstrap : Using eth0:192.0.2.1<0>",
            "NET/IB : No device found.",
            "Using network Socket",
            start("0xa", 0, 16),
            net(0, 15, 0, "Socket/0"),
            "Bootstrap : Using eth0:192.0.2.1<0>",
            start("0xa", 0, 8),
            net(0, 7, 0, "IB/0/GDRDMA"),
        )
    )

    assert (facts.nranks, facts.channels, facts.gdr_ratio) == (8, {"ib": 1}, 1.0)
    assert (facts.network, facts.no_rdma_device) == ("", False)


def test_a_communicator_that_is_gone_is_not_the_world() -> None:
    """After its end another one speaks for the rank, also a smaller one."""
    (facts,) = read(
        *said(
            start("0xa", 0, 16), net(0, 15, 0, "Socket/0"), start("0xa", 0, 16, "Destroy COMPLETE"), start("0xb", 0, 8)
        )
    )

    assert (facts.nranks, facts.channels) == (8, {})


def test_versions_without_a_prefix_are_the_logs() -> None:
    """The first rank prints the version without saying who it is; who says its own is believed first."""
    first, second = read(
        "NCCL version 2.18.6+cuda12.1",
        *said("Using network Socket", who="n:1:2 [0]"),
        *said("NCCL version 2.21.5+cuda12.4", who="n:2:3 [0]"),
    )

    assert (first.version, first.network, second.version, second.cuda_version) == ("2.18.6", "Socket", "2.21.5", "12.4")


@pytest.mark.parametrize(
    ("texts", "nvls"),
    [
        (["NVLS multicast support is not available on dev 0"], False),
        (["NVLS multicast support is available on dev 0"], None),
        (["16 coll channels, 0 collnet channels, 16 nvls channels, 16 p2p channels, 1 p2p channels per peer"], True),
        (["16 coll channels, 0 collnet channels, 0 nvls channels, 16 p2p channels, 1 p2p channels per peer"], False),
    ],
)
def test_nvls_is_what_is_used(texts: list[str], nvls: object) -> None:
    """That the hardware could is not that it does."""
    (facts,) = read(*said(start("0xa", 0, 8), *texts))

    assert facts.nvls is nvls


def test_devices_that_are_found_are_not_devices_in_use() -> None:
    """NCCL lists adapters and then may use sockets all the same: only the channels decide."""
    (facts,) = read(
        *said("NET/IB : Using [0]mlx5_0:1/IB ; OOB ib0:192.0.2.1<0>", "Using network Socket", start("0xa", 0, 2))
    )

    assert (facts.rdma_devices, facts.network, facts.channels) == (("mlx5_0:1",), "Socket", {})


def test_warnings_are_counted_by_kind() -> None:
    """Each line marked as a warning counts once."""
    line = "n:1:9 [0] transport/net_ib.cc:2245 NCCL WARN NET/IB: Got completion from peer 192.0.2.8<1> with status=12"
    (facts,) = read(line, line, "n:1:9 [0] misc/socket.cc:58 NCCL WARN Connection closed by remote peer w<1>")

    assert facts.warnings == {"net_completion": 2, "remote_closed": 1}


def test_a_cut_channel_is_counted_and_not_guessed() -> None:
    """Neither a transport nor the lack of GPUDirect RDMA follows from a line that has lost its end."""
    book = LogBook()
    book.hear(
        [
            *said("Using network IB", "Channel 00/0 : 3[0] -> 0[0] [receive] via NE"),
            "n:1:2 [0] NCCL INFO Channel 00/0 : 3[0] -> 0[0] [receive] via NET/IB/0n:3:4 [1] NCCL INFO x",
            "n:1:2 [0] NCCL INFO Channel 00/0 : 3[0] -> 0[0] [receive] via NET/IB/0/GDRDn:3:4 [1] NCCL INFO x",
        ]
    )

    assert book.take_refused() == {"cut_line": 3}
    assert [facts.channels for facts in book.facts()] == [{}]


def test_too_many_processes_are_refused() -> None:
    """A log of a whole job, or of somebody who makes processes up, has a limit, and what is known stays."""
    book = LogBook()
    book.hear([f"n:{pid}:2 [0] NCCL INFO Using network IB" for pid in range(10)], room=4)

    assert len(list(book.facts())) == book.processes == 4
    assert book.take_refused() == {"too_many_processes": 6}
    assert book.take_refused() == {}


def test_too_many_communicators_drop_the_smallest() -> None:
    """The world stays, whatever else a process makes."""
    book = LogBook()
    book.hear(
        said(start("0xffff", 3, 1024), *(start(f"0x{number:x}", 0, 2) for number in range(2 * MAX_COMMUNICATORS)))
    )

    assert [facts.nranks for facts in book.facts()] == [1024]
    assert book.take_refused() == {"too_many_communicators": MAX_COMMUNICATORS + 1}


def test_communicators_that_are_over_are_dropped_in_silence() -> None:
    """A program that makes and destroys communicators for ever loses nothing that it still uses."""
    book = LogBook()
    for number in range(2 * MAX_COMMUNICATORS):
        book.hear(said(start(f"0x{number:x}", 0, 2), start(f"0x{number:x}", 0, 2, "Destroy COMPLETE")))

    assert book.take_refused() == {}


def test_of_two_worlds_the_complete_one_is_the_world() -> None:
    """A second communicator of all ranks that never came up does not say who the rank is."""
    (facts,) = read(*said(start("0xa", 5, 16), start("0xa", 5, 16, "Init COMPLETE"), start("0xb", 3, 16)))

    assert (facts.rank, facts.is_complete) == (5, True)


def test_a_line_of_many_is_refused() -> None:
    """No pipe mixes so many; whoever repeats NCCL's words a thousand times in a line shall not cost a second."""
    book = LogBook()
    book.hear(["n:1:2 [0] NCCL INFO Using network IB " * 1000])

    assert (list(book.facts()), book.take_refused()) == ([], {"crowded_line": 1})
