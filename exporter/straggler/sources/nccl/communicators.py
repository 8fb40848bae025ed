"""What one process has said: its communicators, each with its channels. Pure.

A channel's line does not name its communicator. Up to v2.21 the lines stand between the communicator's START and
COMPLETE, since then after it, when it is first used. So a line counts for the youngest communicator in which the rank
that logs it exists and the other one too. That may still be the wrong one, and a process makes many: one for the world,
one for each axis of parallelism. So the one with the most ranks says who the rank is, and the channels of all that are
not over say how it reaches its peers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from straggler.model.nccl import TRANSPORTS, NcclFacts
from straggler.sources.nccl.patterns import Channel, Fact, Graph, Init

_DIRECT: Final = ("ib", "libfabric", "other")
"""Transports between nodes that can reach GPU memory by themselves."""

MAX_COMMUNICATORS: Final = 64
"""Of one process that are kept. A training process has some dozens: one for each axis of its parallelism."""
_MAX_NAMES: Final = 32
_MAX_UNPLACED: Final = 4


@dataclass(slots=True)
class _Communicator:
    """One rank's part in one communicator. Channels are bits: 64 are the most that NCCL makes."""

    comm: str
    """Its address; ``""`` where the log does not have its making."""
    rank: int
    nranks: int | None = None
    bus_id: str = ""
    is_complete: bool = False
    is_over: bool = False
    rings: int | None = None
    trees: int | None = None
    nvls_channels: int | None = None
    channels: dict[str, int] = field(default_factory=dict)
    received: int = 0
    """Channels on which the rank receives from another node by one of ``_DIRECT`` …"""
    received_by_gdr: int = 0
    """… and those of them that end in GPU memory."""

    def describe(self, said: Graph) -> None:
        """Note how many rings, trees and channels it has."""
        self.rings = self.rings if said.rings is None else said.rings
        self.trees = self.trees if said.trees is None else said.trees
        self.nvls_channels = self.nvls_channels if said.nvls_channels is None else said.nvls_channels

    def has(self, *ranks: int) -> bool:
        """Whether these ranks can be in it."""
        return self.nranks is None or max(ranks) < self.nranks


class Process:
    """One process, as far as its log tells."""

    def __init__(self, host: str, pid: int | None) -> None:
        self.host = host
        self.pid = pid
        self.version = ""
        self.cuda_version = ""
        self.refused = 0
        """Communicators that were dropped for others."""
        self._warnings: Counter[str] = Counter()
        self._begin()

    def _begin(self) -> None:
        """Forget what an earlier process said that had the same pid, as in a container that was started again."""
        self._network = ""
        self._devices: tuple[str, ...] = ()
        self._no_device = False
        self._gdr_disabled: dict[str, None] = {}
        self._no_nvls = False
        self._communicators: dict[tuple[str, int], _Communicator] = {}
        """The youngest last."""
        self._unplaced: list[Graph] = []
        """Said before anything told of a communicator: it is about the next one."""

    def warn(self, kind: str) -> None:
        """Count a warning."""
        self._warnings[kind] += 1

    def hear(self, said: Init | Channel | Graph | Fact) -> None:
        """Take in one message."""
        match said:
            case Init():
                self._init(said)
            case Channel():
                self._channel(said)
            case Graph():
                self._graph(said)
            case Fact():
                self._fact(said)

    def facts(self, *, version: str, cuda_version: str) -> Iterator[NcclFacts]:
        """What is known of each rank in it: one, but for a process that has several GPUs.

        Args:
            version: that the file names without saying whose; counts where the process has not said its own.
            cuda_version: the same.
        """
        own = (self.version, self.cuda_version) if self.version else (version, cuda_version)
        groups = self._by_gpu()
        for communicators in groups or [[]]:
            # of equals the youngest, which is last
            world = max(reversed(communicators), key=_worldliness, default=None)
            yield self._facts(world, communicators, *own)

    def _facts(
        self, world: _Communicator | None, communicators: Iterable[_Communicator], version: str, cuda_version: str
    ) -> NcclFacts:
        used = [each for each in communicators if not each.is_over]
        about = world
        if about is None:
            about = _Communicator("", 0)
            for said in self._unplaced:
                about.describe(said)
        return NcclFacts(
            host=self.host,
            pid=self.pid,
            rank=world.rank if world else None,
            nranks=about.nranks,
            pci_bus_id=about.bus_id,
            version=version,
            cuda_version=cuda_version,
            network=self._network,
            channels=_channels(used),
            gdr_ratio=_gdr_ratio(used),
            gdr_disabled=tuple(self._gdr_disabled),
            rdma_devices=self._devices,
            no_rdma_device=self._no_device and not self._devices,
            nvls=self._nvls(used or [about]),
            rings=about.rings,
            trees=about.trees,
            is_complete=about.is_complete,
            warnings=dict(self._warnings),
        )

    def _nvls(self, used: Iterable[_Communicator]) -> bool | None:
        counts = [each.nvls_channels for each in used if each.nvls_channels is not None]
        if counts:
            return any(counts)
        return False if self._no_nvls else None

    def _by_gpu(self) -> list[list[_Communicator]]:
        """The communicators, apart for each of the process's GPUs; those whose GPU is not told go by their rank."""
        groups: dict[str, list[_Communicator]] = {}
        for each in self._communicators.values():
            if each.bus_id:
                groups.setdefault(each.bus_id, []).append(each)
        for each in self._communicators.values():
            if not each.bus_id:
                same_rank = (name for name, group in groups.items() if any(other.rank == each.rank for other in group))
                groups.setdefault(next(same_rank, f"rank {each.rank}"), []).append(each)
        return list(groups.values())

    def _init(self, said: Init) -> None:
        key = (said.comm, said.rank)
        known = self._communicators.get(key)
        if said.what == "end":
            if known is not None:
                known.is_over = True
            else:
                self._add(_Communicator(said.comm, said.rank, said.nranks, said.bus_id, is_over=True))
            return
        if known is None and said.what == "complete":
            # up to v2.18.1 nothing announces it, and its channels stand before
            known = self._communicators.pop(("", said.rank), None) or _Communicator("", said.rank)
            known.comm, known.nranks, known.bus_id = said.comm, said.nranks, said.bus_id
            self._add(known)
        elif known is None or said.what == "start" or known.is_over:
            # an address is used again once its communicator is gone
            known = self._add(_Communicator(said.comm, said.rank, said.nranks, said.bus_id))
        known.is_complete |= said.what == "complete"

    def _channel(self, said: Channel) -> None:
        place = self._of_rank(said.own, said.peer) or self._add(_Communicator("", said.own))
        bit = 1 << said.number
        place.channels[said.transport] = place.channels.get(said.transport, 0) | bit
        if said.receives and said.transport in _DIRECT:
            place.received |= bit
            if said.gdr:
                place.received_by_gdr |= bit

    def _graph(self, said: Graph) -> None:
        living = [each for each in self._communicators.values() if not each.is_over]
        if said.rank is not None:
            place = self._of_rank(said.rank, said.rank) or self._add(_Communicator("", said.rank))
            place.describe(said)
        elif not living:
            self._unplaced = [*self._unplaced, said][-_MAX_UNPLACED:]
        elif len({each.rank for each in living}) == 1 or len({each.bus_id for each in living}) == 1:
            living[-1].describe(said)

    def _fact(self, said: Fact) -> None:
        if said.begins:
            self._begin()
        if said.version:
            self.version, self.cuda_version = said.version, said.cuda_version
        self._network = said.network or self._network
        self._devices = said.devices[:_MAX_NAMES] or self._devices
        self._no_device |= said.no_device
        self._no_nvls |= said.no_nvls
        if said.gdr_disabled and len(self._gdr_disabled) < _MAX_NAMES:
            self._gdr_disabled[said.gdr_disabled] = None

    def _of_rank(self, own: int, peer: int) -> _Communicator | None:
        """The youngest communicator in which the rank ``own`` logs, and ``peer`` can be too."""
        return next(
            (
                each
                for each in reversed(self._communicators.values())
                if each.rank == own and not each.is_over and each.has(own, peer)
            ),
            None,
        )

    def _add(self, communicator: _Communicator) -> _Communicator:
        key = (communicator.comm, communicator.rank)
        self._communicators.pop(key, None)
        if len(self._communicators) >= MAX_COMMUNICATORS:
            # the oldest of those that are over or, if none is, of the smallest
            least = min(self._communicators.items(), key=lambda item: _worldliness(item[1])[:2])
            del self._communicators[least[0]]
            self.refused += not least[1].is_over
        self._communicators[key] = communicator
        for said in self._unplaced:
            communicator.describe(said)
        self._unplaced = []
        return communicator


def _worldliness(communicator: _Communicator) -> tuple[bool, int, bool]:
    """The greater, the likelier it is the one of all ranks."""
    living = bool(communicator.comm) and not communicator.is_over
    return living, communicator.nranks or 0, communicator.is_complete


def _channels(used: Iterable[_Communicator]) -> Mapping[str, int]:
    """Count the channels by transport, over all of these."""
    counts: Counter[str] = Counter()
    for each in used:
        for transport, bits in each.channels.items():
            counts[transport] += bits.bit_count()
    return {transport: counts[transport] for transport in TRANSPORTS if counts[transport]}


def _gdr_ratio(used: Iterable[_Communicator]) -> float | None:
    received = sum(each.received.bit_count() for each in used)
    return sum(each.received_by_gdr.bit_count() for each in used) / received if received else None
