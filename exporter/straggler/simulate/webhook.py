"""The other end of an alert: a receiver of Alertmanager's webhook, in place of the pager."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from straggler.simulate.local_http import LocalHandler, LocalServer

_MAX_BYTES = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One alert of one message, as the person on call gets it."""

    status: str
    """``firing`` or ``resolved``."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    received_ns: int
    """``time.monotonic_ns()`` when it came in."""

    @property
    def name(self) -> str:
        """The alert's name."""
        return self.labels.get("alertname", "")


class Webhook:
    """Listens from construction to ``close`` and keeps all that comes, in order."""

    def __init__(self) -> None:
        self._notices: list[Notice] = []
        self._news = threading.Condition()
        self._server = LocalServer(_handler(self._receive))
        self.url = f"{self._server.url}/alerts"

    def _receive(self, body: bytes) -> None:
        now = time.monotonic_ns()
        alerts = json.loads(body)["alerts"]
        with self._news:
            self._notices += [
                Notice(
                    status=alert["status"],
                    labels=alert["labels"],
                    annotations=alert.get("annotations") or {},
                    received_ns=now,
                )
                for alert in alerts
            ]
            self._news.notify_all()

    def notices(self) -> list[Notice]:
        """All that came so far, oldest first."""
        with self._news:
            return list(self._notices)

    def wait_for(self, wanted: Callable[[Notice], bool], seconds: float) -> Notice | None:
        """The first notice that is wanted, once it is there; ``None`` if it does not come in time."""

        def found() -> Notice | None:
            return next((notice for notice in self._notices if wanted(notice)), None)

        with self._news:
            return self._news.wait_for(found, timeout=seconds)

    def close(self) -> None:
        """Stop listening."""
        self._server.close()


def _handler(receive: Callable[[bytes], None]) -> type[LocalHandler]:
    class Handler(LocalHandler):
        def do_POST(self) -> None:  # noqa: N802 - http.server calls it so
            length = int(self.headers.get("Content-Length") or 0)
            if length > _MAX_BYTES:
                self.answer(413, "too large\n")
                return
            try:
                receive(self.rfile.read(length))
            except (ValueError, KeyError, TypeError) as error:
                self.answer(400, f"not an Alertmanager message: {error!r}\n")
            else:
                self.answer(200, "thanks\n")

    return Handler
