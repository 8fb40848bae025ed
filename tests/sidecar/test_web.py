"""The HTTP server against real clients, patient and hostile ones."""

from __future__ import annotations

import contextlib
import http.client
import logging
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import pytest

from straggler.sidecar.exchange import Refusal, Request, Response
from straggler.sidecar.handler import WebLimits
from straggler.sidecar.web import WebServer

LIMITS = WebLimits(
    connections=4, head_bytes=16_384, head_seconds=60, idle_seconds=60, body_seconds=60, write_seconds=60
)
"""Patient, since both ends are on a machine that may be busy."""


class Site:
    """A server with a few addresses, and what it refused."""

    def __init__(self, limits: WebLimits = LIMITS, host: str = "127.0.0.1") -> None:
        self.refused: Counter[str] = Counter()
        self._clients: list[http.client.HTTPConnection] = []
        self.hold = threading.Event()
        self.inside = threading.Semaphore(0)
        self.server = WebServer(host, 0, self._respond, limits, self._count)
        self.port = self.server.port
        self.server.start()

    def _count(self, reason: str) -> None:
        self.refused[reason] += 1

    def _respond(self, request: Request) -> Response:
        if request.path == "/echo":
            return Response(HTTPStatus.OK, request.read_body(1000))
        if request.path == "/hold":
            self.inside.release()
            self.hold.wait(30)
        if request.path == "/bug":
            raise ZeroDivisionError
        if request.path == "/no":
            raise Refusal(HTTPStatus.UNAUTHORIZED, "unauthorized", "no\n", (("WWW-Authenticate", "Bearer"),))
        return Response(HTTPStatus.OK, f"{request.method} {request.path}\n".encode())

    def client(self) -> http.client.HTTPConnection:
        """A well-behaved client."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        self._clients.append(client)
        return client

    def stop(self) -> None:
        """Let everybody go."""
        self.hold.set()
        for client in self._clients:
            client.close()
        self.server.stop()

    def raw(self, data: bytes) -> bytes:
        """Send these bytes and give all that comes until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(data)
            return _until_closed(connection)


def _until_closed(connection: socket.socket) -> bytes:
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """Stopped at the end; with the limits that a test gives as a parameter, patient otherwise."""
    site = Site(getattr(request, "param", LIMITS))
    yield site
    site.stop()


def impatient(**seconds: Any) -> pytest.MarkDecorator:
    """A site that waits for one thing only so long."""
    return pytest.mark.parametrize("site", [LIMITS._replace(**seconds)], indirect=True, ids=[""])


def test_get_and_head(site: Site) -> None:
    """HEAD has the head of GET and no body."""
    client = site.client()
    client.request("GET", "/x?query=1")
    get = client.getresponse()
    body = get.read()
    client.request("HEAD", "/xy?query=1")
    head = client.getresponse()

    assert (get.status, body) == (200, b"GET /x\n")
    assert head.read() == b""
    assert head.getheader("Content-Length") == str(len("HEAD /xy\n"))
    assert head.getheader("Content-Type") == get.getheader("Content-Type") == "text/plain; charset=utf-8"


def test_connection_is_kept(site: Site) -> None:
    """Several requests go over one connection, as Prometheus does it."""
    client = site.client()
    client.connect()
    ends = set()
    for _ in range(3):
        client.request("GET", "/")
        client.getresponse().read()
        assert client.sock is not None
        ends.add(client.sock.getsockname())

    assert len(ends) == 1


def test_server_says_who_it_is_and_not_what_it_runs_on(site: Site) -> None:
    """The header Server names the exporter, without the version of Python."""
    client = site.client()
    client.request("GET", "/")

    assert re.fullmatch(r"straggler-exporter/[\d.]+", client.getresponse().getheader("Server") or "")


def test_body_is_read(site: Site) -> None:
    """A body of announced length arrives whole, and the connection goes on."""
    client = site.client()
    for text in (b"one", b"two" * 100):
        client.request("POST", "/echo", body=text)
        assert client.getresponse().read() == text


@pytest.mark.parametrize(
    ("head", "status", "reason"),
    [
        (b"Content-Length: 1001\r\n", 413, "too_large"),
        (b"", 411, "no_length"),
        (b"Transfer-Encoding: chunked\r\n", 411, "no_length"),
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 411, "no_length"),
        (b"Content-Length: five\r\n", 400, "bad_length"),
        (b"Content-Length: -5\r\n", 400, "bad_length"),
        (b"Content-Length: " + b"9" * 5000 + b"\r\n", 400, "bad_length"),
        (b"Content-Length: 5\r\nContent-Length: 6\r\n", 400, "bad_length"),
    ],
)
def test_unusable_body(site: Site, head: bytes, status: int, reason: str) -> None:
    """A body that is too long or of unclear length is refused unread, counted, and the connection is closed."""
    answer = site.raw(b"POST /echo HTTP/1.1\r\nHost: x\r\n" + head + b"\r\nhello GET / HTTP/1.1\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert answer.count(b"HTTP/1.1") == 1
    assert site.refused == {reason: 1}


def test_body_that_nobody_wants_is_no_second_request(site: Site) -> None:
    """What follows a head that was answered without its body is thrown away, never taken for a request."""
    answer = site.raw(b"POST /x HTTP/1.1\r\nContent-Length: 22\r\n\r\nGET /evil HTTP/1.1\r\n\r\n")

    assert b"POST /x" in answer
    assert b"evil" not in answer


def test_large_unwanted_body_still_gets_its_answer(site: Site) -> None:
    """A client in the midst of sending too much sees why, and not just a broken connection."""
    client = site.client()
    client.request("POST", "/echo", body=b"x" * 1_500_000)
    answer = client.getresponse()

    assert answer.status == 413
    assert b"at most 1000" in answer.read()


def test_continue_is_said_only_for_a_wanted_body(site: Site) -> None:
    """A client that asks first is told to go on, or refused before it has sent anything."""
    head = b"POST %s HTTP/1.1\r\nContent-Length: %d\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as connection:
        connection.sendall(head % (b"/echo", 5))
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"hello")
        assert _until_closed(connection).endswith(b"hello")

    assert site.raw(head % (b"/echo", 5000)).startswith(b"HTTP/1.1 413 ")


@impatient(head_seconds=0.3)
def test_slow_head_is_cut_off(site: Site) -> None:
    """A head that trickles in has one deadline as a whole: each byte does not buy more time."""
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as connection:
        connection.settimeout(0.05)
        ended = False
        for _ in range(200):
            try:
                connection.sendall(b"X")
                ended = connection.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                ended = True
            if ended:
                break

    assert ended
    assert site.refused == {"too_slow": 1}


@impatient(body_seconds=0.3)
def test_slow_body_is_cut_off(site: Site) -> None:
    """A body that does not come is answered, and its thread is free again."""
    answer = site.raw(b"POST /echo HTTP/1.1\r\nContent-Length: 5\r\n\r\nhe")

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert site.refused == {"too_slow": 1}


@impatient(head_seconds=0.3)
def test_silent_connection_is_closed_without_a_complaint(site: Site) -> None:
    """A connection on which nothing comes is ended; nobody has done wrong."""
    assert site.raw(b"") == b""
    assert not site.refused


@impatient(idle_seconds=0.3)
def test_idle_connection_is_closed(site: Site) -> None:
    """A kept connection does not hold its thread for ever."""
    answer = site.raw(b"GET / HTTP/1.1\r\n\r\n")

    assert answer.endswith(b"GET /\n")


@pytest.mark.parametrize(
    "data",
    [
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"x" * 100_000 + b"\r\n\r\n",
    ],
)
def test_endless_head_is_refused(site: Site, data: bytes) -> None:
    """Request line and headers together are bounded, however they are made up."""
    assert site.raw(data).startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 414 "))
    assert sum(site.refused.values()) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100) + b"\n\n",  # TLS on the plain port
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/x\r\n\r\n",
        b"\r\n\r\n",
        b"\0" * 100 + b"\r\n\r\n",
    ],
)
def test_no_request_at_all(site: Site, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Bytes that are no request are refused or dropped without a traceback, and the server goes on."""
    with caplog.at_level(logging.INFO):
        answer = site.raw(data)
    client = site.client()
    client.request("GET", "/")

    assert not answer or answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 505 "))
    assert b"<html" not in answer.lower()
    assert not caplog.records
    assert client.getresponse().status == 200


def test_refusal_is_an_answer(site: Site) -> None:
    """An endpoint refuses by raising; the answer has its status and headers, and the reason is counted."""
    client = site.client()
    client.request("GET", "/no")
    answer = client.getresponse()

    assert (answer.status, answer.getheader("WWW-Authenticate"), answer.read()) == (401, "Bearer", b"no\n")
    assert site.refused == {"unauthorized": 1}


def test_defect_is_an_answer(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """A defect of ours is a 500 without details for the client and a traceback for the log; the server goes on."""
    client = site.client()
    client.request("GET", "/bug")
    answer = client.getresponse()

    assert (answer.status, answer.read()) == (500, b"internal error; see the log of the exporter\n")
    assert "ZeroDivisionError" in caplog.text
    client.request("GET", "/")
    assert client.getresponse().status == 200


def test_connections_are_bounded(site: Site) -> None:
    """Who comes when all threads are taken is turned away with a word, and has a place once one is free."""
    holders = [site.client() for _ in range(LIMITS.connections)]
    for holder in holders:
        holder.request("GET", "/hold")
        site.inside.acquire(timeout=30)

    assert site.raw(b"").startswith(b"HTTP/1.1 503 ")
    assert site.refused == {"too_many_connections": 1}

    site.hold.set()
    for holder in holders:
        holder.getresponse().read()
        holder.close()
    assert _eventually(lambda: site.raw(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").startswith(b"HTTP/1.1 200 "))


def _eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds


def test_reader_that_does_not_read_is_left(caplog: pytest.LogCaptureFixture) -> None:
    """A client that asks and goes away costs no traceback."""
    site = Site()
    try:
        with socket.create_connection(("127.0.0.1", site.port), timeout=30) as connection:
            connection.sendall(b"GET /hold HTTP/1.1\r\n\r\n")
            site.inside.acquire(timeout=30)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        site.hold.set()
    finally:
        site.stop()

    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_stop_lets_an_answer_go_out(site: Site) -> None:
    """Who is being answered when the server stops still gets the answer."""
    client = site.client()
    client.request("GET", "/hold")
    site.inside.acquire(timeout=30)
    stopping = threading.Thread(target=site.server.stop)
    stopping.start()
    site.hold.set()

    assert client.getresponse().status == 200
    stopping.join(30)


def test_address_in_use(site: Site) -> None:
    """Two servers never share a port."""
    with pytest.raises(OSError, match="in use"):
        WebServer("127.0.0.1", site.port, site._respond, LIMITS, site._count)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize(
    ("listen", "connect"), [("", "127.0.0.1"), ("", "::1"), ("::1", "::1"), ("localhost", "localhost")]
)
def test_both_families(listen: str, connect: str) -> None:
    """Every address is IPv6 and IPv4; a single one of either family works too."""
    site = Site(host=listen)
    try:
        with contextlib.closing(http.client.HTTPConnection(connect, site.port, timeout=30)) as client:
            client.request("GET", "/")
            assert client.getresponse().status == 200
    finally:
        site.stop()
