"""HTTP on this machine: a small server in a thread, on a free loopback port, and a client that needs no proxy."""

from __future__ import annotations

import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def read_local(url: str, timeout_seconds: float = 10.0) -> str:
    """The body of a loopback URL.

    Raises:
        OSError: nobody listens, no answer in time, or a status other than success (``urllib.error.HTTPError``).
    """
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(url, timeout=timeout_seconds) as answer:
        return str(answer.read().decode())


class LocalHandler(BaseHTTPRequestHandler):
    """Answers one request, and says nothing on the terminal."""

    def answer(self, status: int, text: str) -> None:
        """Send a plain text."""
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Be quiet: the terminal belongs to the table."""


class LocalServer:
    """Serves from construction to ``close``. ``url`` has neither a path nor a slash at its end."""

    def __init__(self, handler: type[LocalHandler]) -> None:
        self._server = _QuietServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """End the thread and free the port."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up in the middle is its own business."""
