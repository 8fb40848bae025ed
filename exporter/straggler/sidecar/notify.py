"""Sends alerts to an Alertmanager or to a plain webhook, from a thread of its own.

``notify`` only puts the alerts down and returns: neither a scrape nor a look at the ranks ever waits for the network.
What is put down is a state, not an event: if the receiver is slow or away, the newest state replaces the older one, and
only what has been resolved is kept until it is delivered once. So nothing grows without bound and nothing goes stale.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import requests

from straggler.model.clock import Clock
from straggler.sidecar.alerts import Alert, audible
from straggler.sidecar.payloads import alertmanager_alerts, webhook_messages

_log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 5.0
RETRY_SECONDS = (1.0, 2.0, 4.0)
"""Waits between the tries of one delivery; after the last one it is counted as failed."""
PAUSE_SECONDS = 15.0
"""Before the next delivery after a failed one."""
RESEND_SECONDS = 60.0
"""Alertmanager forgets an alert that nobody repeats; Prometheus repeats after a minute too."""
VALID_SECONDS = 4 * RESEND_SECONDS
"""``endsAt`` of a firing alert lies this far ahead, as Prometheus does it: three lost repeats do not resolve it."""
REPEAT_SECONDS = 4 * 3600.0
"""A webhook is told again of what still fires, as Alertmanager's ``repeat_interval`` has it."""
MOST_RESOLVED = 1000

Post = Callable[[str, Any], None]
"""Sends one JSON body to an address, or raises ``OSError`` (as ``requests`` does) or ``ValueError``."""


class Delivery(NamedTuple):
    """What became of the alerts so far."""

    sent: int
    """Requests that were accepted."""
    failed: int
    """Deliveries given up after the last retry."""
    dropped: int
    """Resolved alerts that found no room while the receiver was away."""


def poster(*, authorization: str = "", ca_file: str | None = None, timeout: float = TIMEOUT_SECONDS) -> Post:
    """Make the real ``Post``.

    Args:
        authorization: the whole header, e.g. ``Bearer …``; empty for none.
        ca_file: PEM certificates to check ``https`` with; the system's by default.
        timeout: seconds to connect, and between two bytes of the answer.
    """
    session = requests.Session()

    def authorize(request: requests.PreparedRequest) -> requests.PreparedRequest:
        if authorization:
            request.headers["Authorization"] = authorization
        return request

    # Without an authentication of its own, requests would take the one that it finds in ~/.netrc.
    session.auth = authorize

    def post(url: str, body: Any) -> None:
        # A redirect would turn the POST into a GET and report success. The answer's body is not waited for.
        with session.post(
            url, json=body, timeout=timeout, allow_redirects=False, stream=True, verify=ca_file or True
        ) as response:
            if not response.ok or response.is_redirect:
                told = response.raw.read(200, decode_content=True).decode("utf-8", "replace").strip()
                raise requests.HTTPError(f"{response.status_code} {response.reason}: {told}")

    return post


class HttpNotifier:
    """Keeps the newest state and delivers it."""

    def __init__(self, url: str, clock: Clock, *, alertmanager: bool, post: Post | None = None) -> None:
        """Make it; nothing is sent before ``start``.

        Args:
            url: of the Alertmanager (``http://host:9093``, with its path prefix if it has one) or of the webhook.
            clock: the machine's.
            alertmanager: speak Alertmanager's API v2; else one message per run in its webhook format.
            post: how to send.
        """
        self._url = f"{url.rstrip('/')}/api/v2/alerts" if alertmanager else url
        self._alertmanager = alertmanager
        self._clock = clock
        self._post = post or poster()
        self._wake = threading.Condition()
        self._firing: tuple[Alert, ...] = ()
        self._resolved: dict[tuple[tuple[str, str], ...], Alert] = {}
        self._told: frozenset[tuple[tuple[str, str], ...]] = frozenset()
        self._heard: frozenset[tuple[tuple[str, str], ...]] = frozenset()
        self._told_at = float("-inf")
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._sent = self._failed = self._dropped = 0
        self._in_trouble = False

    @property
    def delivery(self) -> Delivery:
        """The counts so far."""
        with self._wake:
            return Delivery(self._sent, self._failed, self._dropped)

    def notify(self, alerts: Sequence[Alert]) -> None:
        """Take over the state; returns at once."""
        with self._wake:
            self._firing = tuple(alert for alert in alerts if alert.firing)
            for alert in self._firing:
                self._resolved.pop(alert.key, None)
            for alert in alerts:
                if not alert.firing:
                    self._resolved[alert.key] = alert
            while len(self._resolved) > MOST_RESOLVED:
                del self._resolved[next(iter(self._resolved))]
                self._dropped += 1
            if self._due():
                self._wake.notify()

    def start(self) -> None:
        """Begin to deliver."""
        self._thread = threading.Thread(target=self._run, name="straggler-notify", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = TIMEOUT_SECONDS) -> None:
        """Deliver nothing more; waits for a request under way, at most ``timeout`` seconds."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(timeout)

    def deliver(self) -> bool:
        """Deliver the newest state if it is due, with retries; false if it was given up."""
        with self._wake:
            if not self._due():
                return True
        for pause in (*RETRY_SECONDS, None):
            with self._wake:
                firing, resolved = self._firing, tuple(self._resolved.values())
            try:
                for body in self._bodies(firing, resolved):
                    self._post(self._url, body)
                    self._sent += 1
            except (OSError, ValueError) as error:
                self._report(error)
                if pause is None or self._sleep(pause):
                    break
            else:
                self._accepted(firing, resolved)
                return True
        with self._wake:
            self._failed += 1
        return False

    def _bodies(self, firing: Sequence[Alert], resolved: Sequence[Alert]) -> list[Any]:
        if self._alertmanager:
            return [alertmanager_alerts([*firing, *resolved], self._clock.time() + VALID_SECONDS)]
        return list(webhook_messages([*firing, *resolved], self._heard))

    def _accepted(self, firing: Sequence[Alert], resolved: Sequence[Alert]) -> None:
        with self._wake:
            for alert in resolved:
                if self._resolved.get(alert.key) is alert:
                    del self._resolved[alert.key]
            self._told = frozenset(alert.key for alert in firing)
            self._heard = frozenset(alert.key for alert in audible(firing))
            self._told_at = self._clock.monotonic()
        if self._in_trouble:
            self._in_trouble = False
            _log.info("alerts reach %s again", self._url)

    def _report(self, error: Exception) -> None:
        if not self._in_trouble:
            self._in_trouble = True
            _log.warning("alerts do not reach %s: %s", self._url, error)

    def _due(self) -> bool:
        """Whether there is something new to tell, or time to say it again. Needs the lock."""
        keys = frozenset(alert.key for alert in self._firing)
        again = RESEND_SECONDS if self._alertmanager else REPEAT_SECONDS
        since = self._clock.monotonic() - self._told_at
        return bool(self._resolved) or keys != self._told or (bool(keys) and since >= again)

    def _sleep(self, seconds: float) -> bool:
        """Wait; true if it is time to stop."""
        with self._wake:
            return self._wake.wait_for(lambda: self._stopping, seconds)

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._stopping or self._due(), 1.0)
                if self._stopping:
                    return
            if not self.deliver() and self._sleep(PAUSE_SECONDS):
                return
