"""Trees of RDMA ports for tests: listings unpacked, files written."""

from __future__ import annotations

from pathlib import Path

from straggler.model.network import PortFacts
from straggler.sources.infiniband.read import InfinibandSource

LISTINGS = Path(__file__).parent / "captured" / "infiniband"


def unpack(machine: str, sysfs: Path) -> Path:
    """Make the tree that a listing was taken from, below ``sysfs``."""
    for line in (LISTINGS / f"{machine}.txt").read_text("utf-8").splitlines():
        # class/infiniband/hfi1_0/hw_counters/SwLinkUp,32:4
        path, _, text = line.partition(":")
        write(sysfs / path, f"{text}\n")
    return sysfs


def write(path: Path, text: str) -> None:
    """Write one file and the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def ports_of(sysfs: Path) -> dict[str, PortFacts]:
    """All ports of a tree by ``device port``, at the first look."""
    return {f"{port.key.device} {port.key.port}": port for port in InfinibandSource(sysfs).collect().facts}
