"""One page over real HTTP and HTTPS on loopback: what goes wrong, and what it is called."""

from __future__ import annotations

import base64
import gzip
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from straggler.errors import SourceFailedError
from straggler.sources.dcgm.fetch import Access, Body, read_page
from straggler.sources.dcgm.reasons import FETCH_REASONS

PAGE = b'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-00000001-1111-2222-3333-000000000001"} 48\n'
Answer = Callable[[BaseHTTPRequestHandler], None]


def page(handler: BaseHTTPRequestHandler, body: bytes = PAGE, status: int = 200, **headers: str) -> None:
    """Answer properly."""
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def raw(*parts: bytes, every: float = 0.0) -> Answer:
    """Answer with exactly these bytes, so many seconds apart, and then end the connection."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        pause = threading.Event()
        try:
            for part in parts:
                handler.wfile.write(part)
                handler.wfile.flush()
                if every:
                    pause.wait(every)
        except OSError:
            pass  # the reader has had enough
        handler.close_connection = True

    return answer


class Server:
    """A server on a free port of loopback that answers each request the same way."""

    def __init__(self, answer: Answer, context: ssl.SSLContext | None = None) -> None:
        self.requests: list[dict[str, str]] = []
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                requests.append({"path": self.path, **{name.lower(): value for name, value in self.headers.items()}})
                answer(self)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, *_: object) -> None:
                """A reader that breaks off is what these tests are about."""

        self._server = Quiet(("127.0.0.1", 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}/metrics"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @contextmanager
    def running(self) -> Iterator[Server]:
        """Serve while the block lasts."""
        self._thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


def reason(url: str, access: Access | None = None, timeout_seconds: float = 60) -> str:
    """Why there is no page."""
    with pytest.raises(SourceFailedError) as caught:
        read_page(url, access or Access(), timeout_seconds)
    assert caught.value.reason in FETCH_REASONS
    return caught.value.reason


def served(answer: Answer, access: Access | None = None, timeout_seconds: float = 60) -> Body:
    """Get the page from a server that answers like this."""
    with Server(answer).running() as server:
        return read_page(server.url, access or Access(), timeout_seconds)


def refused(answer: Answer, access: Access | None = None, timeout_seconds: float = 60) -> str:
    """Why a server that answers like this gives no page."""
    with Server(answer).running() as server:
        return reason(server.url, access, timeout_seconds)


# --- what works


def test_page() -> None:
    """The body comes whole."""
    assert served(page) == Body(PAGE.decode(), complete=True, is_utf8=True)


def test_request() -> None:
    """The request says what it wants, closes its connection, and carries no credentials that nobody gave."""
    with Server(page).running() as server:
        read_page(server.url, Access(), 60)

    (request,) = server.requests
    assert request["path"] == "/metrics"
    assert request["accept"].startswith("text/plain;version=0.0.4")
    assert request["connection"] == "close"
    assert "authorization" not in request


def test_gzip() -> None:
    """A packed body is unpacked."""
    assert served(lambda handler: page(handler, gzip.compress(PAGE), Content_Encoding="gzip")).text == PAGE.decode()


def test_chunked() -> None:
    """A chunked body has an end that can be seen, also without a newline."""
    chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\na 1\na\r\n3\r\n 19\r\n0\r\n\r\n"

    assert served(raw(chunks)) == Body("a 1\na 19", complete=True, is_utf8=True)


def test_empty_body() -> None:
    """200 and nothing is a body; what it means is the parser's to say."""
    assert served(lambda handler: page(handler, b"")) == Body("", complete=True, is_utf8=True)


def test_not_utf8() -> None:
    """Bytes that are no UTF-8 are replaced, and that is told."""
    body = served(lambda handler: page(handler, b'a{b="\xff"} 1\n'))

    assert body == Body('a{b="\N{REPLACEMENT CHARACTER}"} 1\n', complete=True, is_utf8=False)


def test_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy for the internet is not asked for a page on the node."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)

    assert served(page).text == PAGE.decode()


# --- what is cut


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n55\r\n",
    ],
)
def test_cut_body(head: bytes) -> None:
    """A connection that ends before the announced end gives what came, and says that it is not all."""
    body = served(raw(head + PAGE + b"\r\nff\r\nhalf" if b"chunked" in head else head + PAGE))

    assert body.text.startswith(PAGE.decode().rstrip("\n"))
    assert not body.complete


@pytest.mark.parametrize(("body", "complete"), [(PAGE, True), (PAGE[:-2], False)])
def test_body_without_length(body: bytes, complete: bool) -> None:  # noqa: FBT001 - the expectation is the parameter
    """Without a length any end of the connection looks like the body's; one in a line is not believed."""
    assert served(raw(b"HTTP/1.0 200 OK\r\n\r\n" + body)).complete is complete


def test_nothing_came() -> None:
    """A body that was announced and did not begin is a page that is cut before its first line."""
    assert served(raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")) == Body("", complete=False, is_utf8=True)
    assert refused(raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")) == "truncated"


# --- what is refused


@pytest.mark.parametrize("status", [404, 429, 500, 502, 503, 204])
def test_status(status: int) -> None:
    """Another status than 200 is no page, whatever comes with it."""
    assert refused(lambda handler: page(handler, status=status)) == "http_status"


@pytest.mark.parametrize("status", [401, 403])
def test_credentials_wanted(status: int) -> None:
    """What wants credentials is told apart from what is broken."""
    assert refused(lambda handler: page(handler, status=status, WWW_Authenticate="Basic")) == "auth"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirect(status: int) -> None:
    """Redirects are not followed: neither is another host asked, nor does it get the password."""
    with Server(page).running() as other:
        assert refused(lambda handler: page(handler, status=status, Location=other.url)) == "redirect"

    assert other.requests == []


def test_a_redirect_to_another_path_is_told_whole() -> None:
    """A target without a host is one on the same host: the whole URL is what must be set."""
    with (
        Server(lambda handler: page(handler, status=302, Location="/login")).running() as server,
        pytest.raises(SourceFailedError, match=f"redirects to {server.url.rpartition('/')[0]}/login: set"),
    ):
        read_page(server.url, Access(), 60)


def test_announced_size() -> None:
    """A page that announces too much is not read."""
    assert refused(page, Access(max_body_bytes=10)) == "too_large"


def test_size_without_announcement() -> None:
    """A page that goes on for ever is left when it has become too large."""
    endless = raw(b"HTTP/1.0 200 OK\r\n\r\n", *[b"a 1\n" * 5000] * 100)

    assert refused(endless, Access(max_body_bytes=100_000)) == "too_large"


def test_size_when_unpacked() -> None:
    """The size that counts is that of the unpacked body: a small packed one may hide gigabytes."""
    packed = gzip.compress(b"a 1\n" * 1_000_000)

    assert len(packed) < 100_000
    assert (
        refused(lambda handler: page(handler, packed, Content_Encoding="gzip"), Access(max_body_bytes=200_000))
        == "too_large"
    )


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH_9.2\r\n", b"\x00\x01\x02\x03", b"", b"HTTP/1.1 what\r\n\r\n"])
def test_no_http(answer: bytes) -> None:
    """What does not speak HTTP is called that, also if it just hangs up."""
    assert refused(raw(answer)) == "protocol"


def test_damaged_gzip() -> None:
    """A body that cannot be unpacked is no page."""
    assert refused(lambda handler: page(handler, b"not packed", Content_Encoding="gzip")) == "truncated"


def test_nobody_listens() -> None:
    """A closed port is refused at once."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    assert reason(f"http://127.0.0.1:{port}/metrics") == "refused"


def test_unknown_name() -> None:
    """A name that nobody knows is unreachable."""
    assert reason("http://no-such-host.invalid/metrics") == "unreachable"


@pytest.mark.parametrize("url", ["", "metrics", "ftp://h/", "http://", "http://[::1", "http://h:99999/", "http://h:x/"])
def test_bad_url(url: str) -> None:
    """A URL that cannot be one is told apart from a page that cannot be had."""
    assert reason(url) == "bad_url"


@pytest.mark.parametrize("url", ["http://user:hunter2@127.0.0.1:1/metrics", "http://user:hunter2@h:99999/"])
def test_password_is_not_told(url: str) -> None:
    """Whatever goes wrong, a password in the URL does not get into the log."""
    with pytest.raises(SourceFailedError) as caught:
        read_page(url, Access(), 5)

    assert "hunter2" not in str(caught.value)


# --- time


@pytest.mark.parametrize(
    "answer",
    [
        raw(b"", every=30),
        raw(b"HTTP/1.1 200 OK\r\nX: ", *[b"x"] * 600, every=0.05),
        raw(b"HTTP/1.1 200 OK\r\n", *[b"X: y\r\n"] * 90, every=0.3),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", *[b"a"] * 600, every=0.05),
        raw(b"HTTP/1.0 200 OK\r\n\r\n", *[b"a 1\n"] * 600, every=0.05),
        raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *[b"4\r\na 1\n\r\n"] * 600, every=0.05),
    ],
    ids=["hangs", "drips-header", "drips-headers", "drips-body", "drips-endless-body", "drips-chunks"],
)
def test_time_is_for_everything(answer: Answer) -> None:
    """A server that hangs, or sends a byte now and then, costs the time that was given and no more.

    Each of them goes on for 30 s. No thread and no connection is left behind.
    """
    before = threading.active_count()
    with Server(answer).running() as server:
        assert reason(server.url, timeout_seconds=0.3) == "timeout"
        assert not [thread for thread in threading.enumerate() if thread.name == "dcgm-watchdog"]
        during = threading.active_count()

    assert during <= before + 2  # the server and its handler


def test_full_backlog() -> None:
    """A listener that accepts nobody costs the time that was given."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"

        assert reason(url, timeout_seconds=0.2) == "timeout"


# --- credentials and TLS


def test_basic_auth(tmp_path: Path) -> None:
    """User and password go out as UTF-8, the password from its file without the final newline."""
    password_file = tmp_path / "password"
    password_file.write_text("pass wörd\n", encoding="utf-8")
    with Server(page).running() as server:
        read_page(server.url, Access(username="üser", password_file=password_file), 10)
        password_file.write_text("rotated", encoding="utf-8")
        read_page(server.url, Access(username="üser", password_file=password_file), 10)

    sent = [base64.b64decode(request["authorization"].removeprefix("Basic ")).decode() for request in server.requests]
    assert sent == ["üser:pass wörd", "üser:rotated"]


def test_unreadable_password(tmp_path: Path) -> None:
    """Without its password no request goes out."""
    with Server(page).running() as server:
        access = Access(username="u", password_file=tmp_path / "missing")

        assert reason(server.url, access) == "password_unreadable"
    assert server.requests == []


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, a server certificate for 127.0.0.1, and a client certificate, made by openssl."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test CA")
    (folder / "san").write_text("subjectAltName=IP:127.0.0.1")
    for name, extra in (("server", ("-extfile", "san")), ("client", ())):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
        openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.pem", *extra)
    return folder


@contextmanager
def tls(certificates: Path, answer: Answer = page, *, ask_client: bool = False) -> Iterator[Server]:
    """A server with the test CA's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    if ask_client:
        context.load_verify_locations(certificates / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    with Server(answer, context).running() as server:
        yield server


def test_own_ca(certificates: Path) -> None:
    """With the CA's file its servers are trusted."""
    with tls(certificates) as server:
        assert read_page(server.url, Access(ca_file=certificates / "ca.pem"), 10).text == PAGE.decode()


def test_unknown_ca(certificates: Path) -> None:
    """Without it they are not, and no request goes out."""
    with tls(certificates) as server:
        assert reason(server.url) == "tls"
    assert server.requests == []


def test_unchecked(certificates: Path) -> None:
    """Who switches the check off gets the page, without a warning at every scrape."""
    with tls(certificates) as server:
        assert read_page(server.url, Access(verify=False), 10).text == PAGE.decode()


def test_client_certificate(certificates: Path) -> None:
    """A server that asks for a client certificate gets it."""
    access = Access(
        ca_file=certificates / "ca.pem",
        client_certificate=certificates / "client.pem",
        client_key=certificates / "client.key",
    )
    with tls(certificates, ask_client=True) as server:
        assert read_page(server.url, access, 10).text == PAGE.decode()
        assert reason(server.url, Access(ca_file=certificates / "ca.pem")) == "tls"


@pytest.mark.parametrize("field", ["ca_file", "client_certificate"])
def test_missing_certificate_file(certificates: Path, tmp_path: Path, field: str) -> None:
    """A certificate file that is not there is trouble with TLS, named."""
    with tls(certificates) as server, pytest.raises(SourceFailedError) as caught:
        read_page(server.url, Access(**{field: tmp_path / "missing.pem"}), 10)  # type: ignore[arg-type]  # one Path field

    assert caught.value.reason == "tls"
    assert "missing.pem" in caught.value.detail


def test_what_the_caller_handles_is_no_part_of_it(certificates: Path, tmp_path: Path) -> None:
    """A look that fails while its caller handles an error of its own tells its own trouble."""

    def read_while_handling(url: str) -> None:
        try:
            next(iter(()))
        except StopIteration:
            read_page(url, Access(ca_file=tmp_path / "missing.pem"), 10)

    with tls(certificates) as server, pytest.raises(SourceFailedError, match=r"missing\.pem"):
        read_while_handling(server.url)


def test_plain_http_on_a_tls_port(certificates: Path) -> None:
    """HTTP against an HTTPS port, and the other way round, are told, and not waited for."""
    with tls(certificates) as server:
        assert reason(server.url.replace("https", "http")) in ("protocol", "http_status")
    with Server(page).running() as server:
        assert reason(server.url.replace("http", "https")) == "tls"


def test_time_is_for_tls_too(certificates: Path) -> None:
    """A server that hangs inside TLS costs the time that was given, and is not waited for to say goodbye."""
    drip = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", *[b"a"] * 600, every=0.05)
    with tls(certificates, drip) as server:
        assert reason(server.url, Access(ca_file=certificates / "ca.pem"), 0.4) == "timeout"


def test_hang_before_the_handshake() -> None:
    """A port that accepts and says nothing holds no handshake up for longer than was given."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)

        assert reason(f"https://127.0.0.1:{listener.getsockname()[1]}/", timeout_seconds=0.3) == "timeout"
