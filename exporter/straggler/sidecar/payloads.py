"""Alerts as JSON: for Alertmanager's API v2, and in the format in which Alertmanager calls webhooks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from straggler.sidecar.alerts import Alert, audible

RECEIVER = "straggler-exporter"
_NEVER = "0001-01-01T00:00:00Z"
"""Alertmanager writes Go's zero time for an alert that has not ended."""
_FNV_OFFSET = 14695981039346656037
_FNV_PRIME = 1099511628211
_SEPARATOR = b"\xff"


def timestamp(seconds: float) -> str:
    """Write a time as RFC 3339 in UTC with milliseconds, e.g. ``2026-01-02T03:04:05.600Z``."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def alertmanager_alerts(alerts: Sequence[Alert], valid_until: float) -> list[dict[str, Any]]:
    """Write the body of ``POST /api/v2/alerts``.

    Args:
        alerts: firing and resolved ones.
        valid_until: ``endsAt`` of those that fire: if nobody repeats them, they end then; epoch seconds.

    Source:
        Alertmanager, ``api/v2/openapi.yaml``, ``postableAlerts``.
    """
    return [
        {
            "labels": dict(alert.labels),
            "annotations": dict(alert.annotations),
            "startsAt": timestamp(alert.starts_at),
            "endsAt": timestamp(valid_until if alert.ends_at is None else alert.ends_at),
        }
        for alert in alerts
    ]


def webhook_messages(
    alerts: Sequence[Alert], told: Collection[tuple[tuple[str, str], ...]]
) -> Iterator[dict[str, Any]]:
    """Write one message per run, as Alertmanager does for a receiver that groups by run.

    Args:
        alerts: firing and resolved ones.
        told: keys of the alerts that the receiver knows to fire: an alert that it never heard of is not resolved to it.

    Source:
        Prometheus documentation, Alertmanager configuration, ``webhook_config``: version "4".
    """
    heard = [alert for alert in audible(alerts) if alert.firing or alert.key in told]
    for run in sorted({alert.labels["run"] for alert in heard}):
        group = [alert for alert in heard if alert.labels["run"] == run]
        yield {
            "version": "4",
            "groupKey": f'{{}}:{{run="{_escape(run)}"}}',
            "truncatedAlerts": 0,
            "status": "firing" if any(alert.firing for alert in group) else "resolved",
            "receiver": RECEIVER,
            "groupLabels": {"run": run},
            "commonLabels": _common([alert.labels for alert in group]),
            "commonAnnotations": _common([alert.annotations for alert in group]),
            "externalURL": "",
            "alerts": [_webhook_alert(alert) for alert in group],
        }


def fingerprint(labels: Mapping[str, str]) -> str:
    """Identify an alert as Alertmanager does: FNV-1a over sorted names and values, 16 hexadecimal digits.

    Source:
        prometheus/common, ``model/signature.go``.
    """
    digest = _FNV_OFFSET
    for name in sorted(labels):
        for byte in name.encode() + _SEPARATOR + labels[name].encode() + _SEPARATOR:
            digest = ((digest ^ byte) * _FNV_PRIME) & 0xFFFF_FFFF_FFFF_FFFF
    return f"{digest:016x}"


def _webhook_alert(alert: Alert) -> dict[str, Any]:
    return {
        "status": "firing" if alert.firing else "resolved",
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "startsAt": timestamp(alert.starts_at),
        "endsAt": _NEVER if alert.ends_at is None else timestamp(alert.ends_at),
        "generatorURL": "",
        "fingerprint": fingerprint(alert.labels),
    }


def _common(texts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    first, *others = texts
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
