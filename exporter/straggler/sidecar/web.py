"""The HTTP server: a thread for each connection, up to a limit. What is answered is decided in ``routes.py``.

The only place where a listening socket is made; encryption and authentication are those of ``gate.py``.
"""

from __future__ import annotations

import errno
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from functools import partial
from http.server import ThreadingHTTPServer
from typing import Any

from straggler.sidecar.exchange import Request, Response
from straggler.sidecar.gate import Gate
from straggler.sidecar.handler import Handler, Host, WebLimits

_log = logging.getLogger(__name__)

_GRACE_SECONDS = 0.5
"""How long an answer that is under way may take when the server stops."""
_TLS_HANDSHAKE = b"\x16"
"""The first byte of every TLS connection; no HTTP request begins with it."""

Respond = Callable[[Request], Response]
CountRefused = Callable[[str], None]


class WebServer:
    """Serves until it is stopped.

    Args:
        host: an address or a name; ``""`` is every address, IPv6 and IPv4.
        port: 0 chooses a free one.
        respond: gives the answers; called by several threads at a time.
        limits: for clients.
        count_refused: told the reason of each refusal.
        gate: encryption and passwords; ``None``: neither.

    Raises:
        OSError: the address is in use, not of this machine, or not allowed.
    """

    def __init__(
        self,
        host: str,
        port: int,
        respond: Respond,
        limits: WebLimits,
        count_refused: CountRefused,
        *,
        gate: Gate | None = None,
    ) -> None:
        self._server = _listen(
            host, port, partial(_Server, respond, limits=limits, count_refused=count_refused, gate=gate or Gate(None))
        )
        self._thread = threading.Thread(target=self._serve, name="web", daemon=True)

    @property
    def port(self) -> int:
        """The port that is really listened on."""
        return int(self._server.socket.getsockname()[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Accept no more, let answers under way go out for a moment, and close."""
        self._server.shutdown()
        self._server.server_close()
        deadline = time.monotonic() + _GRACE_SECONDS
        while self._server.under_way and time.monotonic() < deadline:
            time.sleep(0.01)

    def _serve(self) -> None:
        self._server.serve_forever(poll_interval=0.2)


class _Server(ThreadingHTTPServer, Host):
    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        respond: Respond,
        family: socket.AddressFamily,
        address: Any,
        *,
        limits: WebLimits,
        count_refused: CountRefused,
        gate: Gate,
    ) -> None:
        self._gate = gate
        self._respond = respond
        self.limits = limits
        self.count_refused = count_refused
        self.under_way = 0
        self._under_way_lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(limits.connections)
        self.address_family = family
        super().__init__(address, Handler)

    def respond(self, request: Request) -> Response:
        """Answer who may ask.

        Raises:
            Refusal: it may not.
        """
        self._gate.admit(request)
        return self._gate.with_headers(self._respond(request))

    def answering(self, change: int) -> None:
        """Count the answers that are under way."""
        with self._under_way_lock:
            self.under_way += change

    def server_bind(self) -> None:
        """Bind without asking the name service who we are, which can take seconds; with IPv4 on an IPv6 socket."""
        if self.address_family == socket.AF_INET6 and self.server_address[0] == "::":
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name = str(self.server_address[0])
        self.server_port = int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread, if one is free."""
        if not self._slots.acquire(blocking=False):
            self._turn_away(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system allows no more threads
            self._slots.release()
            self._turn_away(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection."""
        try:
            context = self._gate.context()
            connection = request if context is None else self._encrypted(request, context)
            if connection is not None:
                super().process_request_thread(connection, client_address)
        finally:
            self._slots.release()

    def _encrypted(self, request: Any, context: ssl.SSLContext) -> ssl.SSLSocket | None:
        """Shake hands, in the connection's own thread and within the time of a head; ``None``: it came to nothing."""
        connection = request
        try:
            request.settimeout(self.limits.head_seconds)
            first = request.recv(1, socket.MSG_PEEK)
            if first == _TLS_HANDSHAKE:
                connection = context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
                connection.settimeout(self.limits.head_seconds)
                connection.do_handshake()
                self._gate.check_names(connection)
                return connection
            if first:  # else a probe that only looked whether the port is open
                self._answer_and_close(request, "400 Bad Request", "not_encrypted", b"this port speaks https\n")
                return None
        except OSError as error:
            _log.debug("no encrypted connection: %s", error)
            self.count_refused("too_slow" if isinstance(error, TimeoutError) else "tls_handshake")
        self.shutdown_request(connection)
        return None

    def _turn_away(self, request: Any) -> None:
        self._answer_and_close(request, "503 Service Unavailable", "too_many_connections", b"too many connections\n")

    def _answer_and_close(self, request: Any, status: str, reason: str, text: bytes) -> None:
        self.count_refused(reason)
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
        try:
            request.settimeout(0.1)
            request.sendall(head.encode() + text)
        except OSError:
            _log.debug("a client that was turned away was gone already")
        self.shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's signature
        """Log instead of printing."""
        _log.exception("connection from %s", client_address)


def _listen(host: str, port: int, make: Callable[[socket.AddressFamily, Any], _Server]) -> _Server:
    if not host:
        if socket.has_dualstack_ipv6():
            try:
                return make(socket.AF_INET6, ("::", port))
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):  # IPv6 is switched off
                    raise
        return make(socket.AF_INET, ("0.0.0.0", port))  # noqa: S104 - every address is what was asked for
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return make(family, address)
