"""How to ask a page behind TLS and passwords: from settings, or from flags, to what ``fetch`` takes."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from straggler.errors import ConfigError
from straggler.sidecar.tls import require_certificates
from straggler.sources.dcgm.fetch import MAX_BODY_BYTES, Access


class ClientSettings(Protocol):
    """The settings of ``dcgm`` that are about this, or flags of the same names."""

    @property
    def username(self) -> str:
        """For basic authentication; none if blank."""

    @property
    def password_file(self) -> Path | None:
        """With the password alone."""

    @property
    def ca_file(self) -> Path | None:
        """PEM."""

    @property
    def client_certificate_file(self) -> Path | None:
        """PEM; may hold the key too."""

    @property
    def client_key_file(self) -> Path | None:
        """PEM."""

    @property
    def verify(self) -> bool:
        """Whether the server's certificate is checked."""


def make_access(settings: ClientSettings, prefix: str = "", *, max_body_bytes: int = MAX_BODY_BYTES) -> Access:
    """Say at the start what would otherwise fail with each request.

    Args:
        settings: what was given.
        prefix: before the names in errors, e.g. ``dcgm.``.
        max_body_bytes: of a page.

    Raises:
        ConfigError: a file cannot be read or used, or one is given that nobody would use.
    """
    for name in ("password_file", "client_certificate_file", "client_key_file"):
        _require_readable(f"{prefix}{name}", getattr(settings, name))
    require_certificates(f"{prefix}ca_file", settings.ca_file)
    for name, other in (("password_file", "username"), ("client_key_file", "client_certificate_file")):
        if getattr(settings, name) and not getattr(settings, other):
            raise ConfigError(f"{prefix}{name}", f"is used by nobody without {prefix}{other}")
    return Access(
        username=settings.username,
        password_file=settings.password_file,
        ca_file=settings.ca_file,
        client_certificate=settings.client_certificate_file,
        client_key=settings.client_key_file,
        verify=settings.verify,
        max_body_bytes=max_body_bytes,
    )


def _require_readable(key: str, path: Path | None) -> None:
    if path is None:
        return
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise ConfigError(key, f"cannot read {path}: {error.strerror}") from error
