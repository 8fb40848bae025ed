"""Verdicts as alerts.

With the labels and annotations that the rules in ``rules/`` give, so that routing, templates and runbooks serve both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote_plus

from straggler.detect import wording
from straggler.detect.persistence import Standing
from straggler.detect.verdict import SUBJECTS, Verdict
from straggler.join.view import RankView
from straggler.model.rank import RankKey
from straggler.sidecar.alert_texts import AlertText, alert_text

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
        links: ``runbook``, the address under which the runbooks lie, and ``dashboard``, Grafana's; each optional.
    """
    verdict = standing.verdict
    text = alert_text(verdict)
    own_labels = {
        "alertname": text.name,
        "severity": verdict.severity,
        "team": text.team,
        "verdict": verdict.verdict,
        "run": verdict.run,
    }
    for part in SUBJECTS[verdict.verdict]:
        value = getattr(verdict, part)
        if value not in (None, ""):
            own_labels[_LABEL_NAMES.get(part, part)] = str(value)
    return Alert(
        labels={**labels, **own_labels},
        annotations=_annotations(verdict, text, views, links),
        starts_at=standing.fired if standing.fired is not None else standing.since,
        ends_at=standing.ended,
        verdict=verdict,
    )


def _annotations(
    verdict: Verdict, text: AlertText, views: Mapping[RankKey, RankView], links: Mapping[str, str]
) -> dict[str, str]:
    facts = {
        "run": verdict.run,
        "rank": verdict.rank,
        "node": verdict.node or "its node",
        "peer_group": verdict.peer_group,
        "ratio": "?" if verdict.slowdown_ratio is None else f"{verdict.slowdown_ratio:.2f}",
        "lost": "a part" if verdict.lost_share is None else wording.percent(verdict.lost_share),
        "source": verdict.source,
        "reason": verdict.reason,
    }
    view = views.get(RankKey(verdict.run, verdict.rank)) if verdict.rank is not None else None
    where = _where(verdict, view)
    texts = {
        "summary": text.summary.format(**facts),
        "description": _sentence(f"{where}: {verdict.evidence}" if where else verdict.evidence),
        "impact": _sentence(verdict.impact),
        "cause": _sentence(verdict.cause_text) or text.cause.format(**facts),
        "next_step": text.next_step.format(**facts),
        "runbook_url": f"{links['runbook'].rstrip('/')}/{text.name}" if links.get("runbook") else "",
        "dashboard_url": _dashboard(links["dashboard"], verdict) if links.get("dashboard") else "",
    }
    return {key: value for key, value in texts.items() if value}


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _dashboard(base: str, verdict: Verdict) -> str:
    page, variables = "straggler-run", {"run": verdict.run}
    if verdict.verdict == "straggling_rank":
        page, variables = (
            "straggler-rank",
            variables | {"peer_group": str(verdict.peer_group), "rank": str(verdict.rank)},
        )
    query = "&".join(f"var-{name}={quote_plus(value)}" for name, value in variables.items())
    return f"{base.rstrip('/')}/d/{page}?{query}"


def _where(verdict: Verdict, view: RankView | None) -> str:
    identity = view.rank.identity if view else None
    gpu = view.gpu if view else None
    index = gpu.gpu if gpu else identity.gpu if identity else None
    uuid = gpu.key.uuid if gpu else verdict.gpu_uuid
    parts = [
        wording.ranks([verdict.rank]) if verdict.rank is not None else "",
        f"node {verdict.node}" if verdict.node else "",
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
