"""The embedded policy as a part of the sidecar: where its alerts go, and how patient it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from straggler.detect.policy import Policy
from straggler.errors import ConfigError
from straggler.model.clock import Clock
from straggler.sidecar.config import AlertsConfig
from straggler.sidecar.embedded import EmbeddedPolicy
from straggler.sidecar.notify import HttpNotifier, poster
from straggler.sidecar.state import Snapshot
from straggler.sidecar.tls import require_certificates

WAITING_TIMES = (
    "warning_for_seconds",
    "critical_for_seconds",
    "keep_firing_seconds",
    "job_for_seconds",
    "crash_for_seconds",
    "missing_seconds",
    "blind_seconds",
    "divergence_seconds",
    "cause_seconds",
    "cause_now_seconds",
)
"""What of the policy ``alerts.patience`` stretches: how long a condition must hold, and how far back its cause is
looked for; never what the condition is."""


class Alerting:
    """Judges each snapshot and tells the receiver.

    Raises:
        ConfigError: the file with the authorization or the certificates cannot be used, or two receivers are given.
    """

    def __init__(self, config: AlertsConfig, policy: Policy, clock: Clock) -> None:
        if config.alertmanager_url and config.webhook_url:
            raise ConfigError("alerts.webhook_url", "give this or alerts.alertmanager_url: a receiver is told once")
        require_certificates("alerts.ca_file", config.ca_file)
        self._notifier = HttpNotifier(
            config.alertmanager_url or config.webhook_url,
            clock,
            alertmanager=bool(config.alertmanager_url),
            post=poster(
                authorization=_read_authorization(config.authorization_file),
                ca_file=str(config.ca_file) if config.ca_file else None,
            ),
        )
        self._policy = EmbeddedPolicy(
            with_patience(policy, config.patience),
            clock,
            self._notifier,
            labels={"cluster": config.cluster} if config.cluster else {},
            links={"runbook": config.runbook_url, "dashboard": config.dashboard_url},
        )

    def observe(self, snapshot: Snapshot) -> None:
        """Judge the ranks as they are now; returns at once."""
        self._policy.observe(snapshot.views)

    def start(self) -> None:
        """Begin to deliver."""
        self._notifier.start()

    def stop(self) -> None:
        """Deliver nothing more."""
        self._notifier.stop(1.0)


def with_patience(policy: Policy, patience: float) -> Policy:
    """The same thresholds, and all waiting times so many times as long."""
    return replace(policy, **{name: getattr(policy, name) * patience for name in WAITING_TIMES})


def _read_authorization(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("alerts.authorization_file", f"cannot read {file}: {error}") from error
    if not text.isprintable() or not text:
        raise ConfigError("alerts.authorization_file", f"{file} is not one line, e.g. `Bearer …`")
    return text
