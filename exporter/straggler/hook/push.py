"""Sends the records over HTTP, for training that shares no directory with a sidecar.

A daemon thread posts batches of the very bytes that a ring would hold. The training thread only appends to a queue that
drops its oldest when it is full, so a slow or dead receiver costs it nothing. What could not be delivered is sent again
with the next batch; a receiver skips serials that it knows. What was dropped is no loss to the counters, since each
record carries the totals. Even without new records a batch goes out each interval, as a sign of life.

Straight to the given host: no proxy, and no redirect is followed, which would hand the token to somebody else.
"""

from __future__ import annotations

import http.client
import random
import ssl
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from straggler.hook.guard import attempt
from straggler.wire import layout
from straggler.wire.encode import encode_identity, encode_live
from straggler.wire.push import CONTENT_TYPE, join_push
from straggler.wire.records import Identity, Live

if TYPE_CHECKING:
    from straggler.hook.session import Session

INTERVAL_SECONDS = 5.0
_LONGEST_INTERVAL_SECONDS = 60.0
_TIMEOUT_SECONDS = 5.0
"""For each of connecting, sending and the answer."""
EXIT_SECONDS = 2.0
"""The most that the last batch may hold up the end of the process."""
_BATCH_RECORDS = 1024
_BATCHES_AT_ONCE = 4
_REFUSED_FOR_GOOD = frozenset({400, 413, 415, 422})
"""The batch itself is at fault: sent again, it would be refused again."""
_ANSWER_BYTES = 200


def start_pusher(session: Session) -> Pusher | None:
    """Start pushing; ``None``, and a report, if the URL names no host."""
    try:
        url = urlsplit(session.options.push_url)
        is_right = bool(url.hostname) and url.port != 0
    except ValueError:
        is_right = False
    if not is_right:
        session.warn("push", f"push URL {session.options.push_url[:80]!r} is none: nothing is pushed. Training goes on")
        return None
    pusher = Pusher(session)
    pusher.start()
    return pusher


class Pusher:
    """The thread and its queue.

    Args:
        session: what it tells of; identity and state are read at each batch.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._url = urlsplit(session.options.push_url)
        self._created_ns = session.wall_clock()
        self._queue = session.book.new_queue()
        self._batch: list[bytes] = []
        """Taken from the queue, not yet delivered."""
        self._connection: http.client.HTTPConnection | None = None
        self._status = layout.STATUS_RUNNING
        self._failures = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="straggler-push", daemon=True)

    def start(self) -> None:
        """Begin to push."""
        self._thread.start()

    def stop(self, status: int, *, wait: bool) -> None:
        """Say goodbye with what is left.

        Args:
            status: ``layout.STATUS_*``.
            wait: return only when that is delivered, or has taken ``EXIT_SECONDS``.
        """
        self._status = status
        self._stopping.set()
        if wait and threading.current_thread() is not self._thread:
            self._thread.join(EXIT_SECONDS)

    def _run(self) -> None:
        error = attempt(self._push_until_stopped)
        if error is not None:
            self._session.warn("push", f"pushing to {self._where()} ended with an error: {error!r}. Training goes on")

    def _push_until_stopped(self) -> None:
        # Ranks start together, and should not all push at the same moment for ever after.
        wait = random.uniform(0.0, INTERVAL_SECONDS)  # noqa: S311 - no secret
        while not self._stopping.wait(wait):
            self._failures = 0 if self._push() else self._failures + 1
            wait = min(INTERVAL_SECONDS * 2**self._failures, _LONGEST_INTERVAL_SECONDS)
        self._push()
        self._forget_connection()

    def _push(self) -> bool:
        """Deliver what there is; tell whether the receiver took it."""
        for _ in range(_BATCHES_AT_ONCE):
            while self._queue and len(self._batch) < _BATCH_RECORDS:
                self._batch.append(self._queue.popleft())
            if not self._deliver():
                return False
            if not self._queue:
                break
        return True

    def _deliver(self) -> bool:
        try:
            status, answer = self._post(self._body(self._batch))
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._forget_connection()
            self._complain(f"{type(error).__name__}: {error}")
            return False
        is_taken = 200 <= status < 300
        if is_taken or status in _REFUSED_FOR_GOOD:
            self._batch.clear()
        if not is_taken:
            self._complain(f"answer {status}: {answer}")
        return is_taken

    def _body(self, batch: list[bytes]) -> bytes:
        session = self._session
        arrivals, serial, excluded = session.recorder.glance()
        live = Live(
            arrivals=arrivals,
            records=serial,
            updated_monotonic_ns=session.watch.clock(),
            updated_realtime_ns=session.wall_clock(),
            status=self._status,
            excluded_phase=excluded - 1 if excluded else None,
        )
        identity: Identity = session.identity
        return join_push(self._created_ns, encode_live(live), encode_identity(identity), batch)

    def _post(self, body: bytes) -> tuple[int, str]:
        """Send one batch; give the status and the beginning of the answer."""
        is_new = self._connection is None
        connection = self._connection or self._connect()
        self._connection = connection
        headers = {"Content-Type": CONTENT_TYPE}
        token = self._token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        path = self._url.path or "/api/v1/push"
        try:
            connection.request("POST", path + (f"?{self._url.query}" if self._url.query else ""), body, headers)
            response = connection.getresponse()
        except (ConnectionError, http.client.BadStatusLine):
            self._forget_connection()
            if is_new:
                raise
            return self._post(body)  # the receiver had closed an idle connection: try once on a new one
        answer = response.read(_ANSWER_BYTES).decode("utf-8", "replace").strip()
        if response.will_close or not response.isclosed():
            self._forget_connection()
        return response.status, answer

    def _connect(self) -> http.client.HTTPConnection:
        host = self._url.hostname or ""
        if self._url.scheme.lower() == "https":
            return http.client.HTTPSConnection(
                host, self._url.port, timeout=_TIMEOUT_SECONDS, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(host, self._url.port, timeout=_TIMEOUT_SECONDS)

    def _forget_connection(self) -> None:
        if self._connection is not None:
            attempt(self._connection.close)
            self._connection = None

    def _token(self) -> str:
        """Read anew each time, so that a token which is replaced in its file is used."""
        options = self._session.options
        if not options.push_token_file:
            return options.push_token.strip()
        with open(options.push_token_file, encoding="ascii") as file:  # noqa: PTH123 - pathlib costs 5 ms of import
            return file.read(4096).split("\n", 1)[0].strip()

    def _where(self) -> str:
        """The receiver, without what may be secret in a URL."""
        return f"{self._url.scheme}://{self._url.hostname}:{self._url.port or ''}{self._url.path}"

    def _complain(self, text: str) -> None:
        self._session.warn("push", f"cannot push to {self._where()}: {text:.300}. Trying on, without a further word")
