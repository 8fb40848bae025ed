"""What simulated ranks log is what the source of NCCL's logs reads out of it."""

from __future__ import annotations

import pytest

from straggler.simulate.dcgm_text import pci_bus_id
from straggler.simulate.nccl_log import render_log
from straggler.simulate.scenario import Scenario
from straggler.sources.nccl.patterns import Channel, Fact, Graph, Init, Said, parse

RUN = Scenario(ranks=8, nodes=2)


def said(rank: int, *, over_sockets: bool = False) -> list[Said]:
    """All that is read from the log of one rank."""
    log = render_log(RUN, rank, "node-b", 4242, over_sockets=over_sockets)
    return [found for line in log.splitlines() if (found := parse(line.partition("NCCL INFO ")[2] or line)) is not None]


def transports(rank: int, *, over_sockets: bool = False) -> list[str]:
    """By channel and direction, in order."""
    return [found.transport for found in said(rank, over_sockets=over_sockets) if isinstance(found, Channel)]


@pytest.mark.parametrize("rank", range(8))
def test_one_communicator_with_all_ranks(rank: int) -> None:
    """Each rank logs one communicator of eight, begun and complete, with the bus id of its own GPU."""
    inits = [found for found in said(rank) if isinstance(found, Init)]

    assert [(init.rank, init.nranks, init.what) for init in inits] == [(rank, 8, "start"), (rank, 8, "complete")]
    assert {init.bus_id for init in inits} == {pci_bus_id(rank % 4)}


def test_each_rank_leaves_its_node_once() -> None:
    """Of four channels each rank sends one over the network, receives one, and sends three inside the node."""
    for rank in range(8):
        channels = [found for found in said(rank) if isinstance(found, Channel)]
        assert sorted(channel.transport for channel in channels) == ["ib", "ib", "p2p", "p2p", "p2p"]
        assert {channel.own for channel in channels} == {rank}
        assert all(channel.gdr for channel in channels if channel.transport == "ib")
        assert sum(channel.receives for channel in channels) == 1


def test_senders_and_receivers_agree() -> None:
    """Who sends over the network on a channel is who the receiver names."""
    channels = [found for rank in range(8) for found in said(rank) if isinstance(found, Channel)]
    sent = {(one.number, one.own, one.peer) for one in channels if one.transport == "ib" and not one.receives}
    received = {(one.number, one.peer, one.own) for one in channels if one.receives}

    assert sent == received
    assert len(sent) == 8  # four channels, each over both gaps between two nodes


def test_fallback() -> None:
    """In an image without the library NCCL says that there is no adapter, and takes sockets, never GPUDirect."""
    facts = [found for found in said(5, over_sockets=True) if isinstance(found, Fact)]

    assert any(fact.no_device for fact in facts)
    assert [fact.network for fact in facts if fact.network] == ["Socket"]
    assert sorted(transports(5, over_sockets=True)) == ["p2p", "p2p", "p2p", "socket", "socket"]


def test_adapters_are_named() -> None:
    """Otherwise it lists the adapters, uses InfiniBand, and tells its rings; rank 0 tells the version."""
    facts = [found for found in said(0) if isinstance(found, Fact)]
    rings = [found.rings for found in said(0) if isinstance(found, Graph)]

    assert [fact.devices for fact in facts if fact.devices] == [("mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_3:1")]
    assert [fact.network for fact in facts if fact.network] == ["IB"]
    assert [fact.version for fact in facts if fact.version] == ["2.21.5"]
    assert rings == [4] * 4
