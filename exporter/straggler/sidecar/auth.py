"""Passwords of the web-config file: bcrypt, which is slow on purpose, without paying for it with each scrape."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import threading
from collections.abc import Mapping
from http import HTTPStatus

import bcrypt

from straggler.sidecar.exchange import Refusal

# $2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi (htpasswd of Apache 2.4)
_HASH = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
_MOST_ROUNDS = 14
"""2 ** 14 rounds take about a second; each one more doubles that, for who sends wrong passwords too."""
_BCRYPT_BYTES = 72
"""bcrypt looks at no more; libraries differ in whether the rest is an error. For the toolkit it is not."""
PATIENCE_SECONDS = 3.0

_ASK = (("WWW-Authenticate", 'Basic realm="straggler", charset="UTF-8"'),)
_NOBODY = b"$2b$10$" + b"." * 53
"""A hash that no password has: an unknown user costs as much as a wrong password."""


def check_hash(user: str, digest: str) -> None:
    """Refuse what is no hash, without repeating it.

    Raises:
        ValueError: it is none of bcrypt's, or one that takes too long.
    """
    found = _HASH.fullmatch(digest)
    if found is None:
        raise ValueError(f"{user}: is no bcrypt hash; make one with: htpasswd -nBC 10 {user}")
    if not 4 <= int(found[1]) <= _MOST_ROUNDS:
        raise ValueError(
            f"{user}: a cost of 4 to {_MOST_ROUNDS}, not {found[1]}; make one with: htpasswd -nBC 10 {user}"
        )


class Passwords:
    """Knows who may ask.

    The last good password of each user is remembered, under a key of this process and never itself, so that it costs
    microseconds. Wrong ones are not: they cost a whole bcrypt, one at a time, so that they can take at most one core.

    Args:
        users: by name, the bcrypt hash. None at all: everybody may.
        patience_seconds: how long a login waits for others to be checked.
    """

    def __init__(self, users: Mapping[str, str], patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._patience_seconds = patience_seconds
        self._users = {user: digest.encode() for user, digest in users.items()}
        self._key = os.urandom(32)
        self._good: dict[str, bytes] = {}
        self._slow = threading.Lock()

    def admit(self, authorization: str) -> None:
        """Let pass who names a user and the password.

        Raises:
            Refusal: ``unauthorized``, or ``too_many_logins`` while others are being checked.
        """
        if not self._users:
            return
        found = _parse_basic(authorization)
        if found is None or not self._is_good(*found):
            raise Refusal(HTTPStatus.UNAUTHORIZED, "unauthorized", "user and password, please\n", _ASK)

    def _is_good(self, user: str, password: bytes) -> bool:
        proof = hmac.digest(self._key, password, hashlib.sha256)
        known = self._good.get(user)
        if known is not None and hmac.compare_digest(known, proof):
            return True
        if not self._slow.acquire(timeout=self._patience_seconds):
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, "too_many_logins", "too many logins at a time\n")
        try:
            is_good = _matches(password, self._users.get(user, _NOBODY)) and user in self._users
        finally:
            self._slow.release()
        if is_good:
            self._good[user] = proof
        return is_good


def _matches(password: bytes, digest: bytes) -> bool:
    try:
        return bcrypt.checkpw(password[:_BCRYPT_BYTES], digest)
    except ValueError:
        return False


def _parse_basic(authorization: str) -> tuple[str, bytes] | None:
    """User and password of a header ``Basic dXNlcjpwYXNz``; ``None`` if it is something else."""
    scheme, _, given = authorization.strip().partition(" ")
    try:
        user, colon, password = base64.b64decode(given.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon and scheme.lower() == "basic" else None
    except (binascii.Error, ValueError):
        return None
