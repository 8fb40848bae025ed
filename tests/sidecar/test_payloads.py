"""Alerts as JSON."""

from __future__ import annotations

import pytest

from straggler.sidecar.alerts import Alert, audible
from straggler.sidecar.payloads import alertmanager_alerts, fingerprint, timestamp, webhook_messages


def alert(
    name: str = "TrainingStraggler",
    severity: str = "warning",
    *,
    run: str = "r",
    verdict: str = "straggling_rank",
    ended: float | None = None,
    **labels: str,
) -> Alert:
    """One alert since 2023-11-14T22:13:20Z."""
    return Alert(
        labels={"alertname": name, "severity": severity, "run": run, "verdict": verdict, **labels},
        annotations={"summary": "s"},
        starts_at=1_700_000_000.0,
        ends_at=ended,
    )


HANG = alert("TrainingHung", "critical", verdict="hang")


def test_timestamp() -> None:
    """RFC 3339 in UTC with milliseconds."""
    assert timestamp(1_700_000_000.25) == "2023-11-14T22:13:20.250Z"


def test_alertmanager() -> None:
    """A firing alert ends when nobody repeats it, a resolved one when it was resolved."""
    firing, resolved = alertmanager_alerts([alert(rank="2"), alert(ended=1_700_000_100.0)], 1_700_000_240.0)

    assert firing == {
        "labels": {
            "alertname": "TrainingStraggler",
            "severity": "warning",
            "run": "r",
            "verdict": "straggling_rank",
            "rank": "2",
        },
        "annotations": {"summary": "s"},
        "startsAt": "2023-11-14T22:13:20.000Z",
        "endsAt": "2023-11-14T22:17:20.000Z",
    }
    assert resolved["endsAt"] == "2023-11-14T22:15:00.000Z"


def test_webhook_message() -> None:
    """One message per run in the format of version 4."""
    first, second = webhook_messages([alert(rank="2"), alert(rank="3"), alert(run='b"')], ())

    assert second == {
        "version": "4",
        "groupKey": '{}:{run="r"}',
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "straggler-exporter",
        "groupLabels": {"run": "r"},
        "commonLabels": {
            "alertname": "TrainingStraggler",
            "severity": "warning",
            "run": "r",
            "verdict": "straggling_rank",
        },
        "commonAnnotations": {"summary": "s"},
        "externalURL": "",
        "alerts": [
            {
                "status": "firing",
                "labels": dict(alert(rank=rank).labels),
                "annotations": {"summary": "s"},
                "startsAt": "2023-11-14T22:13:20.000Z",
                "endsAt": "0001-01-01T00:00:00Z",
                "generatorURL": "",
                "fingerprint": fingerprint(alert(rank=rank).labels),
            }
            for rank in ("2", "3")
        ],
    }
    assert first["groupKey"] == '{}:{run="b\\""}'


def test_webhook_resolves_only_what_it_told() -> None:
    """A resolved alert that the receiver never heard of is not sent; one that it knows is."""
    gone = alert(ended=1_700_000_100.0)
    (message,) = webhook_messages([gone], {gone.key})

    assert (message["status"], message["alerts"][0]["status"]) == ("resolved", "resolved")
    assert list(webhook_messages([gone], ())) == []


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, "cbf29ce484222325"),  # the FNV-1a offset itself
        ({"name": "garland, briggs", "fear": "love is not enough"}, f"{5799056148416392346:016x}"),
    ],
)
def test_fingerprint(labels: dict[str, str], expected: str) -> None:
    """FNV-1a over names and values, as in the tests of prometheus/common; the order of labels does not matter."""
    assert fingerprint(labels) == expected
    assert fingerprint({"x": "1", "a": "2"}) == fingerprint({"a": "2", "x": "1"})


def test_critical_silences_its_warning() -> None:
    """Of the same subject the warning is left out, of another it stays."""
    warning, critical, other = alert(rank="2"), alert(severity="critical", rank="2"), alert(rank="3")

    assert audible([warning, critical, other]) == [critical, other]


def test_hang_silences_slowness_and_never_itself() -> None:
    """While a run hangs its slowness is no news; blindness is, and so is another run's slowness."""
    slow, blind, other = alert(rank="2"), alert("StragglerExporterBlind", verdict="blind"), alert(run="s")

    assert audible([slow, HANG, blind, other]) == [HANG, blind, other]


def test_resolved_is_always_told() -> None:
    """What ends is told whatever fires; what has ended silences nothing."""
    slow, ended_hang = alert(rank="2"), alert("TrainingHung", "critical", verdict="hang", ended=1.0)

    assert audible([alert(ended=1.0), HANG]) == [alert(ended=1.0), HANG]
    assert audible([slow, ended_hang]) == [slow, ended_hang]
