"""NCCL's logs, spoilt: a stranger may write what he likes there, and lines run into one another anyway."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Final

from facts import rank_facts
from faults import fuzz
from faults.bench import Figure
from straggler.join.view import RankView
from straggler.model.nccl import TRANSPORTS, WARNING_KINDS, NcclFacts
from straggler.sources.nccl.read import NcclSource
from straggler.sources.nccl.reasons import NCCL_REASONS

_LOOKS_OF_ONE: Final = 10
"""So many inputs one source follows, then a new one does: what it has learned from strangers is a part of its state."""


def _speech() -> str:
    """What two ranks say, in the forms of NCCL 2.14 to 2.26, and what stands between."""
    lines = ["NCCL version 2.21.5+cuda12.4", "step 1: loss 2.31"]
    for rank in (0, 1):
        who = f"gpu-7:{4242 + rank}:{4300 + rank} [{rank}]"
        comm = f"comm 0x542f3f{rank} rank {rank} nranks 4 cudaDev {rank} nvmlDev {rank} busId {rank + 1}b000 commId 0x7"
        completion = "NET/IB : Got completion from peer 192.0.2.3<4711> with status=12 opcode=0 len=0 vendor err 129"
        lines += [
            f"{who} NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_2:1/RoCE [RO]; OOB eth0:192.0.2.2<0>",
            f"[rank{rank}]: {who} NCCL INFO Using network IB",
            f"{who} NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 1 'mlx5_2'",
            f"{who} NCCL INFO ncclCommInitRank {comm} - Init START",
            f"{who} NCCL INFO Channel 00/02 :    0   1   2   3",
            f"{who} NCCL INFO Channel 00/0 : {rank}[{rank}] -> {1 - rank}[{1 - rank}] via P2P/CUMEM",
            f"{who} NCCL INFO Channel 00/0 : 2[0] -> {rank}[{rank}] [receive] via NET/IB/1(2)/GDRDMA",
            f"{who} NCCL INFO Channel 01/0 : {rank}[{rank}] -> 2[0] [send] via NET/Socket/0",
            f"{who} NCCL INFO ncclCommInitRank {comm} - Init COMPLETE",
            f"{who} transport/net_ib.cc:1295 NCCL WARN {completion}",
        ]
    return "\n".join(lines) + "\n"


class LogEater:
    """Writes logs over one another, whole and then with more, and reads them as the sidecar does."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._path = place / "nccl.log"
        self._source = NcclSource([f"{place}/*.log"])
        self._count = 0
        self.reasons: Counter[str] = Counter()
        self.taken = 0
        self.slowest_seconds = 0.0

    def eat(self, data: bytes) -> None:
        """Read one: its first half, and later the rest."""
        self._count += 1
        if self._count % _LOOKS_OF_ONE == 0:
            self._source = NcclSource([f"{self._place}/*.log"])
        self._path.write_bytes(data[: len(data) // 2])
        self._path.chmod(0o640)
        self._look()
        with self._path.open("ab") as file:
            file.write(data[len(data) // 2 :] + b"\n")
        facts = self._look()
        if (self._count + 1) % _LOOKS_OF_ONE == 0:  # the source has kept what all its inputs said: one page shows it
            fuzz.check_views(
                RankView(rank=rank_facts(rank), gpu=None, evidence="", unmatched_reason="no_evidence", nccl=each)
                for rank, each in enumerate(facts)
            )

    def _look(self) -> tuple[NcclFacts, ...]:
        began = time.monotonic()
        reading = self._source.collect()
        self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)
        self.reasons.update(problem.reason for problem in reading.problems)
        assert not set(self.reasons) - set(NCCL_REASONS), self.reasons
        for facts in reading.facts:
            self.taken += facts.is_complete
            assert not set(facts.channels) - set(TRANSPORTS), facts
            assert not set(facts.warnings) - set(WARNING_KINDS), facts
            assert all(count >= 0 for count in (*facts.channels.values(), *facts.warnings.values())), facts
            assert facts.gdr_ratio is None or 0 <= facts.gdr_ratio <= 1, facts
        return reading.facts


def real_log() -> bytes:
    """What is spoilt."""
    return _speech().encode()


def logs(place: Path, seconds: float) -> Figure:
    """Logs that were cut, mixed and written by strangers."""
    eater, real = LogEater(place), real_log()

    def make(dice: random.Random) -> bytes:
        return fuzz.spoil(real, dice, text=True)

    count, grown = fuzz.run(eater.eat, make, seconds)
    figure = fuzz.figure(count, eater.taken, eater.reasons, grown)
    return figure._replace(text=f"{figure.text}; slowest {eater.slowest_seconds * 1e3:.0f} ms")
