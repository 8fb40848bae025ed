"""Verdicts as alerts.

With the labels and annotations that the rules in ``rules/`` give, so that routing, templates and runbooks serve both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

from straggler.detect import wording
from straggler.detect.persistence import Standing
from straggler.detect.verdict import SUBJECTS, Verdict
from straggler.join.view import RankView
from straggler.model.rank import RankKey

ALERT_NAMES: dict[str, str] = {
    "straggling_rank": "TrainingStraggler",
    "straggling_node": "TrainingStragglingNode",
    "heavy_stage": "TrainingHeavyStage",
    "rotating_imbalance": "TrainingRotatingImbalance",
    "input_stall": "TrainingInputStall",
    "slow_everywhere": "TrainingSlowEverywhere",
    "hang": "TrainingHung",
    "crash": "TrainingRankCrashed",
    "missing_rank": "TrainingRankMissing",
    "utilization_divergence": "TrainingUtilizationDivergence",
    "throttled_gpu": "TrainingGpuThrottled",
    "degraded_link": "TrainingLinkDegraded",
    "slow_transport": "TrainingSlowTransport",
    "blind": "StragglerExporterBlind",
}
"""By verdict. A runbook has the alert's name."""

_TITLES: dict[str, str] = {
    "straggling_rank": "Rank {rank} of {run} is slow and all others wait for it",
    "straggling_node": "Node {node} slows {run} down with all of its ranks",
    "heavy_stage": "Peer group {peer_group} of {run} has ranks with more work than the others",
    "rotating_imbalance": "{run} loses time to uneven steps; no single rank is slow",
    "input_stall": "{run} waits for its data",
    "slow_everywhere": "{run} is slower than it used to be, on all ranks alike",
    "hang": "{run} has stopped stepping",
    "crash": "Rank {rank} of {run} has died and the others wait for it",
    "missing_rank": "Not all ranks of {run} are seen",
    "utilization_divergence": "The GPUs of {run} report to be busy and do little",
    "throttled_gpu": "The GPU of rank {rank} of {run} holds its clock down",
    "degraded_link": "The GPU of rank {rank} of {run} has a narrow PCIe link",
    "slow_transport": "The network of {run} is slower than it used to be",
    "blind": "Slowness in {run} may go unseen",
}

_LABEL_NAMES = {"node": "rank_node"}
"""Metric labels must not collide with those of targets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert as Alertmanager takes it."""

    labels: Mapping[str, str]
    """What identifies it; with ``alertname`` and ``severity``."""
    annotations: Mapping[str, str]
    starts_at: float
    """When it began to fire; epoch seconds."""
    ends_at: float | None = None
    """When it was resolved; ``None`` while it fires."""
    verdict: Verdict | None = field(default=None, compare=False)
    """Where it comes from."""

    @property
    def firing(self) -> bool:
        """Whether it is not resolved."""
        return self.ends_at is None

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """The labels in order: two alerts with the same key are the same alert."""
        return tuple(sorted(self.labels.items()))


def build(
    standing: Standing, views: Mapping[RankKey, RankView], labels: Mapping[str, str], links: Mapping[str, str]
) -> Alert:
    """Make the alert of a verdict that fires or has just been resolved.

    Args:
        standing: its stage is ``firing`` or ``resolved``.
        views: the ranks of now; the verdict's rank may be gone from them.
        labels: labels that every alert carries, e.g. ``cluster``.
        links: ``runbook`` and ``dashboard``: base addresses, each optional.
    """
    verdict = standing.verdict
    name = ALERT_NAMES[verdict.verdict]
    own_labels = {"alertname": name, "severity": verdict.severity, "run": verdict.run, "verdict": verdict.verdict}
    for part in SUBJECTS[verdict.verdict]:
        value = getattr(verdict, part)
        if value not in (None, ""):
            own_labels[_LABEL_NAMES.get(part, part)] = str(value)
    return Alert(
        labels={**labels, **own_labels},
        annotations=_annotations(verdict, name, standing.since, views, links),
        starts_at=standing.fired if standing.fired is not None else standing.since,
        ends_at=standing.ended,
        verdict=verdict,
    )


def _annotations(
    verdict: Verdict, name: str, since: float, views: Mapping[RankKey, RankView], links: Mapping[str, str]
) -> dict[str, str]:
    facts = {"run": verdict.run, "rank": verdict.rank, "node": verdict.node, "peer_group": verdict.peer_group}
    view = views.get(RankKey(verdict.run, verdict.rank)) if verdict.rank is not None else None
    texts = {
        "summary": _TITLES[verdict.verdict].format(**facts),
        "description": verdict.evidence[:1].upper() + verdict.evidence[1:] + ".",
        "where": _where(verdict, view),
        "since": datetime.fromtimestamp(since, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "impact": verdict.impact[:1].upper() + verdict.impact[1:] + ".",
        "runbook_url": f"{links['runbook'].rstrip('/')}/{name}.md" if links.get("runbook") else "",
        "dashboard_url": f"{links['dashboard']}?var-run={verdict.run}" if links.get("dashboard") else "",
    }
    return {key: text for key, text in texts.items() if text}


def _where(verdict: Verdict, view: RankView | None) -> str:
    identity = view.rank.identity if view else None
    gpu = view.gpu if view else None
    index = gpu.gpu if gpu else identity.gpu if identity else None
    uuid = gpu.key.uuid if gpu else verdict.gpu_uuid
    parts = [
        f"node {verdict.node}" if verdict.node else "",
        wording.ranks([verdict.rank]) if verdict.rank is not None else "",
        f"GPU {index}" if index is not None else "",
        uuid,
        f"pod {identity.namespace}/{identity.pod}" if identity and identity.pod else "",
        f"Slurm job {identity.slurm_job}" if identity and identity.slurm_job else "",
    ]
    return ", ".join(part for part in parts if part)


def audible(alerts: Sequence[Alert]) -> list[Alert]:
    """Leave out what a worse alert says already, as Alertmanager's inhibition rules do: for receivers without one.

    A critical alert silences its own warning; a hang or a crash silences all about slowness of the same run. An alert
    that is resolved silences nothing, and is itself never silenced.
    """
    firing = [alert for alert in alerts if alert.firing]
    critical = {_without_severity(alert) for alert in firing if alert.labels["severity"] == "critical"}
    stopped = {alert.labels["run"] for alert in firing if alert.labels["verdict"] in {"hang", "crash"}}
    return [
        alert
        for alert in alerts
        if not alert.firing
        or alert.labels["verdict"] in {"hang", "crash"}
        or (alert.labels["run"] not in stopped and not _is_warning_of(alert, critical))
        or alert.labels["verdict"] in {"blind", "missing_rank"}
    ]


def _is_warning_of(alert: Alert, critical: set[tuple[tuple[str, str], ...]]) -> bool:
    return alert.labels["severity"] != "critical" and _without_severity(alert) in critical


def _without_severity(alert: Alert) -> tuple[tuple[str, str], ...]:
    return tuple(pair for pair in alert.key if pair[0] != "severity")
