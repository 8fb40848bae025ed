"""The ranks as JSON: ``GET /api/v1/ranks``, which ``straggler top``, the landing page and the demo show.

Each key once, with its meaning: ``docs/api.md`` is generated from these tables. A key whose value is unknown is absent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from straggler import __version__
from straggler.detect.cause_text import sentence
from straggler.detect.lately import Lately
from straggler.detect.policy import Policy
from straggler.detect.sample import sample
from straggler.detect.slowdown import slowdown_ratio
from straggler.detect.straggling import assess
from straggler.detect.transport import tell_node
from straggler.join.view import RankView
from straggler.metrics.self_metrics import SourceStatus
from straggler.model.gpu import GpuFacts
from straggler.model.nccl import NcclFacts
from straggler.model.rank import RankKey
from straggler.sidecar.state import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A rank beside its peers on this node."""

    slowdown_ratio: float | None
    slow: str | None
    """``warning`` or ``critical``."""
    peers_own_seconds: float | None = None
    cause: str | None = None
    cause_text: str | None = None


class RankField(NamedTuple):
    """One key of a rank."""

    key: str
    meaning: str
    value: Callable[[RankView, Comparison], Any]
    """Gives ``None`` where it is unknown."""


class GpuField(NamedTuple):
    """One key of a rank's GPU."""

    key: str
    meaning: str
    value: Callable[[GpuFacts], Any]


class NcclField(NamedTuple):
    """One key of what NCCL's log says."""

    key: str
    meaning: str
    value: Callable[[NcclFacts, RankView], Any]


def _recent(name: str) -> Callable[[RankView, Comparison], Any]:
    return lambda view, _: getattr(view.rank.recent, name) if view.rank.recent else None


def _identity(name: str) -> Callable[[RankView, Comparison], Any]:
    return lambda view, _: getattr(view.rank.identity, name) or None


def _number(name: str) -> Callable[[RankView, Comparison], Any]:
    return lambda view, _: getattr(view.rank.identity, name)


def _gpu_value(name: str) -> Callable[[GpuFacts], Any]:
    return lambda gpu: gpu.values.get(name)


RANK_FIELDS: tuple[RankField, ...] = (
    RankField("run", "The training run", _number("run")),
    RankField("rank", "Global rank", _number("rank")),
    RankField("peer_group", "The ranks that do the same work have the same", _number("peer_group")),
    RankField("node", "Host name as the rank says it", _identity("node")),
    RankField("local_rank", "Rank within the node", _number("local_rank")),
    RankField("world_size", "Ranks that the run was started with", _number("world_size")),
    RankField("state", "`running`, `hung`, `crashed` or `finished`", lambda view, _: view.rank.state.value),
    RankField("excluded_phase", "`checkpoint` or `eval` while the rank is in it", lambda v, _: v.rank.excluded_phase),
    RankField("step", "Number of the last finished step, as the loop counts", lambda view, _: view.rank.step),
    RankField(
        "last_step_timestamp_seconds",
        "When it ended, in seconds since 1970",
        lambda view, _: view.rank.last_step_timestamp_seconds,
    ),
    RankField(
        "since_progress_seconds", "How long nothing new has been seen", lambda view, _: view.rank.since_progress_seconds
    ),
    RankField("step_seconds", "Mean wall time of a step, over the recent steps", _recent("step_mean_seconds")),
    RankField("own_seconds", "Mean own time: not blocked on peers", _recent("own_mean_seconds")),
    RankField("own_median_seconds", "Median own time", _recent("own_median_seconds")),
    RankField("wait_seconds", "Mean time blocked on peers", _recent("wait_mean_seconds")),
    RankField("min_wait_seconds", "Least time blocked on peers", _recent("wait_min_seconds")),
    RankField("window_steps", "How many recent steps these are over", _recent("steps")),
    RankField("own_reason", "`measured`, or why own time is absent", lambda view, _: view.rank.own_reason),
    RankField(
        "slowdown_ratio",
        "Own time over the lower quartile of the peers on this node; absent without peers or before 32 steps",
        lambda _, comparison: comparison.slowdown_ratio,
    ),
    RankField(
        "slow",
        "`warning` or `critical` if mean and median own time are too far above the peers'; else absent",
        lambda _, comparison: comparison.slow,
    ),
    RankField(
        "peers_own_seconds",
        "Lower quartile of own time of the peers on this node; of two ranks the faster one's",
        lambda _, comparison: comparison.peers_own_seconds,
    ),
    RankField(
        "cause",
        "Why a slow rank is slow, as far as this node shows: see [causes](causes.md); absent unless slow",
        lambda _, comparison: comparison.cause,
    ),
    RankField(
        "cause_text", "The same as a sentence, with the peers' numbers", lambda _, comparison: comparison.cause_text
    ),
    RankField("source", "`rings` or `push`", lambda view, _: view.rank.source),
    RankField("clock", "`host` or `cuda`: what timed the phases", _number("clock")),
    RankField("framework", "E.g. `torch 2.13.0`", _identity("framework")),
    RankField("pod", "Kubernetes pod", _identity("pod")),
    RankField("namespace", "Kubernetes namespace", _identity("namespace")),
    RankField("slurm_job", "Slurm job", _identity("slurm_job")),
    RankField("user", "Who started it", _identity("user")),
    RankField("evidence", "How the GPU was found", lambda view, _: view.evidence or None),
    RankField("unmatched_reason", "Why there is no GPU", lambda view, _: view.unmatched_reason or None),
    RankField("nccl", "What NCCL's log says, see below", lambda v, _: nccl_document(v.nccl, v) if v.nccl else None),
    RankField("gpu", "The rank's GPU, see below", lambda view, _: gpu_document(view.gpu) if view.gpu else None),
)

GPU_FIELDS: tuple[GpuField, ...] = (
    GpuField("UUID", "Of the whole GPU, under MIG too", lambda gpu: gpu.key.uuid),
    GpuField("GPU_I_ID", "GPU instance under MIG", lambda gpu: gpu.key.gpu_instance),
    GpuField("gpu", "Index on the node", lambda gpu: gpu.gpu),
    GpuField("pci_bus_id", "PCI bus id", lambda gpu: gpu.pci_bus_id or None),
    GpuField("model", "Product name", lambda gpu: gpu.model or None),
    GpuField("utilization_ratio", "Share of time in which any kernel ran", _gpu_value("utilization_ratio")),
    GpuField("sm_active_ratio", "Share of cycles with a warp resident", _gpu_value("sm_active_ratio")),
    GpuField("tensor_active_ratio", "Share of cycles, tensor pipe busy", _gpu_value("tensor_active_ratio")),
    GpuField("sm_clock_hertz", "SM clock", _gpu_value("sm_clock_hertz")),
    GpuField("temperature_celsius", "Core temperature", _gpu_value("temperature_celsius")),
    GpuField("power_watts", "Power draw", _gpu_value("power_watts")),
    GpuField("memory_used_bytes", "Frame buffer in use", _gpu_value("memory_used_bytes")),
)


def _transport(nccl: NcclFacts, view: RankView) -> str:
    ports_up = [str(port.key) for port in view.ports if port.up]
    return tell_node(view.rank.identity.node or nccl.host, [nccl], ports_up) + "."


NCCL_FIELDS: tuple[NcclField, ...] = (
    NcclField("says", "How the rank reaches other nodes, and why not better", _transport),
    NcclField("version", "E.g. `2.21.5`", lambda nccl, _: nccl.version or None),
    NcclField("network", "Between nodes, by NCCL's own name", lambda nccl, _: nccl.network or None),
    NcclField("channels", "How many channels use each transport", lambda nccl, _: dict(nccl.channels) or None),
    NcclField("gdr_ratio", "Share of channels that receive straight into GPU memory", lambda nccl, _: nccl.gdr_ratio),
    NcclField("warnings", "Lines marked as warnings, by kind", lambda nccl, _: dict(nccl.warnings) or None),
    NcclField("log", "The file", lambda nccl, _: nccl.path or None),
)


def ranks_document(snapshot: Snapshot, policy: Policy) -> dict[str, Any]:
    """Everything that ``GET /api/v1/ranks`` says."""
    compared = compare(snapshot.views, policy, snapshot.lately)
    return {
        "version": __version__,
        "timestamp_seconds": snapshot.taken,
        "ranks": [_rank_document(view, compared[view.rank.key]) for view in snapshot.views],
        "sources": [_source_document(source) for source in snapshot.status.sources],
    }


def _rank_document(view: RankView, comparison: Comparison) -> dict[str, Any]:
    values = ((field.key, field.value(view, comparison)) for field in RANK_FIELDS)
    return {key: value for key, value in values if _is_known(value)}


def gpu_document(gpu: GpuFacts) -> dict[str, Any]:
    """One GPU."""
    values = ((field.key, field.value(gpu)) for field in GPU_FIELDS)
    return {key: value for key, value in values if _is_known(value)}


def nccl_document(nccl: NcclFacts, view: RankView) -> dict[str, Any]:
    """What NCCL's log says of a rank."""
    values = {field.key: field.value(nccl, view) for field in NCCL_FIELDS}
    return {key: value for key, value in values.items() if _is_known(value)}


def _is_known(value: Any) -> bool:
    """JSON has no NaN and no infinity; a number that is none is not known."""
    return value is not None and (not isinstance(value, float) or math.isfinite(value))


def _source_document(status: SourceStatus) -> dict[str, Any]:
    document: dict[str, Any] = {"source": status.source, "state": status.state.value}
    if status.age_seconds is not None:
        document["age_seconds"] = status.age_seconds
    if status.blind:
        document["blind"] = dict(status.blind)
    return document


def compare(
    views: tuple[RankView, ...], policy: Policy, lately: Mapping[RankKey, Lately]
) -> Mapping[RankKey, Comparison]:
    """Compare each rank with its peers, as far as this node sees them."""
    runs: dict[str, list[RankView]] = {}
    for view in views:
        runs.setdefault(view.rank.key.run, []).append(view)
    compared = {view.rank.key: Comparison(slowdown_ratio=None, slow=None) for view in views}
    for members in runs.values():
        slowness = assess([sample(view, lately=lately.get(view.rank.key)) for view in members], policy)
        slow = {found.sample.key: found for found in slowness.slow}
        for group in slowness.groups:
            for member in group.members:
                found = slow.get(member.key)
                cause = found.cause(policy) if found else None
                compared[member.key] = Comparison(
                    slowdown_ratio=slowdown_ratio(member.own_mean, group.mean_reference),
                    slow=None if found is None else "critical" if found.critical else "warning",
                    peers_own_seconds=group.mean_reference,
                    cause=cause.name if cause else None,
                    cause_text=sentence(cause) if cause else None,
                )
    return compared
