"""A rank with the GPU it is on: what metrics, verdicts and the live table are made from."""

from __future__ import annotations

from dataclasses import dataclass

from straggler.model.gpu import GpuFacts
from straggler.model.host import RankHost
from straggler.model.nccl import NcclFacts
from straggler.model.network import PortFacts
from straggler.model.rank import RankFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class RankView:
    """One rank, joined."""

    rank: RankFacts
    gpu: GpuFacts | None
    evidence: str
    """How the GPU was found: one of ``join.evidence.EVIDENCE``; ``""`` if it was not."""
    unmatched_reason: str
    """Why there is no GPU: one of ``join.evidence.UNMATCHED``; ``""`` if there is one."""
    host: RankHost | None = None
    """What the operating system says about its process, if that can be looked at."""
    nccl: NcclFacts | None = None
    """What NCCL's log says of it. ``None`` is no log, and not a rank without trouble."""
    ports: tuple[PortFacts, ...] = ()
    """The RDMA ports of its node, if this node is known to be the one that it names."""
