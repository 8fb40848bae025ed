"""What one sidecar knows about the slow ranks of its node, compared with their peers on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from straggler.detect.cause import CAUSES, UNKNOWN
from straggler.detect.slowdown import excess_share
from straggler.sidecar.diagnosis.finding import RunState, SlowRank


def diagnose_node(document: Mapping[str, Any], run: str | None) -> list[RunState]:
    """All runs of the node, or one.

    Args:
        document: as ``GET /api/v1/ranks`` gives it.
        run: its name; ``None`` for all.
    """
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for rank in document["ranks"]:
        if run in (None, rank["run"]) and rank["state"] in ("running", "hung"):
            runs.setdefault(rank["run"], []).append(rank)
    return [_run(name, ranks) for name, ranks in sorted(runs.items())]


def _run(name: str, ranks: Sequence[Mapping[str, Any]]) -> RunState:
    steps = [rank["step_seconds"] for rank in ranks if "step_seconds" in rank]
    slow = [_slow(rank) for rank in ranks if "slow" in rank]
    hung = [str(rank["rank"]) for rank in ranks if rank["state"] == "hung"]
    return RunState(
        run=name,
        ranks=len(ranks),
        step_seconds=fmean(steps) if steps else None,
        slow=tuple(sorted(slow, key=lambda one: -one.slowdown_ratio)),
        alerts=(f"hung: rank {', '.join(hung)}",) if hung else (),
    )


def _slow(rank: Mapping[str, Any]) -> SlowRank:
    gpu = rank.get("gpu", {})
    own, peers, step = rank["own_seconds"], rank["peers_own_seconds"], rank["step_seconds"]
    cause = rank.get("cause", UNKNOWN)
    return SlowRank(
        run=rank["run"],
        rank=rank["rank"],
        peer_group=rank["peer_group"],
        node=rank.get("node", ""),
        gpu=str(gpu.get("gpu", "")),
        gpu_uuid=gpu.get("UUID", ""),
        pod=rank.get("pod", ""),
        slurm_job=rank.get("slurm_job", ""),
        slowdown_ratio=rank["slowdown_ratio"],
        own_seconds=own,
        peers_own_seconds=peers,
        lost_share=excess_share(own, peers, step),
        cause=cause if cause in CAUSES else UNKNOWN,
        cause_text=rank.get("cause_text", ""),
    )
