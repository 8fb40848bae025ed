"""How long NCCL's logs take to read: their own lines, training's output around them, and text made to be slow."""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median
from time import process_time

from straggler.sources.nccl.book import LogBook
from straggler.sources.nccl.read import NcclSource

LOOKS = 9
BYTES = 1 << 20


def job(ranks: int = 8, communicators: int = 12) -> list[str]:
    """What NCCL says on one node when a job starts."""
    lines = []
    for rank in range(ranks):
        who = f"node-a:{1000 + rank}:{2000 + rank} [{rank}] NCCL INFO"
        for comm in range(communicators):
            made = f"comm 0x{comm:x}f rank {rank} nranks {ranks * (comm + 1)} cudaDev {rank} nvmlDev {rank}"
            lines.append(f"{who} ncclCommInitRank {made} busId 1{rank}000 commId 0x7 - Init START")
            for channel in range(16):
                lines += [
                    f"{who} Channel {channel:02}/0 : {rank}[0] -> 9[0] [send] via NET/IB/{channel % 8}/GDRDMA",
                    f"{who} Channel {channel:02}/0 : 9[0] -> {rank}[0] [receive] via NET/IB/{channel % 8}/GDRDMA",
                    f"{who} [Proxy Progress] Device {rank} CPU core {channel}",
                ]
    return lines


def seconds_per_megabyte(lines: list[str]) -> float:
    """CPU time, the median of some books."""
    size = sum(len(line) + 1 for line in lines)

    def once() -> float:
        began = process_time()
        LogBook().hear(lines)
        return process_time() - began

    return median(once() for _ in range(LOOKS)) / size * 1e6


def idle_look(logs: int) -> float:
    """CPU time of a look at logs in which nothing is new."""
    with tempfile.TemporaryDirectory() as directory:
        for number in range(logs):
            (Path(directory) / f"nccl.{number}.log").write_text("\n".join(job(1)), encoding="utf-8")
        source = NcclSource([f"{directory}/*.log"])
        for _ in range(logs):
            source.collect()
        began = process_time()
        for _ in range(LOOKS):
            source.collect()
        return (process_time() - began) / LOOKS


def main() -> None:
    """Print a table."""
    lines = job()
    kinds = {
        "NCCL's lines": lines,
        "training's output": ["step 120 loss 2.31 tok/s 410233 lr 1e-4"] * (BYTES // 40),
        "many processes": [f"h:{number}:1 [0] NCCL INFO Using network IB" for number in range(BYTES // 40)],
        "crowded lines": ["NCCL WARN x " * 5000] * (BYTES // 60_000),
        "32 speakers a line": ["a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/ " * 31] * (BYTES // 1800),
    }
    for name, text in kinds.items():
        print(f"{name:<20} {seconds_per_megabyte(text) * 1e3:>7.1f} ms CPU a MB")
    print(f"{'idle look, 8 logs':<20} {idle_look(8) * 1e3:>7.2f} ms CPU")


if __name__ == "__main__":
    main()
