"""Stands at the door of the HTTP server: encrypts connections and lets requests pass, as the web-config file wants it.

The file and those that it names are read again when they change: certificates are renewed every few weeks, and a
restart would be a gap in every rank's series. What cannot be read keeps what was read before in force. So does a file
that would take a protection away: an editor that writes in place makes the file empty for a moment, and in that moment
a page must not be open to everybody.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from straggler.errors import ConfigError
from straggler.sidecar.auth import Passwords
from straggler.sidecar.exchange import Request, Response
from straggler.sidecar.tls import files_of, make_context, names_of
from straggler.sidecar.web_config import KEY, REQUIRE, WebConfigFile, read_web_config

_log = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/-/healthy", "/-/ready"})
"""They tell one word, and a probe has no password."""
OWN_TOKENS = frozenset({"/api/v1/push"})
"""Has authentication of its own, in the same header."""

Signature = tuple[tuple[int, int, int] | None, ...]


class Rules(NamedTuple):
    """One state of the file."""

    config: WebConfigFile
    context: ssl.SSLContext | None
    passwords: Passwords
    headers: tuple[tuple[str, str], ...]
    files: tuple[Path, ...]


class Gate:
    """The rules in force.

    Args:
        file: the web-config file; ``None``: no encryption and no passwords.

    Raises:
        ConfigError: the file, or one that it names, cannot be used.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._rules = _read(file) if file is not None else _rules(WebConfigFile(), Path())
        self._seen = _signature(self._rules.files)

    @property
    def is_encrypted(self) -> bool:
        """Whether clients must speak TLS."""
        return self._current().context is not None

    @property
    def has_users(self) -> bool:
        """Whether clients need a password."""
        return bool(self._current().config.basic_auth_users)

    @property
    def asks_for_certificates(self) -> bool:
        """Whether clients without a certificate are turned away."""
        return _asks_for_certificates(self._current())

    def context(self) -> ssl.SSLContext | None:
        """For the next connection; ``None``: it is not encrypted."""
        return self._current().context

    def check_names(self, connection: ssl.SSLSocket) -> None:
        """Look at whom the client's certificate names.

        Raises:
            ssl.SSLError: none of those that may.
        """
        tls = self._current().config.tls_server_config
        if tls is not None and tls.client_allowed_sans and names_of(connection).isdisjoint(tls.client_allowed_sans):
            raise ssl.SSLError("the certificate names nobody in client_allowed_sans")

    def admit(self, request: Request) -> None:
        """Let a request pass.

        Raises:
            Refusal: it needs a user and the password.
        """
        if request.path not in OPEN_PATHS and request.path not in OWN_TOKENS:
            self._current().passwords.admit(request.headers.get("Authorization", ""))

    def with_headers(self, response: Response) -> Response:
        """Add the headers of the file to an answer; they win over ours of the same name."""
        added = self._current().headers
        names = {name.lower() for name, _ in added}
        return response._replace(headers=(*(each for each in response.headers if each[0].lower() not in names), *added))

    def _current(self) -> Rules:
        if self._file is None:
            return self._rules
        with self._lock:
            now = _signature(self._rules.files)
            if now != self._seen:
                self._seen = now
                try:
                    fresh = _read(self._file)
                    _refuse_weaker(self._rules, fresh)
                except ConfigError as error:
                    _log.warning("%s; what was read before stays in force", error)
                else:
                    self._rules = fresh
                    self._seen = _signature(fresh.files)
                    _log.info("%s: read again", self._file)
            return self._rules


def _read(file: Path) -> Rules:
    return _rules(read_web_config(file), file)


def _rules(config: WebConfigFile, file: Path) -> Rules:
    tls = config.tls_server_config
    return Rules(
        config=config,
        context=make_context(tls, file.parent) if tls else None,
        passwords=Passwords(config.basic_auth_users),
        headers=tuple(
            (name, value)
            for name, value in config.http_server_config.headers.items()
            if value and name != "X-Content-Type-Options"  # is on every answer already
        ),
        files=(file, *(files_of(tls, file.parent) if tls else ())),
    )


def _refuse_weaker(old: Rules, new: Rules) -> None:
    """Refuse a file that takes a protection away.

    Raises:
        ConfigError: naming it.
    """
    lost = [
        name
        for name, had, has in (
            ("tls_server_config", old.context is not None, new.context is not None),
            ("basic_auth_users", bool(old.config.basic_auth_users), bool(new.config.basic_auth_users)),
            (f"client_auth_type: {REQUIRE}", _asks_for_certificates(old), _asks_for_certificates(new)),
            ("client_allowed_sans", _has_allowed_names(old), _has_allowed_names(new)),
        )
        if had and not has
    ]
    if lost:
        raise ConfigError(KEY, f"{' and '.join(lost)} can be taken away only by a restart")


def _asks_for_certificates(rules: Rules) -> bool:
    return rules.context is not None and rules.context.verify_mode is ssl.CERT_REQUIRED


def _has_allowed_names(rules: Rules) -> bool:
    tls = rules.config.tls_server_config
    return tls is not None and bool(tls.client_allowed_sans)


def _signature(files: Iterable[Path]) -> Signature:
    return tuple(_stat(file) for file in files)


def _stat(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
