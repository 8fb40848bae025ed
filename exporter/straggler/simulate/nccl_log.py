"""What NCCL would log of a simulated rank, with ``NCCL_DEBUG=INFO``, while its communicator is made. Pure.

Each rank sits beside an adapter of its own and there are as many channels as adapters; each channel leaves a node by
another one of them. NCCL chooses its network when it starts and keeps it; and it does so for the whole job: a rank on
sockets and one on InfiniBand do not come together (old versions hang, newer ones refuse).
"""

from __future__ import annotations

from pathlib import Path

from straggler.simulate.dcgm_text import pci_bus_id
from straggler.simulate.scenario import Scenario

VERSION = "2.21.5+cuda12.4"
NO_VERBS = "Failed to open libibverbs.so[.1]"
"""What NCCL says in an image without that library, before it says that it found no device."""
_COMM_ID = "0x70fba02a8d314739"


def device_name(gpu: int) -> str:
    """The adapter beside a GPU, e.g. ``mlx5_0``."""
    return f"mlx5_{gpu}"


def nccl_logs(directory: Path, host: str) -> Path:
    """Where the ranks of a node write, in the directory of a run."""
    return directory / "nccl" / host


def render_log(scenario: Scenario, rank: int, host: str, pid: int, *, over_sockets: bool) -> str:
    """The whole log of one rank.

    Args:
        scenario: who its peers are.
        rank: the global one.
        host: its node's name.
        pid: its process.
        over_sockets: NCCL found no adapter.
    """
    ranks = scenario.ranks_on(scenario.node_of(rank))
    gpu = rank - ranks.start
    comm = f"comm {hex(0x55D7869CEF50 + rank)} rank {rank} nranks {scenario.ranks} cudaDev {gpu} nvmlDev {gpu}"
    comm += f" busId {_nccl_bus_id(gpu)} commId {_COMM_ID}"
    lines = [
        f"Bootstrap : Using eth0:192.0.2.{10 + scenario.node_of(rank)}<0>",
        "NET/Plugin: No plugin found (libnccl-net.so), using internal implementation",
        *(_sockets(scenario, rank) if over_sockets else _adapters(scenario, rank)),
        f"ncclCommInitRank {comm} - Init START",
        *(f"Channel {channel:02d}/{len(ranks):02d} : {_ring(scenario, channel)}" for channel in range(len(ranks))),
        *_connections(scenario, rank, "Socket" if over_sockets else "IB"),
        "Connected all rings",
        "Connected all trees",
        f"ncclCommInitRank {comm} - Init COMPLETE",
    ]
    prefix = f"{host}:{pid}:{pid + 20} [{gpu}] NCCL INFO"
    version = [f"NCCL version {VERSION}"] if rank == 0 else []
    return "".join(f"{line}\n" for line in [*version, *(f"{prefix} {line}" for line in lines)])


def _sockets(scenario: Scenario, rank: int) -> list[str]:
    return [
        NO_VERBS,
        "NET/IB : No device found.",
        f"NET/Socket : Using [0]eth0:192.0.2.{10 + scenario.node_of(rank)}<0>",
        "Using non-device net plugin version 0",
        "Using network Socket",
    ]


def _adapters(scenario: Scenario, rank: int) -> list[str]:
    node = scenario.node_of(rank)
    found = " ".join(f"[{gpu}]{device_name(gpu)}:1/IB" for gpu in range(len(scenario.ranks_on(node))))
    return [
        f"NET/IB : Using {found} [RO]; OOB eth0:192.0.2.{10 + node}<0>",
        "Using non-device net plugin version 0",
        "Using network IB",
    ]


def _order(scenario: Scenario, channel: int) -> list[int]:
    """The ring of a channel: nodes in order, on each node first the rank beside the channel's adapter."""
    order: list[int] = []
    for node in range(scenario.nodes):
        ranks = list(scenario.ranks_on(node))
        first = channel % len(ranks)
        order += ranks[first:] + ranks[:first]
    return order


def _ring(scenario: Scenario, channel: int) -> str:
    return " ".join(f"{rank:3d}" for rank in _order(scenario, channel))


def _connections(scenario: Scenario, rank: int, network: str) -> list[str]:
    """What a rank says of each channel: whom it receives from over the network, and whom it sends to."""
    lines = []
    for channel in range(len(scenario.ranks_on(scenario.node_of(rank)))):
        order = _order(scenario, channel)
        at = order.index(rank)
        before, after = order[at - 1], order[(at + 1) % len(order)]
        via = f"NET/{network}/{0 if network == 'Socket' else _gpu(scenario, rank)}"
        via += "" if network == "Socket" else "/GDRDMA"
        if scenario.node_of(before) != scenario.node_of(rank):
            lines.append(f"Channel {channel:02d}/0 : {_pair(scenario, before, rank)} [receive] via {via}")
        if scenario.node_of(after) != scenario.node_of(rank):
            lines.append(f"Channel {channel:02d}/0 : {_pair(scenario, rank, after)} [send] via {via}")
        else:
            lines.append(f"Channel {channel:02d}/0 : {_pair(scenario, rank, after)} via P2P/CUMEM/read")
    return lines


def _pair(scenario: Scenario, sender: int, receiver: int) -> str:
    return f"{sender}[{_gpu(scenario, sender)}] -> {receiver}[{_gpu(scenario, receiver)}]"


def _gpu(scenario: Scenario, rank: int) -> int:
    return rank - scenario.ranks_on(scenario.node_of(rank)).start


def _nccl_bus_id(gpu: int) -> str:
    """As NCCL prints it: one hexadecimal number of domain, bus, device and function."""
    domain, bus, rest = pci_bus_id(gpu).split(":")
    device, function = rest.split(".")
    return f"{int(domain, 16) << 20 | int(bus, 16) << 12 | int(device, 16) << 4 | int(function, 16):x}"
