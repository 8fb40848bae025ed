"""The receiver of alerts."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from urllib.error import HTTPError

import pytest

from straggler.simulate.webhook import Webhook


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    """A receiver that is closed after the test."""
    webhook = Webhook()
    yield webhook
    webhook.close()


def post(webhook: Webhook, body: bytes) -> int:
    """Send one message, as Alertmanager does."""
    request = urllib.request.Request(webhook.url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return int(answer.status)


def message(*alerts: tuple[str, str]) -> bytes:
    """Name and status of each alert."""
    return json.dumps(
        {
            "version": "4",
            "alerts": [
                {"status": status, "labels": {"alertname": name, "rank": "2"}, "annotations": {"summary": "slow"}}
                for name, status in alerts
            ],
        }
    ).encode()


def test_keeps_what_comes_in_order(webhook: Webhook) -> None:
    """All alerts of all messages are kept, oldest first."""
    assert post(webhook, message(("A", "firing"), ("B", "firing"))) == 200
    post(webhook, message(("A", "resolved")))

    assert [(notice.name, notice.status) for notice in webhook.notices()] == [
        ("A", "firing"),
        ("B", "firing"),
        ("A", "resolved"),
    ]
    assert webhook.notices()[0].labels["rank"] == "2"
    assert webhook.notices()[0].annotations == {"summary": "slow"}


def test_waits_for_the_wanted_one(webhook: Webhook) -> None:
    """Waiting ends with the first notice that is wanted, or with nothing when time is up."""
    post(webhook, message(("A", "firing"), ("B", "firing")))

    found = webhook.wait_for(lambda notice: notice.name == "B", 5)
    assert found is not None
    assert found.name == "B"
    assert webhook.wait_for(lambda notice: notice.name == "C", 0.05) is None


@pytest.mark.parametrize("body", [b"", b"not json", b"{}", b'{"alerts": [{}]}', b"[]"])
def test_nonsense_is_refused(webhook: Webhook, body: bytes) -> None:
    """What is no message of Alertmanager is answered 400, so that the sender says so, and nothing is kept."""
    with pytest.raises(HTTPError, match="400"):
        post(webhook, body)
    assert webhook.notices() == []
