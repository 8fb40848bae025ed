"""The sidecar behind a web-config file, asked by clients as they are in the field."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from security_files import PASSWORD, Certificate, WebFiles, authority, signed
from sidecars import ServedSidecar, served, straggler

ME = ("me", PASSWORD)


class Protected:
    """A sidecar with TLS and a user, and clients of it."""

    def __init__(self, sidecar: ServedSidecar, web: WebFiles, ca: Certificate) -> None:
        self.sidecar = sidecar
        self.web = web
        self.ca = ca
        self.url = f"https://localhost:{sidecar.port}"

    def get(
        self,
        path: str = "/metrics",
        *,
        auth: tuple[str, str] | None = ME,
        client: Certificate | None = None,
        headers: dict[str, str] | None = None,
    ) -> requests.Response:
        """Ask once, on a connection of its own."""
        cert = (str(client.certificate), str(client.key)) if client else None
        return requests.get(
            self.url + path, auth=auth, cert=cert, headers=headers, verify=str(self.ca.certificate), timeout=30
        )


@pytest.fixture
def content(web: WebFiles, digest: str) -> dict[str, object]:
    """A usual web-config file."""
    return {
        "tls_server_config": web.tls(),
        "http_server_config": {"headers": {"Strict-Transport-Security": "max-age=63072000"}},
        "basic_auth_users": {"me": digest},
    }


@pytest.fixture
def protected(web: WebFiles, content: dict[str, object]) -> Iterator[Protected]:
    """Running, with the usual file."""
    ca = authority(web.directory, "ca")
    signed(ca, web.directory, "server", "DNS:localhost,IP:127.0.0.1")
    rings = web.directory / "rings"
    rings.mkdir()
    tokens = web.directory / "tokens"
    tokens.write_text("0123456789abcdef0123\n", encoding="utf-8")
    with served(
        *("--ring-dir", str(rings), "--dcgm-url", "none", "--push-tokens-file", str(tokens)),
        *("--web-config-file", str(web.write(content))),
    ) as sidecar:
        yield Protected(sidecar, web, ca)


def test_scrape(protected: Protected) -> None:
    """With the CA and the password Prometheus gets the page, with the headers of the file."""
    answer = protected.get()

    assert answer.status_code == 200
    assert "straggler_exporter_build_info" in answer.text
    assert answer.headers["Strict-Transport-Security"] == "max-age=63072000"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("path", ["/metrics", "/", "/api/v1/ranks", "/nothing"])
def test_no_or_wrong_password(protected: Protected, path: str) -> None:
    """Whoever has no password sees nothing, not even which addresses there are; both attempts are counted."""
    assert protected.get(path, auth=None).status_code == 401
    assert protected.get(path, auth=("me", "wrong")).status_code == 401
    assert 'straggler_exporter_refused_total{reason="unauthorized",source="http"} 2.0' in protected.get().text


def test_probes_need_no_password(protected: Protected) -> None:
    """A kubelet has no password."""
    assert protected.get("/-/healthy", auth=None).status_code == 200


def test_push_needs_its_token_and_no_password(protected: Protected) -> None:
    """A push is let in by its own token alone, since both would need the same header; a user may not push."""
    url = protected.url + "/api/v1/push"
    ca = str(protected.ca.certificate)

    token = {"Authorization": "Bearer 0123456789abcdef0123"}
    assert requests.post(url, b"no push", headers=token, verify=ca, timeout=30).status_code == 400
    assert requests.post(url, b"no push", auth=ME, verify=ca, timeout=30).status_code == 401


def test_unencrypted_request_is_told(protected: Protected) -> None:
    """Who speaks HTTP gets a sentence instead of a broken connection."""
    answer = requests.get(f"http://localhost:{protected.sidecar.port}/metrics", timeout=30)

    assert (answer.status_code, answer.text) == (400, "this port speaks https\n")


def test_old_protocol_is_refused(protected: Protected) -> None:
    """TLS 1.1 is not spoken, and the attempt is counted."""
    context = ssl.create_default_context(cafile=str(protected.ca.certificate))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with (
        socket.create_connection(("localhost", protected.sidecar.port), timeout=30) as plain,
        pytest.raises(OSError, match=r".+"),
    ):
        context.wrap_socket(plain, server_hostname="localhost")

    assert 'reason="tls_handshake",source="http"} 1.0' in protected.get().text


def test_silent_handshake_holds_nobody_up(protected: Protected) -> None:
    """A client that connects and says nothing has a thread of its own: others are served meanwhile."""
    with socket.create_connection(("localhost", protected.sidecar.port)) as silent:
        silent.sendall(b"\x16\x03")
        assert protected.get().status_code == 200


def test_reload(protected: Protected, content: dict[str, object]) -> None:
    """A renewed certificate and another password are taken without a restart."""
    renewed = authority(protected.web.directory, "renewed")
    signed(renewed, protected.web.directory, "server", "DNS:localhost")
    with pytest.raises(requests.exceptions.SSLError):
        protected.get()
    protected.ca = renewed
    assert protected.get().status_code == 200

    users = content["basic_auth_users"]
    assert isinstance(users, dict)
    protected.web.write(content | {"basic_auth_users": {"you": users["me"]}})
    assert protected.get().status_code == 401
    assert protected.get(auth=("you", PASSWORD)).status_code == 200


@pytest.mark.parametrize("broken", ["", "tls_server_config:\n  cert_file: server.pem\n", "basic_auth_users: {}\n", "{"])
def test_broken_reload_opens_nothing(protected: Protected, broken: str) -> None:
    """A file that is empty for a moment, half written or wrong leaves the protection as it was, and is logged once."""
    protected.web.write(broken)

    assert protected.get(auth=None).status_code == 401
    assert protected.get().status_code == 200
    protected.sidecar.end()  # what it said last may still be on its way
    assert protected.sidecar.log.count("what was read before stays in force") == 1


def test_client_certificates(protected: Protected, content: dict[str, object]) -> None:
    """If certificates are asked for, one is needed: of that CA, and for a name that is allowed. No restart for it."""
    directory = protected.web.directory
    good = signed(protected.ca, directory, "prometheus", "DNS:prometheus.example.org")
    other = signed(protected.ca, directory, "other", "DNS:other.example.org")
    (directory / "stranger").mkdir()
    stranger = signed(authority(directory / "stranger", "ca"), directory, "foreign", "DNS:prometheus.example.org")
    tls = protected.web.tls(clients=True, client_allowed_sans=["prometheus.example.org"])
    protected.web.write(content | {"tls_server_config": tls})

    assert protected.get(client=good).status_code == 200
    for refused in (None, other, stranger):
        with pytest.raises(requests.exceptions.ConnectionError):
            protected.get(client=refused)


def test_curl_and_openssl_agree(protected: Protected) -> None:
    """Clients of other makes see the same: curl, with its own TLS."""
    if shutil.which("curl") is None:
        pytest.skip("no curl on this machine")
    protected.get()  # a look, without which it is not ready
    done = subprocess.run(
        ["curl", "-sS", "--cacert", protected.ca.certificate, "-u", ":".join(ME), protected.url + "/-/ready"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "ready\n", done.stderr


def test_certificates_behind_links(protected: Protected) -> None:
    """Kubernetes renews by turning a link to another directory: that is a change too."""
    directory = protected.web.directory
    new = directory / "..data"
    new.mkdir()
    renewed = authority(new, "ca")
    signed(renewed, new, "server", "DNS:localhost")
    for name in ("server.pem", "server.key"):
        link = directory / f"{name}.link"
        link.symlink_to(new / name)
        link.replace(directory / name)
    protected.ca = Certificate(Path(renewed.certificate), renewed.key)

    assert protected.get().status_code == 200


@pytest.fixture
def credentials(tmp_path: Path) -> list[str]:
    """Flags of ``straggler top`` for the user."""
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n", encoding="utf-8")
    return ["--username", "me", "--password-file", str(password)]


def _top(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return straggler("top", "--once", *map(str, arguments))


def test_top_through_tls_and_password(protected: Protected, credentials: list[str]) -> None:
    """With the CA and the password, or without looking at the certificate, the table comes."""
    for trust in (["--ca-file", str(protected.ca.certificate)], ["--insecure"]):
        done = _top(protected.url, *credentials, *trust)

        assert (done.returncode, done.stderr) == (0, "")
        assert "no ranks" in done.stdout


def test_top_says_what_is_missing(protected: Protected, credentials: list[str]) -> None:
    """Without the CA, the password, or the s of https it ends with 1 and says what to give."""
    trust = ["--ca-file", str(protected.ca.certificate)]
    for arguments, hint in (
        ((protected.url, *credentials), "--ca-file"),
        ((protected.url, *trust), "password_file"),
        ((protected.url.replace("https", "http"), *credentials), "https://"),
    ):
        done = _top(*arguments)

        assert done.returncode == 1
        assert hint in done.stderr
        assert "Traceback" not in done.stderr


def test_top_shows_a_certificate(
    protected: Protected, content: dict[str, object], credentials: list[str], tmp_path: Path
) -> None:
    """Where certificates are demanded one can be shown, and without one the flag is named."""
    mine = signed(protected.ca, tmp_path, "me", "DNS:me")
    protected.web.write(content | {"tls_server_config": protected.web.tls(clients=True)})
    flags = [protected.url, *credentials, "--ca-file", str(protected.ca.certificate)]
    shown = _top(*flags, "--client-certificate-file", mine.certificate, "--client-key-file", mine.key)
    bare = _top(*flags)

    assert (shown.returncode, shown.stderr) == (0, "")
    assert bare.returncode == 1
    assert "--client-certificate-file" in bare.stderr


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--ca-file", "/nowhere"], "ca_file: cannot read /nowhere"),
        (["--password-file", __file__], "password_file: is used by nobody without username"),
    ],
)
def test_top_with_files_of_no_use(flags: list[str], text: str) -> None:
    """A file that is not there, or that nobody would use, is wrong use, before anything is asked."""
    done = _top("https://127.0.0.1:1", *flags)

    assert done.returncode == 2
    assert text in done.stderr


def test_doctor_without_a_certificate(protected: Protected, content: dict[str, object]) -> None:
    """A sidecar that turns doctor away for want of a certificate lives, and does what it was told."""
    web = protected.web.write(content | {"tls_server_config": protected.web.tls(clients=True)})
    listen = f"127.0.0.1:{protected.sidecar.port}"
    flags = ("--listen", listen, "--web-config-file", str(web), "--dcgm-url", "none", "--nvml-use", "never")
    found = json.loads(straggler("doctor", "--json", "--ring-dir", str(web.parent / "rings"), *flags).stdout)
    health = {each["check"]: each["health"] for each in found["findings"] if each["check"] in ("port", "web")}

    assert health == {"port": "ok", "web": "ok"}
