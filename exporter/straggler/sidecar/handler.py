"""One connection: reads heads and bodies with deadlines and limits, and writes answers.

The standard library's handler trusts the client: a head that trickles in byte by byte holds its thread for ever, and a
head may have megabytes. Here a head has a deadline and a size as a whole, and a body is read only by who wants it.
"""

from __future__ import annotations

import io
import logging
import socket
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple, Protocol

from straggler import __version__
from straggler.sidecar.exchange import Refusal, Request, Response
from straggler.sidecar.scrape import shielded

_log = logging.getLogger(__name__)

_MOST_DIGITS = 15
"""Of a body's length: Python refuses to read numbers of thousands of digits, with an exception."""
_DRAIN_SECONDS = 1.0
_DRAIN_BYTES = 1 << 21
"""So much of a body that nobody wanted is read and thrown away, so that the client sees the answer and no reset."""


class WebLimits(NamedTuple):
    """What a client can make the server hold."""

    connections: int = 64
    head_bytes: int = 32_768
    """Counted as they come, 8 KB at a time, so the beginning of a body may be among them."""
    head_seconds: float = 10.0
    """For request line and headers together."""
    idle_seconds: float = 90.0
    """Between two requests on one connection; more than the usual scrape interval."""
    body_seconds: float = 20.0
    write_seconds: float = 20.0


class Host(Protocol):
    """What a connection needs of its server."""

    limits: WebLimits
    respond: Callable[[Request], Response]
    count_refused: Callable[[str], None]

    def answering(self, change: int) -> None:
        """Told when an answer begins (1) and when it is out (-1)."""


class _Wire(io.RawIOBase):
    """The client's bytes, with a deadline for a whole head or body and a limit for a head."""

    def __init__(self, connection: socket.socket, limits: WebLimits) -> None:
        self._connection = connection
        self._limits = limits
        self._deadline: float | None = None
        self._patience = limits.head_seconds
        self._bytes_left = limits.head_bytes

    def expect_head(self, patience_seconds: float) -> None:
        """A head comes next: its first byte after at most ``patience_seconds``."""
        self._deadline = None
        self._patience = patience_seconds
        self._bytes_left = self._limits.head_bytes

    def expect_body(self, length: int) -> None:
        """So many bytes come next."""
        self._deadline = time.monotonic() + self._limits.body_seconds
        self._bytes_left = length + io.DEFAULT_BUFFER_SIZE

    @property
    def begun(self) -> bool:
        """Whether anything of the head has come."""
        return self._deadline is not None

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what is there, or wait until the deadline.

        Raises:
            TimeoutError: nothing came in time.
            Refusal: the head is too long.
        """
        left = self._patience if self._deadline is None else self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request came too slowly")
        self._connection.settimeout(left)
        count = self._connection.recv_into(buffer)
        if self._deadline is None:
            self._deadline = time.monotonic() + self._limits.head_seconds
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise Refusal(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                "head_too_large",
                f"request line and headers of more than {self._limits.head_bytes} bytes\n",
            )
        return count


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection, in its own thread."""

    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.1"  # answers have a head, also if the question was none
    disable_nagle_algorithm = True

    def setup(self) -> None:
        """Put deadlines and limits on what is read."""
        super().setup()
        self._host: Host = self.server  # type: ignore[assignment]  # made by ``web.py`` only
        self._wire = _Wire(self.connection, self._host.limits)
        self.rfile = io.BufferedReader(self._wire)
        self._patience = self._host.limits.head_seconds

    def version_string(self) -> str:
        """For the header ``Server``."""
        return f"straggler-exporter/{__version__}"

    def handle_one_request(self) -> None:
        """Read one head, answer it."""
        self.command = self.requestline = ""
        self.request_version = self.default_request_version
        self._continue_expected = False
        self._wire.expect_head(self._patience)
        try:
            self._serve_one()
        except TimeoutError:
            self.close_connection = True
            if self._wire.begun:
                self._host.count_refused("too_slow")
        except OSError as error:  # the client has gone
            _log.debug("%s: %s", self.address_string(), error)
            self.close_connection = True
        self._patience = self._host.limits.idle_seconds

    def _serve_one(self) -> None:
        try:
            self.raw_requestline = self.rfile.readline(self._host.limits.head_bytes)
            if not self.raw_requestline:
                self.close_connection = True
            elif self.parse_request():
                self._answer()
            else:
                self.close_connection = True  # the base class has answered
        except Refusal as refusal:
            self._refuse(refusal)

    def handle_expect_100(self) -> bool:
        """Ask for the body only when somebody wants it."""
        self._continue_expected = True
        return True

    def _answer(self) -> None:
        length = self._body_length()
        unread = bool(length) or "Transfer-Encoding" in self.headers

        def read_body(limit: int) -> bytes:
            nonlocal unread
            unread = True  # also where the client did not say that there is one
            body = self._read_body(length, limit)
            unread = False
            return body

        request = Request(
            self.command, self.path.partition("?")[0], self.headers, client=self.address_string(), read_body=read_body
        )
        self._host.answering(1)
        try:
            broken = Response(HTTPStatus.INTERNAL_SERVER_ERROR, b"internal error; see the log of the exporter\n")
            response = shielded(f"{self.command} {request.path}", partial(self._respond, request), broken)
            if unread:
                self.close_connection = True  # the rest of the body would be taken for the next request
            self._send(response)
            if unread:
                self._drain()
        finally:
            self._host.answering(-1)

    def _respond(self, request: Request) -> Response:
        try:
            return self._host.respond(request)
        except Refusal as refusal:
            self._host.count_refused(refusal.reason)
            return refusal.response()

    def _body_length(self) -> int | None:
        """What the client announces; ``None`` if it does not.

        Raises:
            Refusal: not one number.
        """
        announced = set(self.headers.get_all("Content-Length", ()))
        if not announced:
            return None
        text = announced.pop().strip()
        if announced or not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
            raise Refusal(HTTPStatus.BAD_REQUEST, "bad_length", "Content-Length is not one number\n")
        return int(text)

    def _read_body(self, length: int | None, limit: int) -> bytes:
        if length is None or "Transfer-Encoding" in self.headers:
            raise Refusal(HTTPStatus.LENGTH_REQUIRED, "no_length", "send a Content-Length and no Transfer-Encoding\n")
        if length > limit:
            text = f"a body of {length} bytes; at most {limit} are read\n"
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", text)
        if self._continue_expected:
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._wire.expect_body(length)
        try:
            body = self.rfile.read(length)
        except TimeoutError:
            raise Refusal(HTTPStatus.REQUEST_TIMEOUT, "too_slow", "the body came too slowly\n") from None
        except ConnectionError:
            body = b""
        if len(body) < length:
            raise Refusal(HTTPStatus.BAD_REQUEST, "cut_off", f"the body ended before its {length} bytes\n")
        return body

    def _drain(self) -> None:
        """Read and throw away what the client is still sending, within bounds."""
        deadline = time.monotonic() + _DRAIN_SECONDS
        left = _DRAIN_BYTES
        try:
            self.connection.shutdown(socket.SHUT_WR)
            while left > 0 and (seconds := deadline - time.monotonic()) > 0:
                self.connection.settimeout(seconds)
                count = len(self.connection.recv(65_536))
                if not count:
                    return
                left -= count
        except OSError as error:
            _log.debug("%s: %s", self.address_string(), error)

    def _refuse(self, refusal: Refusal) -> None:
        self._host.count_refused(refusal.reason)
        self.close_connection = True
        self._send(refusal.response())
        self._drain()

    def _send(self, response: Response) -> None:
        self.connection.settimeout(self._host.limits.write_seconds)
        self.send_response(response.status)
        if response.status is not HTTPStatus.NO_CONTENT:
            self.send_header("Content-Type", response.content_type)
            self.send_header("Content-Length", str(len(response.body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in response.headers:
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002 - the base class's signature
        """Answer a head that could not be parsed: in plain text, where the base class writes HTML."""
        status = HTTPStatus(code)
        self._refuse(Refusal(status, "bad_request", f"{message or status.phrase}\n"))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's signature
        """No access log: a scrape every few seconds is no news."""
        _log.debug("%s: %r", self.address_string(), format % args)
