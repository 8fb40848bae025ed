"""The part of ``straggler inspect`` for logs: how ranks reached each other by NCCL's word, and who was left behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from straggler.detect import wording
from straggler.detect.transport import tell_node
from straggler.model.identity import clean_text
from straggler.model.nccl import NcclFacts
from straggler.sources.nccl.snapshot import LogSnapshot

HELP = """\
A log with NCCL's lines (NCCL_DEBUG=INFO), or with those of PyTorch's watchdog. "logs" has for each
  file, nodes [{node, says}], ranks [{host, pid, rank, nranks, pci_bus_id, version, cuda_version, network, channels,
  gdr_ratio, gdr_disabled, rdma_devices, no_rdma_device, nvls, rings, trees, is_complete, warnings}] (null or empty: the
  log does not say), timeouts [{rank, operation, sequence, timeout_seconds, ran_seconds}], laggards [{group, ranks,
  enqueued, completed, others_enqueued, told}] and refused {reason: count}.
"""

_NOT_TOLD = ("written", "uid", "path")
_MOST = 64


def describe_log(name: str, log: LogSnapshot) -> dict[str, Any]:
    """Everything that ``--json`` gives for one log.

    Args:
        name: of the file, printable.
        log: what is in it.
    """
    nodes: dict[str, list[NcclFacts]] = {}
    for facts in log.ranks:
        nodes.setdefault(facts.host, []).append(facts)
    return {
        "file": name,
        "nodes": [
            {"node": host, "says": tell_node(host or "a node without a name", logs) + "."}
            for host, logs in nodes.items()
        ],
        "ranks": [{key: value for key, value in asdict(facts).items() if key not in _NOT_TOLD} for facts in log.ranks],
        "timeouts": [timeout._asdict() for timeout in log.timeouts],
        "laggards": [laggard._asdict() for laggard in log.laggards],
        "refused": dict(log.refused),
    }


def render_log(described: Mapping[str, Any]) -> str:
    """The same for people."""
    ranks = described["ranks"]
    lines = [f"{described['file']}: a log of {wording.count(len(ranks), 'rank')} by NCCL's lines"]
    lines += _some([node["says"] for node in described["nodes"]], "node")
    lines += _some([_rank(rank) for rank in ranks], "rank")
    lines += _some([_timeout(timeout) for timeout in described["timeouts"]], "timeout")
    lines += [f"  {_laggard(laggard)}" for laggard in described["laggards"]]
    if described["refused"]:
        lines.append("  refused: " + ", ".join(f"{reason} {count}" for reason, count in described["refused"].items()))
    lines.append("  Who is stuck often writes nothing: no warning is no proof of health.")
    return "\n".join(lines)


def _some(texts: Sequence[str], noun: str) -> list[str]:
    """A log may be that of a whole cluster."""
    lines = [f"  {text}" for text in texts[:_MOST]]
    more = len(texts) - _MOST
    return [*lines, f"  and {wording.count(more, f'more {noun}')}, see --json"] if more > 0 else lines


def _rank(rank: Mapping[str, Any]) -> str:
    number = "rank ?" if rank["rank"] is None else f"rank {rank['rank']}"
    parts = (
        number if rank["nranks"] is None else f"{number} of {rank['nranks']}",
        f"{clean_text(rank['host']) or '?'}:{'?' if rank['pid'] is None else rank['pid']}",
        rank["pci_bus_id"] and f"GPU {rank['pci_bus_id']}",
        rank["version"] and f"NCCL {rank['version']}",
        rank["network"] and f"network {rank['network']}",
        _counts("channels", rank["channels"]),
        ""
        if rank["gdr_ratio"] is None
        else f"{wording.percent(rank['gdr_ratio'])} of what it receives by GPUDirect RDMA",
        {True: "NVLS", False: "no NVLS", None: ""}[rank["nvls"]],
        _counts("warnings", rank["warnings"]),
    )
    return ", ".join(part for part in parts if part)


def _counts(what: str, counts: Mapping[str, int]) -> str:
    return f"{what}: {' '.join(f'{name} {count}' for name, count in counts.items())}" if counts else ""


def _timeout(timeout: Mapping[str, Any]) -> str:
    what = timeout["operation"] if timeout["sequence"] is None else f"{timeout['operation']} {timeout['sequence']}"
    after, limit = wording.seconds(timeout["ran_seconds"]), wording.seconds(timeout["timeout_seconds"])
    return f"rank {timeout['rank']} gave {what} up after {after} (limit {limit})"


def _laggard(laggard: Mapping[str, Any]) -> str:
    ranks: Sequence[int] = laggard["ranks"]
    return (
        f"furthest behind in process group {laggard['group']}: {wording.ranks(ranks)}, at collective "
        f"{laggard['enqueued']} given and {laggard['completed']} completed, others at {laggard['others_enqueued']}; "
        f"{wording.count(laggard['told'], 'rank')} told"
    )
