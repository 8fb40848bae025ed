"""Alerts on their way: to a real Alertmanager, to a webhook, and to nobody who answers."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests

from fakes import FakeClock
from servers import crew_logs
from straggler.sidecar.alerts import Alert
from straggler.sidecar.clock import SystemClock
from straggler.sidecar.notify import MOST_RESOLVED, RESEND_SECONDS, HttpNotifier, poster
from straggler.simulate.processes import Crew
from straggler.simulate.servers import Alertmanager, wait_until_ready
from straggler.simulate.webhook import Webhook


def alert(rank: int = 2, *, ended: float | None = None, severity: str = "warning") -> Alert:
    """A straggler."""
    return Alert(
        labels={
            "alertname": "TrainingStraggler",
            "severity": severity,
            "run": "r",
            "rank": str(rank),
            "verdict": "straggling_rank",
        },
        annotations={"summary": f"rank {rank}"},
        starts_at=1_700_000_000.0,
        ends_at=ended,
    )


def eventually(holds: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether something comes true in time."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class Posts:
    """A ``Post`` that fails as often as it is told to, and keeps what went through."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.tries = 0
        self.bodies: list[Any] = []

    def __call__(self, _url: str, body: Any) -> None:
        """Take one body, or refuse it."""
        self.tries += 1
        if self.failures:
            self.failures -= 1
            raise requests.ConnectionError("nobody there")
        self.bodies.append(body)


def to_alertmanager(post: Posts, clock: FakeClock) -> HttpNotifier:
    """A notifier that is driven by hand."""
    return HttpNotifier("http://am", clock, alertmanager=True, post=post)


def test_news_is_sent_once_and_repeated_in_time() -> None:
    """What does not change is sent again after a minute and not before."""
    post, clock = Posts(), FakeClock()
    notifier = to_alertmanager(post, clock)
    for seconds in (0, 5, 50, 10, 5):
        clock.advance(seconds)
        notifier.notify([alert()])
        assert notifier.deliver()

    assert len(post.bodies) == 2
    assert clock.ticks - 1_000.0 > RESEND_SECONDS


def test_resolved_is_sent_until_it_is_taken() -> None:
    """An end that could not be delivered is delivered later, once."""
    post, clock = Posts(), FakeClock()
    notifier = to_alertmanager(post, clock)
    notifier.notify([alert()])
    notifier.deliver()
    notifier.notify([alert(ended=1_700_000_100.0)])
    notifier.notify([])
    notifier.deliver()
    notifier.notify([])
    notifier.deliver()

    assert [body[0]["endsAt"] for body in post.bodies][1:] == ["2023-11-14T22:15:00.000Z"]


def test_newest_state_wins_after_an_outage() -> None:
    """What fired and ended while nobody answered arrives as an end; what fires now as firing."""
    post, clock = Posts(failures=1), FakeClock()
    notifier = to_alertmanager(post, clock)
    notifier.notify([alert(2)])
    notifier.notify([alert(2, ended=5.0), alert(3)])
    notifier.deliver()

    assert [entry["labels"]["rank"] for entry in post.bodies[0]] == ["3", "2"]


def test_alert_that_fires_again_is_not_ended() -> None:
    """An undelivered end is dropped when the alert fires anew."""
    post, clock = Posts(), FakeClock()
    notifier = to_alertmanager(post, clock)
    notifier.notify([alert(2, ended=5.0)])
    notifier.notify([alert(2)])
    notifier.deliver()

    assert len(post.bodies[0]) == 1
    assert post.bodies[0][0]["endsAt"] != "1970-01-01T00:00:05.000Z"


def test_ends_are_bounded() -> None:
    """While nobody answers, ends pile up to a bound; what is lost is counted."""
    notifier = to_alertmanager(Posts(), FakeClock())
    for rank in range(MOST_RESOLVED + 7):
        notifier.notify([alert(rank, ended=5.0)])

    assert notifier.delivery.dropped == 7


@pytest.mark.slow
def test_retries_are_bounded_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Four tries, then the delivery is given up and counted; trouble is logged when it begins and ends."""
    post, clock = Posts(failures=4), FakeClock()
    notifier = to_alertmanager(post, clock)
    notifier.notify([alert()])
    with caplog.at_level(logging.INFO):
        assert notifier.deliver() is False
        assert post.tries == 4
        assert notifier.delivery == (0, 1, 0)
        assert notifier.deliver()

    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "nobody there" in caplog.records[0].message


def test_webhook_gets_changes_only() -> None:
    """A webhook is told when something fires or ends, and of what still fires only after hours."""
    post, clock = Posts(), FakeClock()
    notifier = HttpNotifier("http://hook", clock, alertmanager=False, post=post)
    for _ in range(100):
        clock.advance(60)
        notifier.notify([alert()])
        notifier.deliver()
    assert [body["status"] for body in post.bodies] == ["firing"]
    clock.advance(3 * 3600)
    notifier.notify([alert()])
    notifier.deliver()
    notifier.notify([alert(ended=clock.time())])
    notifier.deliver()

    assert [body["status"] for body in post.bodies] == ["firing", "firing", "resolved"]


def test_webhook_is_not_told_the_end_of_what_it_never_heard() -> None:
    """A warning under its critical alert is silent, and so is its end."""
    post, clock = Posts(), FakeClock()
    notifier = HttpNotifier("http://hook", clock, alertmanager=False, post=post)
    notifier.notify([alert(), alert(severity="critical")])
    notifier.deliver()
    notifier.notify([alert(ended=5.0), alert(severity="critical")])
    notifier.deliver()

    assert [[entry["labels"]["severity"] for entry in body["alerts"]] for body in post.bodies] == [
        ["critical"],
        ["critical"],
    ]


def test_thread_delivers_to_a_real_webhook() -> None:
    """Put down, picked up, delivered, ended; stopping is prompt."""
    webhook = Webhook()
    notifier = HttpNotifier(webhook.url, SystemClock(), alertmanager=False)
    notifier.start()
    try:
        notifier.notify([alert()])
        assert eventually(lambda: bool(webhook.notices()))
        notifier.notify([alert(ended=time.time())])
        assert eventually(lambda: len(webhook.notices()) == 2)
    finally:
        notifier.stop()
        webhook.close()

    assert [notice.status for notice in webhook.notices()] == ["firing", "resolved"]
    assert not any(thread.name == "straggler-notify" for thread in threading.enumerate())


def test_nobody_waits_for_a_receiver_that_hangs() -> None:
    """A receiver that takes the connection and never answers holds up neither the looks nor the end."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        notifier = HttpNotifier(url, SystemClock(), alertmanager=True, post=poster(timeout=30))
        notifier.start()
        for rank in range(100):
            notifier.notify([alert(rank)])
        notifier.stop(timeout=0.1)

    assert notifier.delivery.sent == 0


class Site(BaseHTTPRequestHandler):
    """Answers as its path says, and keeps the headers."""

    seen: list[dict[str, str]]

    def do_POST(self) -> None:
        """Answer with the status in the path."""
        self.seen.append(dict(self.headers))
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(int(self.path[1:]))
        if self.path == "/302":
            self.send_header("Location", "/200")
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"told")

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@pytest.fixture
def site() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """An address, and the headers of what was posted to it."""
    seen: list[dict[str, str]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Here", (Site,), {"seen": seen}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("status", [302, 400, 401, 500, 503])
def test_anything_but_success_is_an_error(status: int, site: tuple[str, list[dict[str, str]]]) -> None:
    """An error is told with the answer's first words; a redirect is not followed, since it would lose the body."""
    url, seen = site

    with pytest.raises(requests.HTTPError, match=f"{status} .*{'' if status == 302 else 'told'}"):
        poster()(f"{url}/{status}", {})
    assert len(seen) == 1


def test_authorization(site: tuple[str, list[dict[str, str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The header is the configured one, and never a password that lies about in ~/.netrc."""
    url, seen = site
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    poster()(f"{url}/200", {})
    poster(authorization="Bearer t")(f"{url}/200", {})

    assert [headers.get("Authorization") for headers in seen] == [None, "Bearer t"]


def test_missing_certificates_do_not_end_the_thread(tmp_path: Path) -> None:
    """A CA file that vanished is a failed delivery like any other."""
    post = poster(ca_file=str(tmp_path / "none.pem"))

    with pytest.raises(OSError, match=r"none\.pem|refused"):
        post("https://127.0.0.1:1/", {})


@pytest.mark.servers
def test_real_alertmanager(tmp_path: Path) -> None:
    """Alertmanager takes the alert, shows it with its labels, passes it on, and ends it when we say so."""
    webhook = Webhook()
    crew = Crew(tmp_path)
    try:
        with crew_logs(crew):
            server = Alertmanager(crew, webhook.url)
            wait_until_ready(f"{server.url}/-/ready", server.process)
            notifier = HttpNotifier(server.url, SystemClock(), alertmanager=True)
            notifier.start()
            began = time.time() - 30
            firing = Alert(labels=alert().labels, annotations=alert().annotations, starts_at=began)
            notifier.notify([firing])
            assert eventually(lambda: bool(webhook.notices()))
            (shown,) = requests.get(f"{server.url}/api/v2/alerts", timeout=60).json()
            notifier.notify(
                [Alert(labels=firing.labels, annotations=firing.annotations, starts_at=began, ends_at=time.time())]
            )
            assert eventually(lambda: webhook.notices()[-1].status == "resolved")
            notifier.stop()
    finally:
        crew.stop()
        webhook.close()

    assert shown["labels"] == dict(alert().labels)
    assert shown["annotations"] == {"summary": "rank 2"}
    assert notifier.delivery.failed == 0
