"""The embedded policy as a part of the sidecar."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from fakes import FakeClock
from straggler.detect.policy import DEFAULT
from straggler.errors import ConfigError
from straggler.sidecar.alerting import WAITING_TIMES, Alerting, with_patience
from straggler.sidecar.app import make_alerting
from straggler.sidecar.config import AlertsConfig, Config
from straggler.sidecar.settings import load

WEBHOOK = "http://127.0.0.1:9/alerts"


def test_off_without_a_receiver() -> None:
    """Nobody is told by default: Prometheus' rules do it."""
    assert make_alerting(Config(), DEFAULT) is None


@pytest.mark.parametrize("key", ["webhook_url", "alertmanager_url"])
def test_on_with_a_receiver(key: str) -> None:
    """One receiver switches it on."""
    assert make_alerting(load({f"alerts_{key}": WEBHOOK}, {}), DEFAULT) is not None


def test_two_receivers_are_refused() -> None:
    """Who gives both would be told twice."""
    with pytest.raises(ConfigError) as refused:
        Alerting(AlertsConfig(webhook_url=WEBHOOK, alertmanager_url=WEBHOOK), DEFAULT, FakeClock())
    assert refused.value.key == "alerts.webhook_url"


@pytest.mark.parametrize("url", ["127.0.0.1:9093", "ftp://host/", "http://", "http://host:port"])
def test_wrong_receiver_is_refused(url: str) -> None:
    """What is no HTTP address is refused with what to write."""
    with pytest.raises(ConfigError, match="write a URL like") as refused:
        load({"alerts_webhook_url": url}, {})
    assert refused.value.key == "alerts.webhook_url"


def test_patience_stretches_waiting_alone() -> None:
    """Waiting times are multiplied; ratios, windows and the length of a hang are not touched."""
    before, after = asdict(DEFAULT), asdict(with_patience(DEFAULT, 0.1))

    assert {name for name in before if before[name] != after[name]} == set(WAITING_TIMES)
    assert after["warning_for_seconds"] == pytest.approx(6)


@pytest.mark.parametrize("content", ["", "\n", "Bearer a\nBearer b\n"])
def test_authorization_is_one_line(tmp_path: Path, content: str) -> None:
    """A file without exactly one header value is refused before the first alert would fail on it."""
    file = tmp_path / "authorization"
    file.write_text(content, encoding="utf-8")

    with pytest.raises(ConfigError) as refused:
        Alerting(AlertsConfig(webhook_url=WEBHOOK, authorization_file=file), DEFAULT, FakeClock())
    assert refused.value.key == "alerts.authorization_file"


def test_missing_authorization_is_refused(tmp_path: Path) -> None:
    """So is a file that is not there."""
    with pytest.raises(ConfigError, match="cannot read"):
        Alerting(AlertsConfig(webhook_url=WEBHOOK, authorization_file=tmp_path / "none"), DEFAULT, FakeClock())
