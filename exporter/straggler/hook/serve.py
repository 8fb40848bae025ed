"""Serves the rank's own ``/metrics`` from a thread, where no sidecar can run.

The training thread only appends to a queue. The thread empties it when it is asked for the page, a little at a time, so
that it never keeps the interpreter's lock from the training for long.
"""

from __future__ import annotations

import os
import socket
import socketserver
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from straggler.errors import WireError
from straggler.hook.guard import attempt
from straggler.hook.page import Facts, render
from straggler.wire import layout
from straggler.wire.decode import decode_record
from straggler.wire.recent import Sample, sample, summarize_samples
from straggler.wire.records import StepRecord

if TYPE_CHECKING:
    from straggler.hook.session import Session

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TIMEOUT_SECONDS = 10.0
"""For a client that connects and says nothing."""
_POLL_SECONDS = 0.2
_SAMPLES = 4096
_RECORDS_AT_ONCE = 64
"""Decoded, 0.4 ms, before others may have the interpreter's lock."""


class Observer:
    """Knows what the page says. Used by one scrape at a time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._queue = session.book.new_queue()
        self._lock = threading.Lock()
        self._samples: deque[Sample] = deque(maxlen=_SAMPLES)
        self._newest: StepRecord | None = None
        self._mark: tuple[int, int, int] | None = None
        self._moved_ns = session.watch.clock()

    def page(self) -> str:
        """The page as of now."""
        with self._lock:
            return render(self._look())

    def _look(self) -> Facts:
        session = self._session
        self._empty_queue()
        mark = session.recorder.glance()
        now = session.watch.clock()
        if mark != self._mark:
            self._mark, self._moved_ns = mark, now
        arrivals, _serial, excluded = mark
        return Facts(
            identity=session.identity,
            newest=self._newest,
            recent=summarize_samples(self._samples),
            arrivals=arrivals,
            excluded_phase=excluded - 1 if excluded else None,
            own_reason=layout.OWN_REASONS[self._newest.own_reason if self._newest else session.book.own_reason],
            silent_seconds=(now - self._moved_ns) * 1e-9,
        )

    def _empty_queue(self) -> None:
        for count in range(len(self._queue)):
            if not count % _RECORDS_AT_ONCE:
                time.sleep(0)
            try:
                self._newest = decode_record(self._queue.popleft())
            except (IndexError, WireError):  # the queue was full, and lost its oldest meanwhile
                continue
            step = sample(self._newest)
            if step is not None:
                self._samples.append(step)


class _Handler(BaseHTTPRequestHandler):
    timeout = _TIMEOUT_SECONDS
    observer: Observer

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self._answer(404, "this rank serves /metrics\n")
            return
        pages: list[str] = []
        error = attempt(lambda: pages.append(self.observer.page()))
        if error is None:
            self._answer(200, pages[0])
        else:
            self._answer(500, f"{error!r}\n")

    def _answer(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "straggler"

    def log_message(self, *_: Any) -> None:
        """Say nothing: this is somebody's training log."""


class _Server(ThreadingHTTPServer):
    timeout = _POLL_SECONDS

    def server_bind(self) -> None:
        # Not HTTPServer's: it asks DNS for the host's full name, which may take half a minute.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "", self.server_address[1]

    def handle_error(self, *_: Any) -> None:
        """A client went away: no news."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class PageServer:
    """The thread and its socket."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self.port = int(server.server_port)
        self._inode = os.fstat(server.fileno()).st_ino
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="straggler-serve", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped:
            self._server.handle_request()
        self._server.server_close()

    def stop(self, *, wait: bool) -> None:
        """Serve no more; with ``wait`` the port is free afterwards."""
        self._stopped = True
        if wait and threading.current_thread() is not self._thread:
            self._thread.join(_POLL_SECONDS * 5)

    def orphan(self) -> None:
        """In a forked child: give back our end of the socket, if the descriptor still is it."""
        attempt(self._close_if_ours)

    def _close_if_ours(self) -> None:
        if os.fstat(self._server.fileno()).st_ino == self._inode:
            self._server.socket.close()


def start_server(session: Session) -> PageServer | None:
    """Serve the page; ``None``, and a report, if the address cannot be had."""
    address = session.options.serve
    if address is None:
        return None
    handler = type("_RankHandler", (_Handler,), {"observer": Observer(session)})
    try:
        return PageServer((_Server6 if ":" in address[0] else _Server)(address, handler))
    except OSError as error:
        session.book.queues.pop()
        text = f"the rank's own page cannot be served on port {address[1]}: {error.strerror or error}. Training goes on"
        session.warn("serve", text)
        return None
