"""What NCCL says, in all its versions: one pattern for each thing, with a line that it matches. Pure.

Sources: NVIDIA/nccl, the format strings of init.cc, transport/{p2p,shm,net,net_ib,net_socket,coll_net,nvls}.cc at the
tags v2.4 to v2.30; plugins print their own name where NCCL prints ``IB``. What is cut short in the middle of a value
does not match: a number that lacks its end is another number.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Init(NamedTuple):
    """A communicator is being made, is made, or is gone."""

    comm: str
    """Its address in the process."""
    rank: int
    nranks: int
    bus_id: str
    """Normal; ``""`` where the line has none."""
    what: str
    """``start``, ``complete`` or ``end``."""


class Channel(NamedTuple):
    """One connection of one channel."""

    number: int
    own: int
    """The rank that logs it: the sender, or in a ``[receive]`` the receiver."""
    peer: int
    transport: str
    """One of ``model.nccl.TRANSPORTS``."""
    receives: bool
    gdr: bool


class Graph(NamedTuple):
    """How many rings or trees there are; ``None``: not said."""

    rings: int | None = None
    trees: int | None = None
    nvls_channels: int | None = None
    rank: int | None = None
    """Whose line it is, where it tells."""


class Fact(NamedTuple):
    """Something about the whole process."""

    version: str = ""
    cuda_version: str = ""
    network: str = ""
    devices: tuple[str, ...] = ()
    no_device: bool = False
    gdr_disabled: str = ""
    no_nvls: bool = False
    begins: bool = False
    """Whether it is the first thing that a process says."""


Said = Init | Channel | Graph | Fact

# ncclCommInitRank comm 0x542f3f0 rank 2 nranks 8 cudaDev 0 nvmlDev 0 busId 88000 commId 0x70fba02a - Init COMPLETE
#                                                                                                    (v2.21 and newer)
# comm 0x7efe60002250 rank 0 nranks 16 cudaDev 0 busId 6000 - Init COMPLETE                          (v2.8 to v2.18.1)
# ncclCommSplit comm 0x55d0d0 rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 18000 parent 0x55d0c0 … key 0- Init START
#                                                                                                    (v2.23 and newer)
# comm 0x636b080 rank 3 nranks 8 cudaDev 1 busId cb000 - Destroy COMPLETE                            (all)
_INIT = re.compile(
    r"\bcomm (0x[0-9a-f]{1,16}) rank (\d{1,7}) nranks (\d{1,7}) cudaDev \d{1,4}(?: nvmlDev \d{1,4})?"
    r"(?: busId ([0-9a-f]{1,12}))?\b.{0,200}?- ?(Init START|Init COMPLETE|Destroy COMPLETE|Abort COMPLETE)"
)
_INIT_WHAT: Final = {
    "Init START": "start",
    "Init COMPLETE": "complete",
    "Destroy COMPLETE": "end",
    "Abort COMPLETE": "end",
}

# Ring 00 : 3[3] -> 1[1] via P2P/IPC                                             (v2.4: cudaDev in brackets)
# Ring 00 : 15 -> 0 [receive] via NET/Socket/0                                   (v2.4: no brackets)
# Channel 00 : 0[6000] -> 7[c6000] via P2P/direct pointer                        (v2.8 to v2.12: hexadecimal bus id)
# Channel 00/0 : 3[1] -> 4[0] [send] via NET/IBext_v8/5(2)/GDRDMA                (v2.14 and newer; (2): by rank 2's NIC)
# Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/3(1)/GDRDMA(PCI)/Shared          (v2.26 and newer)
# Channel 00 : 0[0] -> 1[1] via SHM/direct/direct                                (v2.14 and newer)
_CHANNEL = re.compile(
    r"(?:Channel|Ring) (\d{1,3})(?:/\d{1,3})? : (\d{1,7})(?:\[[0-9a-f]{1,12}\])? -> (\d{1,7})(?:\[[0-9a-f]{1,12}\])?"
    r"(?: \[(send|receive)\])? via (.{1,120})"
)
_CHANNEL_START = re.compile(r"(?:Channel|Ring) \d{1,3}(?:/\d{1,3})? : \d{1,7}(?:\[|  ?->)")

# NET/IBext_v8/5(2)/GDRDMA, NET/AWS Libfabric/0/GDRDMA, COLLNET/SHARP/0/GDRDMA      (the end of the line above)
_NET = re.compile(r"(NET|COLLNET)/([\w .-]{1,32})/\d{1,3}(?:\(\d{1,7}\))?((?:/\w{1,12}(?:\(\w{1,8}\))?)*)")
# Coll 00/0 : 3 [receive] via COLLNET/SHARP/0/GDRDMA                                (v2.8 and newer)
_COLLNET = re.compile(r"Coll (\d{1,3})(?:/\d{1,3})? : (\d{1,7}) \[(send|receive)\] via (COLLNET/.{1,120})")

_LOCAL: Final = (
    ("P2P/", "p2p"),
    ("SHM", "shm"),
    ("direct shared memory", "shm"),
)

NETWORKS: Final = (
    (re.compile(r"IB(?:P|ext.*)?|gIB"), "ib"),  # NCCL's own, the plugins of HPC-X (IBext_v8) and of Google's RoCE
    (re.compile(r"Socket"), "socket"),
    (re.compile(r"(?:AWS )?Libfabric|OFI"), "libfabric"),
)
"""The transport behind a network's name; another name is ``other``."""

# What may follow a list that is whole: RCCL's " comm 0x1 nRanks 08 busId c1000", Ray's " [repeated 7x across cluster]",
# the end of a quotation.
_WHOLE = r"(?:$| comm 0x| \[repeated |[\\\"'])"
# Channel 00/02 :    0   1   2   3          (all versions; 02 is how many there are)
_RINGS = re.compile(r"Channel \d{1,3}/(\d{1,3}) : +\d{1,7}(?: +\d{1,7})+" + _WHOLE)
# 24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer
#                                                                                  (v2.18 and newer; collnet from v2.21)
_COUNTS = re.compile(r"(\d{1,3}) coll channels, (?:\d{1,3} collnet channels, )?(?:(\d{1,3}) nvls channels, )?\d")
# Trees [0] 1/-1/-1->0->7|7->0->1/-1/-1 [1] …     (v2.5), Trees [0] 14/-1/-1->13->12 [1] …      (v2.7 and newer)
# Trees [0] 7->0->1/-1/-1 [1] …                   (v2.4)
_DOWN = r"[-\d]{1,7}/[-\d]{1,7}/[-\d]{1,7}"
_TREE = rf" \[\d{{1,3}}\] (?:{_DOWN}->\d{{1,7}}->[-\d]{{1,7}}(?:\|[-\d/>]{{1,60}})?|[-\d]{{1,7}}->\d{{1,7}}->{_DOWN})"
_TREES = re.compile(rf"Trees((?:{_TREE})+){_WHOLE}")
_TREE_RANK = re.compile(r"->(\d{1,7})->")
_MOST_TREES_TEXT: Final = 960
"""Near NCCL's 1,024 bytes a list of trees may have lost its end."""

# NCCL version 2.18.6+cuda12.1             (all versions)
# RCCL version : 2.22.3-develop:7a1cbb4    (AMD's, which counts as NCCL does)
_VERSION = re.compile(r"^[NR]CCL version (?:: )?(\d{1,3}(?:\.\d{1,3}){1,3})(?:\+cuda(\d{1,3}\.\d{1,3}))?")
# Using network AWS Libfabric              (v2.7 and newer)
_NETWORK = re.compile(r"^Using network ([\w-]{1,32}(?: Libfabric)?)")
# NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_2:1/RoCE [RO]; OOB eth0:192.0.2.2<0>                  (v2.4 to v2.30)
# NET/IB : Using [0]={[0] mlx5_2:1/RoCE, [1] mlx5_3:1/RoCE} [1]={[2] mlx5_0:1/RoCE} [RO]; OOB …     (merged adapters)
_DEVICES = re.compile(r"^NET/IB\w{0,16} ?: Using (\[\d.*?); OOB ")
_DEVICE = re.compile(r"\[\d{1,3}\] ?([\w.+-]{1,64}:\d{1,3})/")
# NET/IB : No device found.                (all versions)
_NO_DEVICE = re.compile(r"^NET/IB\w{0,16} ?: No device found")
# NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'        (v2.13 and newer; '(no module)' before, a quote may lack)
_GDR_DISABLED = re.compile(r"^NET/[\w ]{1,32} ?: GPU Direct RDMA Disabled for HCA \d{1,3} '([\w.+-]{1,64})(?:'|$)")
# NVLS multicast support is not available on dev 2 (NVLS_NCHANNELS 0)                   (v2.17 and newer)
_NO_NVLS = re.compile(r"^NVLS multicast support is not available")
# Bootstrap : Using eth0:192.0.2.10<0>     (v2.5 and newer; v2.23 and newer without the blank): once in each process
_BEGINS = re.compile(r"^Bootstrap ?: Using ")


class CutLineError(ValueError):
    """The line is about a channel, and its end is missing."""


def parse(text: str) -> Said | None:
    """Read one message; ``None`` where it says nothing that is used.

    Args:
        text: without its prefix.

    Raises:
        CutLineError: a line about a channel does not tell by what it goes.
    """
    if " : " in text or " via " in text:
        if said := _channel(text):
            return said
        if match := _RINGS.match(text):
            return Graph(rings=int(match[1]))
    if "comm 0x" in text and (match := _INIT.search(text)):
        comm, rank, nranks, bus, what = match.groups()
        return Init(comm, int(rank), int(nranks), bus_id_of(bus or ""), _INIT_WHAT[what])
    if match := _COUNTS.match(text):
        return Graph(rings=int(match[1]), nvls_channels=None if match[2] is None else int(match[2]))
    if text.startswith("Trees "):
        return _trees(text)
    return _fact(text)


def transport_of(network: str) -> str:
    """The transport behind a network's name, as NCCL or a plugin calls it."""
    return next((name for pattern, name in NETWORKS if pattern.fullmatch(network)), "other")


def bus_id_of(text: str) -> str:
    """Turn NCCL's ``busId`` into a normal bus id; ``""`` where it is none.

    It is one hexadecimal number: domain, 8 bits of bus, 8 of device, 4 of function. ``1b000`` is 0000:1b:00.0, and
    ``1e0`` is 0000:00:1e.0.
    """
    if not text:
        return ""
    number = int(text, 16)
    domain, bus, device, function = number >> 20, number >> 12 & 0xFF, number >> 4 & 0xFF, number & 0xF
    if domain > 0xFFFFFFFF or device > 0x1F or function > 7:
        return ""
    return f"{domain:08X}:{bus:02X}:{device:02X}.{function}"


def _channel(text: str) -> Channel | None:
    if match := _COLLNET.match(text):
        number, own, direction, via = match.groups()
        found = _via(via)
        if found is None:
            raise CutLineError(text)
        return Channel(int(number), int(own), int(own), found[0], direction == "receive", found[1])
    match = _CHANNEL.match(text)
    found = _via(match[5]) if match else None
    if match is None or found is None:
        # Ring 00 : 3 -> 2 -> 1 is another thing: the order of a ring, in a dump of the topology
        if match is not None or (_CHANNEL_START.match(text) and text.count("->") < 2):
            raise CutLineError(text)
        return None
    sender, receiver, receives = int(match[2]), int(match[3]), match[4] == "receive"
    own, peer = (receiver, sender) if receives else (sender, receiver)
    return Channel(int(match[1]), own, peer, found[0], receives, found[1])


def _via(text: str) -> tuple[str, bool] | None:
    """By what it goes, and whether by GPUDirect RDMA; ``None`` where the text is cut before it tells."""
    for start, transport in _LOCAL:
        if text.startswith(start):
            return transport, False
    match = _NET.match(text)
    if match is None:
        return None
    transport = "collnet" if match[1] == "COLLNET" else transport_of(match[2])
    return transport, "/GDRDMA" in match[3]


def _trees(text: str) -> Graph | None:
    match = _TREES.match(text)
    if match is None or len(text) > _MOST_TREES_TEXT:
        return None
    ranks = set(_TREE_RANK.findall(match[1]))
    return Graph(trees=match[1].count(" ["), rank=int(ranks.pop()) if len(ranks) == 1 else None)


def _fact(text: str) -> Fact | None:
    if match := _VERSION.match(text):
        return Fact(version=match[1], cuda_version=match[2] or "")
    if match := _NETWORK.match(text):
        return Fact(network=match[1])
    if match := _DEVICES.match(text):
        return Fact(devices=tuple(_DEVICE.findall(match[1])))
    if _NO_DEVICE.match(text):
        return Fact(no_device=True)
    if match := _GDR_DISABLED.match(text):
        return Fact(gdr_disabled=match[1])
    if _NO_NVLS.match(text):
        return Fact(no_nvls=True)
    return Fact(begins=True) if _BEGINS.match(text) else None
