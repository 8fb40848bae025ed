"""Flags of commands that ask a server which may want TLS, a password or a certificate."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

from straggler.errors import ConfigError
from straggler.sidecar.access import make_access
from straggler.sources.dcgm.fetch import Access

_NAMES = ("username", "password_file", "ca_file", "client_certificate_file", "client_key_file", "verify")


def add_access_arguments(parser: argparse.ArgumentParser, server: str, prefix: str = "") -> None:
    """Describe the flags.

    Args:
        parser: of the command.
        server: what is asked, for the help.
        prefix: before each flag, where the command asks others too: ``prometheus-``.
    """
    group = parser.add_argument_group(f"{server} behind TLS or a password", "write its address as https://HOST:PORT")

    def add(name: str, metavar: str, text: str) -> None:
        kind = Path if metavar == "FILE" else str
        group.add_argument(f"--{prefix}{name}", type=kind, metavar=metavar, help=text)

    add("username", "NAME", "user for basic authentication")
    add("password-file", "FILE", "the password of that user, alone")
    add("ca-file", "FILE", "CA certificates (PEM) to check it with")
    add("client-certificate-file", "FILE", "certificate (PEM) to show to it")
    add("client-key-file", "FILE", "key (PEM) of that certificate")
    group.add_argument(
        f"--{prefix}insecure",
        action="store_false",
        dest=f"{prefix}verify".replace("-", "_"),
        help="do not check its certificate",
    )


def access_of(arguments: argparse.Namespace, prefix: str = "", *, max_body_bytes: int) -> Access:
    """What the flags say.

    Raises:
        ConfigError: a file cannot be read or used, or one is given that nobody would use.
    """
    given = {name: getattr(arguments, f"{prefix}{name}".replace("-", "_")) for name in _NAMES}
    settings = SimpleNamespace(**{**given, "username": given["username"] or ""})
    return make_access(settings, prefix.replace("-", "_"), max_body_bytes=max_body_bytes)


def server_url(text: str, key: str, example: str, prefix: str = "") -> str:
    """The address of a server, as given but for slashes at its end.

    Args:
        text: what was given.
        key: by which flag.
        example: of a good one.
        prefix: as for ``add_access_arguments``.

    Raises:
        ConfigError: it is none, or has a user or password in it: others may read command lines and terminals.
    """
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if "@" in text:  # not repeated
        flags = f"--{prefix}username and --{prefix}password-file"
        raise ConfigError(key, f"write a URL like {example}, without user or password: {flags} are for them")
    if not valid:
        raise ConfigError(key, f"{text!r} is no address; write a URL like {example}")
    return text.rstrip("/")
