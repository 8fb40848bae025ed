"""Encryption of the HTTP server, as ``web_config.py`` reads it, and certificates to check others with, by OpenSSL."""

from __future__ import annotations

import ssl
from pathlib import Path

from straggler.errors import ConfigError
from straggler.sidecar.web_config import KEY, REQUIRE, TlsServerConfig

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CLIENTS = {"VerifyClientCertIfGiven": ssl.CERT_OPTIONAL, REQUIRE: ssl.CERT_REQUIRED}


def files_of(tls: TlsServerConfig, directory: Path) -> tuple[Path, ...]:
    """All files that the section names; relative ones are beside the web-config file."""
    names = (tls.cert_file, tls.key_file, tls.client_ca_file)
    return tuple(directory / name for name in names if name)


def make_context(tls: TlsServerConfig, directory: Path) -> ssl.SSLContext:
    """Load certificate, key and CA.

    Raises:
        ConfigError: one of them cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.min_version]
    context.maximum_version = _VERSIONS[tls.max_version]
    context.set_alpn_protocols(["http/1.1"])
    if not tls.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if tls.openssl_ciphers:
        context.set_ciphers(tls.openssl_ciphers)
    certificate, key = directory / tls.cert_file, directory / tls.key_file
    for name, file in (("cert_file", certificate), ("key_file", key)):
        _require(name, file)
    try:
        context.load_cert_chain(certificate, key, password="")  # or it would ask on a terminal
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            KEY, f"{certificate} and {key} are no certificate and its key (PEM): {_why(error)}"
        ) from error
    if tls.client_ca_file:
        ca = directory / tls.client_ca_file
        _require("client_ca_file", ca)
        try:
            context.load_verify_locations(ca)
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(KEY, f"{ca} has no CA certificate (PEM): {_why(error)}") from error
        context.verify_mode = _CLIENTS[tls.client_auth_type]
    return context


def require_certificates(key: str, file: Path | None) -> None:
    """Say at the start what would otherwise fail with each request.

    Raises:
        ConfigError: the file that the setting names has no CA certificate, or cannot be read.
    """
    if file is None:
        return
    try:
        ssl.create_default_context(cafile=file)
    except ssl.SSLError as error:
        raise ConfigError(key, f"{file} has no CA certificate (PEM): {_why(error)}") from error
    except OSError as error:
        raise ConfigError(key, f"cannot read {file}: {error.strerror}") from error


def names_of(connection: ssl.SSLSocket) -> frozenset[str]:
    """The subject alternative names of the client's certificate, of every kind; none if it showed none."""
    certificate = connection.getpeercert() or {}
    names = certificate.get("subjectAltName", ())
    return frozenset(str(name[1]) for name in names)  # ("DNS", "prometheus.example.org")


def _require(name: str, file: Path) -> None:
    try:
        with file.open("rb"):
            pass
    except OSError as error:
        raise ConfigError(KEY, f"tls_server_config.{name}: cannot read {file}: {error.strerror}") from error


def _why(error: OSError) -> str:
    reason = getattr(error, "reason", None)
    return str(reason or error.strerror or error).lower().replace("_", " ")
