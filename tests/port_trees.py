"""Trees of RDMA ports for tests: listings unpacked, files written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from straggler.model.network import PortFacts
from straggler.model.reading import Problem, Reading
from straggler.simulate.infiniband_tree import SimulatedPort, write_infiniband
from straggler.sources.infiniband.read import InfinibandSource
from straggler.sources.infiniband.reasons import INFINIBAND_BLIND_REASONS, INFINIBAND_REASONS

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


def node(sysfs: Path, count: int = 4, **changes: object) -> Path:
    """A node with so many healthy adapters."""
    write_infiniband(sysfs, [SimulatedPort(device=f"mlx5_{index}", **changes) for index in range(count)])  # type: ignore[arg-type]  # the port's own fields
    return sysfs


def reasons(problems: Iterable[Problem]) -> dict[str, int]:
    """How many of each."""
    found = Counter[str]()
    for problem in problems:
        assert problem.reason in INFINIBAND_REASONS + INFINIBAND_BLIND_REASONS
        assert problem.detail
        found[problem.reason] += problem.count
    return dict(found)


def device(reading: Reading[PortFacts], name: str = "mlx5_0") -> PortFacts:
    """One adapter's only port."""
    return next(port for port in reading.facts if port.key.device == name)
