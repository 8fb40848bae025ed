"""Who may push: the tokens in a file."""

from __future__ import annotations

import hmac
import logging
import threading
from pathlib import Path
from typing import NamedTuple

from straggler.errors import ConfigError

_log = logging.getLogger(__name__)

KEY = "push.tokens_file"
LEAST_CHARACTERS = 16


class Grant(NamedTuple):
    """What a token allows."""

    namespace: str | None
    """The Kubernetes namespace whose ranks may be written; ``None`` for any."""


class TokenFile:
    """Tokens, read again when the file changes.

    Args:
        path: one token a line, then optionally a blank and a namespace; ``#`` begins a comment line.

    Raises:
        ConfigError: the file cannot be read, has no token, or one that is too short.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._signature, self._grants = self._read()

    def check(self, authorization: str) -> Grant | None:
        """Give what the header ``Authorization`` allows; ``None`` if it names no token of the file.

        All tokens are compared, each in constant time, so that the time taken tells nothing about them.
        """
        scheme, _, given = authorization.strip().partition(" ")
        found = None
        for token, grant in self._current().items():
            if hmac.compare_digest(token, given.strip().encode("utf-8", "replace")):
                found = grant
        return found if scheme.lower() == "bearer" else None

    def _current(self) -> dict[bytes, Grant]:
        with self._lock:
            try:
                if self._stat() != self._signature:
                    self._signature, self._grants = self._read()
                    _log.info("%s has changed: %d tokens", self._path, len(self._grants))
            except (OSError, ConfigError) as error:
                # A file that is being replaced must not lock everybody out. Said once: the signature is kept.
                if self._signature is not None:
                    _log.warning("%s; the tokens read before stay in force", error)
                self._signature = None
            return self._grants

    def _stat(self) -> tuple[int, int, int] | None:
        status = self._path.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _read(self) -> tuple[tuple[int, int, int] | None, dict[bytes, Grant]]:
        try:
            signature = self._stat()
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise ConfigError(KEY, f"cannot read {self._path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(KEY, f"{self._path} is not UTF-8") from error
        grants: dict[bytes, Grant] = {}
        for number, line in enumerate(lines, 1):
            token, _, namespace = line.strip().partition(" ")
            if not token or token.startswith("#"):
                continue
            if len(token) < LEAST_CHARACTERS:
                raise ConfigError(
                    KEY,
                    f"line {number} of {self._path}: a token needs {LEAST_CHARACTERS} characters; "
                    "make one with: openssl rand -hex 24",
                )
            grants[token.encode()] = Grant(namespace.strip() or None)
        if not grants:
            raise ConfigError(KEY, f"no token in {self._path}; make one with: openssl rand -hex 24 > {self._path}")
        return signature, grants
