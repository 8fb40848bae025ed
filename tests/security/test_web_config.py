"""What a web-config file may say."""

from __future__ import annotations

import pytest

from security_files import WebFiles, authority, signed
from straggler.errors import ConfigError
from straggler.sidecar.gate import Gate
from straggler.sidecar.web_config import REQUIRE, read_web_config


def test_empty_file_protects_nothing(web: WebFiles) -> None:
    """As with the toolkit, an empty file is one without TLS and users."""
    gate = Gate(web.write(""))

    assert not gate.is_encrypted
    assert not gate.has_users


def test_everything_that_can_be_said(web: WebFiles, digest: str) -> None:
    """A file for Prometheus' own web server is understood, down to Go's names of ciphers."""
    config = read_web_config(
        web.write(
            {
                "tls_server_config": web.tls(
                    clients=True,
                    min_version="TLS12",
                    max_version="TLS13",
                    client_allowed_sans=["prometheus.example.org"],
                    cipher_suites=["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"],
                    prefer_server_cipher_suites=True,
                ),
                "http_server_config": {"http2": True, "headers": {"X-Frame-Options": "deny"}},
                "basic_auth_users": {"prometheus": digest},
            }
        )
    )

    assert config.tls_server_config is not None
    assert config.tls_server_config.openssl_ciphers == "ECDHE-RSA-AES128-GCM-SHA256"
    assert config.http_server_config.headers == {"X-Frame-Options": "deny"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("tls_server_confg: {}", "tls_server_confg: unknown key.*did you mean tls_server_config"),
        ("rate_limit: {}", "rate_limit: unknown key, or one that this server cannot keep to"),
        ("tls_server_config: {cert_file: a}", r"tls_server_config\.key_file: is missing"),
        ("tls_server_config: {cert_fil: a}", "did you mean cert_file"),
        ("tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequestClientCert}", "nobody verifies"),
        ("tls_server_config: {cert_file: a, key_file: b, client_ca_file: c}", "need each other"),
        (f"tls_server_config: {{cert_file: a, key_file: b, client_auth_type: {REQUIRE}}}", "need each other"),
        ("tls_server_config: {cert_file: a, key_file: b, min_version: TLS10}", "min_version"),
        ("tls_server_config: {cert_file: a, key_file: b, cipher_suites: [RC4]}", "is not among"),
        ("tls_server_config: {cert_file: a, key_file: b, client_allowed_sans: [x]}", "client_allowed_sans needs"),
        ("http_server_config: {headers: {Set-Cookie: x}}", "Set-Cookie is not among"),
        ("http_server_config: {headers: {X-Frame-Options: allow}}", "X-Frame-Options is deny or sameorigin"),
        ('http_server_config: {headers: {X-XSS-Protection: "0\\r\\nX: y"}}', "no header may have"),
        ("basic_auth_users: {me: plain}", "no bcrypt hash; make one with: htpasswd"),
        (f"basic_auth_users: {{me: $2b$31${'a' * 53}}}", "a cost of 4 to 14, not 31"),
        ("basic_auth_users: {'a:b': x}", "no colon"),
        ("- a list", "is no mapping"),
        ("a: 1\na: 2", "stands twice"),
    ],
)
def test_wrong_file(web: WebFiles, content: str, message: str) -> None:
    """What is not known or could not be kept to is an error that names it, never a protection less."""
    with pytest.raises(ConfigError, match=message) as caught:
        read_web_config(web.write(content))

    assert caught.value.key == "web.config_file"


def test_error_does_not_repeat_a_password(web: WebFiles) -> None:
    """Whoever wrote the password itself instead of its hash does not find it in the log."""
    with pytest.raises(ConfigError) as caught:
        read_web_config(web.write({"basic_auth_users": {"me": "hunter2-hunter2"}}))

    assert "hunter2" not in str(caught.value)


def test_files_must_be_there_and_fit(web: WebFiles) -> None:
    """A missing certificate, a key of another and a CA without a certificate are told at the start."""
    ca = authority(web.directory, "ca")
    with pytest.raises(ConfigError, match="cert_file: cannot read"):
        Gate(web.write({"tls_server_config": web.tls()}))
    signed(ca, web.directory, "server", "DNS:localhost")
    signed(ca, web.directory, "other", "DNS:localhost")
    with pytest.raises(ConfigError, match="no certificate and its key"):
        Gate(web.write({"tls_server_config": web.tls(key_file="other.key")}))
    with pytest.raises(ConfigError, match="has no CA certificate"):
        Gate(web.write({"tls_server_config": web.tls(clients=True, client_ca_file="server.key")}))
