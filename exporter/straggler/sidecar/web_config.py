"""The web-config file: encryption and passwords of the HTTP server, with the keys of Prometheus' exporter-toolkit.

Whoever has such a file for node_exporter or Prometheus can use it here. A key that is not known, and one that could
not be kept to, is an error: a protection that is silently ignored is none.

Source:
    https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from straggler.errors import ConfigError
from straggler.sidecar.auth import check_hash
from straggler.sidecar.setting_errors import nearest
from straggler.sidecar.yaml_file import read_yaml

KEY = "web.config_file"

_CIPHERS = {
    f"TLS_ECDHE_{kind}_WITH_{iana}": f"ECDHE-{kind}-{openssl}"
    for kind in ("ECDSA", "RSA")
    for iana, openssl in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
        ("CHACHA20_POLY1305", "CHACHA20-POLY1305"),
    )
}
"""Go's names and OpenSSL's. The suites of TLS 1.3 are all safe and cannot be chosen, there or here."""
_CIPHERS_OF_TLS13 = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})

_HEADER_VALUES: dict[str, tuple[str, ...] | None] = {
    "Content-Security-Policy": None,
    "Strict-Transport-Security": None,
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": None,
}
"""The headers that the toolkit lets one set, with their values; ``None``: any."""

ClientAuth = Literal["", "NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"]
REQUIRE: ClientAuth = "RequireAndVerifyClientCert"


def _check_cipher(name: str) -> str:
    if name not in _CIPHERS and name not in _CIPHERS_OF_TLS13:
        raise ValueError(f"is not among {', '.join(sorted({*_CIPHERS, *_CIPHERS_OF_TLS13}))}")
    return name


def _check_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if name not in _HEADER_VALUES:
            raise ValueError(f"{name} is not among {', '.join(_HEADER_VALUES)}")
        allowed = _HEADER_VALUES[name]
        if allowed is not None and value.lower() not in ("", *allowed):
            raise ValueError(f"{name} is {' or '.join(allowed)}")
        if not (value.isascii() and value.isprintable()):
            raise ValueError(f"{name} has characters that no header may have")
    return headers


def _check_users(users: dict[str, str]) -> dict[str, str]:
    for user, digest in users.items():
        if not user or ":" in user or not user.isprintable():
            raise ValueError(f"{user!r} is no name for basic authentication: printable characters, no colon")
        check_hash(user, digest)
    return users


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TlsServerConfig(_Section):
    """``tls_server_config``. Paths are relative to the web-config file."""

    cert_file: str
    key_file: str
    client_auth_type: ClientAuth = ""
    client_ca_file: str = ""
    client_allowed_sans: list[str] = Field(default_factory=list)
    """Of these one must stand in the client's certificate; empty: any certificate that the CA signed."""
    min_version: Literal["TLS12", "TLS13"] = "TLS12"
    max_version: Literal["TLS12", "TLS13"] = "TLS13"
    cipher_suites: list[Annotated[str, AfterValidator(_check_cipher)]] = Field(default_factory=list)
    """For TLS 1.2, in Go's spelling."""
    prefer_server_cipher_suites: bool = True

    @property
    def openssl_ciphers(self) -> str:
        """For ``SSLContext.set_ciphers``; ``""``: OpenSSL's own choice."""
        return ":".join(dict.fromkeys(_CIPHERS[name] for name in self.cipher_suites if name in _CIPHERS))


class HttpServerConfig(_Section):
    """``http_server_config``."""

    http2: bool = True
    """A permission: HTTP/1.1 is spoken either way."""
    headers: Annotated[dict[str, str], AfterValidator(_check_headers)] = Field(default_factory=dict)


class WebConfigFile(_Section):
    """The whole file; an empty one protects nothing."""

    tls_server_config: TlsServerConfig | None = None
    http_server_config: HttpServerConfig = HttpServerConfig()
    basic_auth_users: Annotated[dict[str, str], AfterValidator(_check_users)] = Field(default_factory=dict)
    """By user: a hash of bcrypt, e.g. from ``htpasswd -nBC 10 USER``."""


def read_web_config(file: Path) -> WebConfigFile:
    """Read the file.

    Raises:
        ConfigError: it cannot be read, has unknown keys or values that cannot be used; a line for each.
    """
    content = {key: value for key, value in read_yaml(file, KEY).items() if value is not None}
    try:
        config = WebConfigFile.model_validate(content)
    except ValidationError as error:
        raise ConfigError(KEY, "\n".join(f"{line} (in {file})" for line in _sentences(error))) from None
    tls = config.tls_server_config
    if tls is None:
        return config
    if bool(tls.client_ca_file) != (tls.client_auth_type not in ("", "NoClientCert")):
        raise ConfigError(
            KEY, f"client_ca_file and a client_auth_type that verifies need each other: {REQUIRE} (in {file})"
        )
    if tls.client_allowed_sans and tls.client_auth_type != REQUIRE:
        raise ConfigError(KEY, f"client_allowed_sans needs client_auth_type: {REQUIRE} (in {file})")
    return config


def _sentences(error: ValidationError) -> Iterator[str]:
    for detail in error.errors():
        key = ".".join(str(part) for part in detail["loc"])
        if detail["type"] == "extra_forbidden":
            section = _SECTIONS.get(str(detail["loc"][0]) if len(detail["loc"]) > 1 else "", WebConfigFile)
            names = section.model_fields
            yield f"{key}: unknown key, or one that this server cannot keep to{nearest(str(detail['loc'][-1]), names)}"
        elif detail["type"] == "missing":
            yield f"{key}: is missing"
        elif detail["loc"][-1] == "client_auth_type":
            known = ", ".join(name for name in get_args(ClientAuth) if name)
            yield f"{key}: is one of {known}; a certificate that nobody verifies proves nothing and is not asked for"
        else:  # never with the input: it may be a hash
            yield f"{key}: {detail['msg'].removeprefix('Value error, ')}"


_SECTIONS: dict[str, type[BaseModel]] = {
    "tls_server_config": TlsServerConfig,
    "http_server_config": HttpServerConfig,
}
