"""One page over HTTP(S), within a time and a size, or the listed reason why not.

The timeouts of ``requests`` are for each wait on the socket, so a server that sends one byte a second holds a reader
for ever. Here a watchdog ends the connection when the time is over, wherever it stands then: in the headers, in the
body. Each fetch has a connection of its own and closes it, so a hung server leaves nothing behind.

Proxies and ``.netrc`` of the environment are not for a page on the node. Redirects are not followed: what answers
elsewhere is not what was configured, and would be sent the password.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from requests.auth import HTTPBasicAuth

from straggler.errors import SourceFailedError
from straggler.sources.dcgm.watchdog import Watchdog, WatchedAdapter, watchdog

MAX_BODY_BYTES: Final = 8 * 1024 * 1024
"""A page of 8 GPUs is some 60 kB; one of 112 GPU instances with all fields is 3 MB, and with copies for jobs, 6."""

_CHUNK_BYTES: Final = 64 * 1024
_HEADERS: Final = {
    "Accept": "text/plain;version=0.0.4,*/*;q=0.1",
    "Accept-Encoding": "gzip",
    "Connection": "close",
    "User-Agent": "straggler-exporter",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a page is asked for."""

    username: str = ""
    """For basic authentication; none if blank."""
    password_file: Path | None = None
    """Read anew each time: it may be rotated."""
    ca_file: Path | None = None
    """PEM; without it the certificates that ``requests`` brings."""
    client_certificate: Path | None = None
    """PEM with the certificate, and with the key unless ``client_key`` has it."""
    client_key: Path | None = None
    verify: bool = True
    """Whether the server's certificate is checked."""
    max_body_bytes: int = MAX_BODY_BYTES
    """Of the unpacked body."""


class Body(NamedTuple):
    """What came."""

    text: str
    complete: bool
    """``False`` if the connection ended before the body did."""
    is_utf8: bool


def read_page(url: str, access: Access, timeout_seconds: float) -> Body:
    """Get one page.

    Args:
        url: ``http`` or ``https``.
        access: credentials, certificates, limits.
        timeout_seconds: for everything together, except that a name server may take longer.

    Raises:
        SourceFailedError: with one of ``reasons.FETCH_REASONS``.
    """
    if not access.verify:  # somebody decided so; once per scrape is too often to say it
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    with watchdog(timeout_seconds) as dog, requests.Session() as session:
        session.trust_env = False
        adapter = WatchedAdapter(dog)
        session.mount("http://", adapter)
        session.mount("https://", adapter)
        with _translated(url, dog, timeout_seconds):
            response = session.get(
                url,
                headers=_HEADERS,
                auth=_credentials(access),
                verify=str(access.ca_file) if access.verify and access.ca_file else access.verify,
                cert=_certificate(access),
                # Half of the time for connecting: a name may have a second address.
                timeout=(max(timeout_seconds / 2, 0.01), max(timeout_seconds, 0.01)),
                allow_redirects=False,
                stream=True,
            )
            with response:
                _check_status(url, response)
                raw, complete = _read_body(response, access.max_body_bytes)
        if dog.has_bitten:  # an end that looked like the body's was ours
            raise _timeout(url, timeout_seconds)
    try:
        return Body(raw.decode(), complete, is_utf8=True)
    except UnicodeDecodeError:
        return Body(raw.decode(errors="replace"), complete, is_utf8=False)


def _read_body(response: requests.Response, limit: int) -> tuple[bytes, bool]:
    """Read up to the end, or to where the connection broke; what came until then is worth something."""
    announced = response.headers.get("Content-Length", "")
    if announced.isdigit() and int(announced) > limit:
        raise _too_large(limit)
    response.raw.enforce_content_length = False  # it would raise instead of giving what came
    parts: list[bytes] = []
    size = 0
    try:
        for chunk in response.iter_content(_CHUNK_BYTES):
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            parts.append(chunk)
    except (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError):
        if not parts:
            raise
        return b"".join(parts), False
    body = b"".join(parts)
    if announced:
        return body, not response.raw.length_remaining
    # Without a length only the end of the connection ends the body, and that may be any end.
    is_chunked = "chunked" in response.headers.get("Transfer-Encoding", "").lower()
    return body, is_chunked or body.endswith(b"\n")


def _too_large(limit: int) -> SourceFailedError:
    return SourceFailedError("too_large", f"the page has more than {limit:,} bytes")


def _check_status(url: str, response: requests.Response) -> None:
    status = response.status_code
    if status == 200:
        return
    if status in (401, 403):
        raise SourceFailedError("auth", f"{_shown(url)}: HTTP {status}: set username and password_file")
    if 300 <= status < 400:
        location = response.headers.get("Location", "")
        target = _shown(urljoin(url, location)) if location else "nowhere"
        raise SourceFailedError("redirect", f"{_shown(url)} redirects to {target}: set the URL to where the page is")
    raise SourceFailedError("http_status", f"{_shown(url)}: HTTP {status} {response.reason or ''}".rstrip())


def _credentials(access: Access) -> HTTPBasicAuth | None:
    if not access.username:
        return None
    try:
        password = access.password_file.read_text("utf-8").rstrip("\r\n") if access.password_file else ""
    except (OSError, UnicodeDecodeError) as error:
        raise SourceFailedError("password_unreadable", f"cannot read {access.password_file}: {error}") from error
    return HTTPBasicAuth(access.username.encode(), password.encode())


def _certificate(access: Access) -> str | tuple[str, str] | None:
    if access.client_certificate is None:
        return None
    certificate = str(access.client_certificate)
    return (certificate, str(access.client_key)) if access.client_key else certificate


@contextlib.contextmanager
def _translated(url: str, dog: Watchdog, timeout_seconds: float) -> Iterator[None]:
    """Turn whatever goes wrong into one of the listed reasons."""
    outside = sys.exc_info()[1]  # what the caller is handling already is no part of what goes wrong here
    try:
        yield
    except SourceFailedError:
        raise
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        chain = list(itertools.takewhile(lambda one: one is not outside, _chain(error)))
        if dog.has_bitten or any(isinstance(one, (requests.Timeout, TimeoutError)) for one in chain):
            raise _timeout(url, timeout_seconds) from error
        said = type(chain[-1]).__name__ if "@" in url else str(chain[-1])  # a message may quote the password
        raise SourceFailedError(_reason(chain), f"{_shown(url)}: {said}") from error


def _timeout(url: str, timeout_seconds: float) -> SourceFailedError:
    return SourceFailedError("timeout", f"{_shown(url)}: no whole page within {timeout_seconds:.3g} s")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, what caused it, and so on down to what the system said."""
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__


_REASONS: Final[tuple[tuple[str, tuple[type[BaseException], ...]], ...]] = (
    ("tls", (ssl.SSLError, requests.exceptions.SSLError, urllib3.exceptions.SSLError)),
    ("refused", (ConnectionRefusedError,)),
    ("unreachable", (socket.gaierror,)),
    ("truncated", (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError)),
    ("protocol", (HTTPException, ConnectionResetError, BrokenPipeError)),
    ("bad_url", (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, requests.exceptions.MissingSchema)),
    ("unreachable", (requests.exceptions.ConnectionError,)),
    ("protocol", (requests.RequestException, urllib3.exceptions.HTTPError)),
    ("tls", (OSError,)),  # bare, from requests: a file with certificates that is not there
)
"""The first that an error of the chain is."""


def _reason(chain: list[BaseException]) -> str:
    for reason, kinds in _REASONS:
        if any(isinstance(error, kinds) for error in chain):
            return reason
    return "bad_url"


def _shown(url: str) -> str:
    """The URL without user, password and query: it goes into logs."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "the URL"
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path}"
