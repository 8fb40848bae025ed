"""How the nodes of a run reach each other, by NCCL's own log, and whether they should do better.

NCCL takes sockets where it finds no adapter that it can use, and it does so in silence: the job runs, at a tenth of the
speed. The fallback is the whole run's, since ranks must agree on a network; the cause is most often on one node, or in
the image. Sockets are right where there is nothing else, so they are told only beside adapters that are up, or beside
ranks that do use some. And they are told only where the run waits for its network at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from straggler.detect import wording
from straggler.detect.policy import Policy
from straggler.detect.regression import Level
from straggler.detect.sample import RankSample
from straggler.detect.verdict import WARNING, Verdict
from straggler.model.nccl import NcclFacts

SOCKETS = "sockets"
NO_GDR = "no_gdr"
REASONS = (SOCKETS, NO_GDR)
"""Values of ``Verdict.reason``."""

_RDMA = ("ib", "libfabric")
_MOST_NODES = 4

_NAMES = {"ib": "InfiniBand or RoCE", "libfabric": "libfabric", "other": "another network", "collnet": "SHARP"}


def poor_transport(run: str, ranks: Sequence[RankSample], now: Level | None, policy: Policy) -> list[Verdict]:
    """Nodes that use sockets although they need not, or the host's memory where others go straight to the GPU.

    Args:
        run: its name.
        ranks: all of the run.
        now: how the run does; where it hardly waits for its network, nothing is said.
        policy: the thresholds.
    """
    if now is not None and now.step > 0 and now.least_wait / now.step < policy.min_excess_share:
        return []
    told = [rank for rank in ranks if rank.alive and rank.nccl is not None]
    return [
        *_verdict(run, SOCKETS, _on_sockets(told), "many times slower than what is there, in each collective"),
        *_verdict(
            run, NO_GDR, _without_gdr(told, policy), "each byte goes through the host's memory and its PCIe links"
        ),
    ]


def blame_sockets(verdicts: Iterable[Verdict], poor: Sequence[Verdict]) -> list[Verdict]:
    """Name sockets as the cause of a slow network, where a log tells of them; else nothing changes."""
    told = next((verdict.evidence for verdict in poor if verdict.reason == SOCKETS), "")
    text = f"NCCL uses sockets: {told}"
    return [replace(verdict, cause="transport", cause_text=text) if told else verdict for verdict in verdicts]


def tell_node(node: str, logs: Sequence[NcclFacts], ports_up: Sequence[str] = ()) -> str:
    """How a node reaches the others, and why not better, in one sentence without its full stop.

    Args:
        node: its name.
        logs: what NCCL says of ranks on it.
        ports_up: RDMA ports of it that are up, e.g. ``mlx5_0 port 1``, as far as anybody has looked.
    """
    used = {transport for log in logs for transport in log.channels}
    if "socket" in used:
        return f"{node} sends over sockets{_although(ports_up)}: {_why_sockets(logs)}"
    between = [_NAMES[name] for name in _NAMES if name in used]
    if between:
        return f"{node} sends over {' and '.join(between)}{_how_it_ends(logs)}"
    if "shm" in used and "p2p" not in used:
        return f"the GPUs of {node} reach each other through the host's memory only"
    if "p2p" in used:
        return f"the GPUs of {node} reach each other directly, and no other node is in these logs"
    return f"NCCL on {node} has not said what it uses"


def _on_sockets(told: Sequence[RankSample]) -> dict[str, list[RankSample]]:
    """By node: the ranks that use sockets where there is something better."""
    anybody = any(_uses(rank, *_RDMA) for rank in told)
    found: dict[str, list[RankSample]] = {}
    for rank in told:
        if _uses(rank, "socket") and (rank.rdma_ports_up or anybody):
            found.setdefault(rank.node, []).append(rank)
    return found


def _without_gdr(told: Sequence[RankSample], policy: Policy) -> dict[str, list[RankSample]]:
    """By node: all of its ranks, where none receives into GPU memory while another node's do."""
    ratios: dict[str, list[float]] = {}
    for rank in told:
        if rank.nccl is not None and rank.nccl.gdr_ratio is not None:
            ratios.setdefault(rank.node, []).append(rank.nccl.gdr_ratio)
    if not any(max(values) > policy.gdr_peer_ratio for values in ratios.values()):
        return {}
    return {node: [rank for rank in told if rank.node == node] for node, values in ratios.items() if not any(values)}


def _verdict(run: str, reason: str, nodes: dict[str, list[RankSample]], impact: str) -> list[Verdict]:
    if not nodes:
        return []
    sentences = [
        tell_node(
            node,
            [rank.nccl for rank in ranks if rank.nccl is not None],
            next((rank.rdma_ports_up for rank in ranks if rank.rdma_ports_up), ()),
        )
        for node, ranks in sorted(nodes.items())[:_MOST_NODES]
    ]
    more = len(nodes) - _MOST_NODES
    if more > 0:
        sentences.append(f"so {'does' if more == 1 else 'do'} {wording.count(more, 'more node')}")
    return [
        Verdict(
            verdict="slow_transport",
            severity=WARNING,
            run=run,
            reason=reason,
            evidence="; ".join(sentences),
            impact=f"{impact}, and every rank waits for it",
        )
    ]


def _uses(rank: RankSample, *transports: str) -> bool:
    return rank.nccl is not None and any(transport in rank.nccl.channels for transport in transports)


def _although(ports_up: Sequence[str]) -> str:
    if not ports_up:
        return ""
    names = ", ".join(ports_up[:_MOST_NODES]) + (
        f" and {more} more" if (more := len(ports_up) - _MOST_NODES) > 0 else ""
    )
    return f" although {names} {'is' if len(ports_up) == 1 else 'are'} up"


def _why_sockets(logs: Sequence[NcclFacts]) -> str:
    devices = sorted({device for log in logs for device in log.rdma_devices})
    if devices:
        return f"NCCL found {', '.join(devices[:_MOST_NODES])} and did not take it; see NCCL_NET and NCCL_IB_DISABLE"
    if any(log.no_rdma_device for log in logs):
        return "NCCL found no adapter; libibverbs or /dev/infiniband may be missing in the image, or locked memory"
    return "NCCL's log does not say why"


def _how_it_ends(logs: Sequence[NcclFacts]) -> str:
    ratios = [log.gdr_ratio for log in logs if log.gdr_ratio is not None]
    if not ratios:
        return ""
    if all(ratios):
        return ", straight into GPU memory"
    off = sorted({device for log in logs for device in log.gdr_disabled})
    which = f" for {', '.join(off[:_MOST_NODES])}" if off else ""
    part = " in part" if any(ratios) else ""
    return f", through the host's memory{part}: GPUDirect RDMA is off{which}, see whether nvidia_peermem is loaded"
