"""The chart's probes, asked as a kubelet asks, of a sidecar with the rendered settings and a real web-config file."""

from __future__ import annotations

import socket
import warnings
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import requests
import yaml
from urllib3.exceptions import InsecureRequestWarning

from deploy_chart import objects, one
from security_files import PASSWORD, WebFiles, authority, signed
from sidecars import ServedSidecar, served

pytestmark = pytest.mark.slow  # each is a render and a process

SECRET = {"webConfigSecret": "web"}
MOUNT = "/etc/straggler-web/"


def _protections(web: WebFiles) -> dict[str, dict[str, Any]]:
    """What may stand in the Secret."""
    users = {"basic_auth_users": {"me": bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()}}
    return {
        "passwords": users,
        "certificate": {"tls_server_config": web.tls(), **users},
        "client certificates": {"tls_server_config": web.tls(clients=True)},
    }


def _ask(probe: dict[str, Any], port: int) -> bool:
    """As a kubelet: any certificate will do, nothing is shown, 200 to 399 is good."""
    if "tcpSocket" in probe:
        with socket.create_connection(("127.0.0.1", port), timeout=30):
            return True
    get = probe["httpGet"]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InsecureRequestWarning)
            url = f"{get['scheme'].lower()}://127.0.0.1:{port}{get['path']}"
            answer = requests.get(url, verify=False, timeout=30, allow_redirects=False)
    except requests.ConnectionError:
        return False
    return 200 <= answer.status_code < 400


def _probes(values: dict[str, Any]) -> list[dict[str, Any]]:
    container = one(objects(values), "DaemonSet")["spec"]["template"]["spec"]["containers"][0]
    return [container["livenessProbe"], container["readinessProbe"]]


def _serve(directory: Path, values: dict[str, Any], content: dict[str, Any]) -> Any:
    """The sidecar with the rendered settings; where the pod's files are, files of ours."""
    ca = authority(directory, "ca")
    signed(ca, directory, "server", "DNS:localhost")
    web = WebFiles(directory).write(content)
    settings = yaml.safe_load(one(objects(values), "ConfigMap", "straggler")["data"]["straggler.yaml"])
    assert settings["web"]["config_file"].startswith(MOUNT)
    settings["web"]["config_file"] = str(web)
    settings |= {"ring_dir": str(directory), "dcgm": {"url": "none"}, "nvml": {"use": "never"}}
    file = directory / "straggler.yaml"
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return served("--config", str(file))


def _ready(sidecar: ServedSidecar, probes: list[dict[str, Any]]) -> list[bool]:
    return [_ask(probe, sidecar.port) for probe in probes]


@pytest.mark.parametrize(
    ("scheme", "protection"),
    [
        ("auto", "passwords"),
        ("auto", "certificate"),
        ("auto", "client certificates"),
        ("http", "passwords"),
        ("https", "certificate"),
    ],
)
def test_protected_sidecar_is_found_alive(scheme: str, protection: str, tmp_path: Path) -> None:
    """No password and no certificate keeps the kubelet from seeing that the sidecar lives."""
    values = {**SECRET, "probes": {"scheme": scheme}}
    with _serve(tmp_path, values, _protections(WebFiles(tmp_path))[protection]) as sidecar:
        while not all(_ready(sidecar, _probes(values))):
            pass  # the first look is short; the test's own timeout ends what never gets ready
        log = sidecar.log

    assert "Traceback" not in log


def test_wrong_scheme_is_seen(tmp_path: Path) -> None:
    """The other tests can fail: a probe in the clear does not get past a certificate."""
    values = {**SECRET, "probes": {"scheme": "http"}}
    with _serve(tmp_path, values, _protections(WebFiles(tmp_path))["certificate"]) as sidecar:
        assert _ready(sidecar, _probes(values)) == [False, False]


def test_without_a_secret_the_pages_are_asked() -> None:
    """By default a kubelet asks for health and readiness, in the clear."""
    assert [(probe["httpGet"]["scheme"], probe["httpGet"]["path"]) for probe in _probes({})] == [
        ("HTTP", "/-/healthy"),
        ("HTTP", "/-/ready"),
    ]


def test_the_secret_is_where_the_settings_say() -> None:
    """The Secret is mounted read-only where the settings look for the file, and readable for the sidecar's user."""
    pod = one(objects(SECRET), "DaemonSet")["spec"]["template"]["spec"]
    (volume,) = [volume for volume in pod["volumes"] if volume.get("secret", {}).get("secretName") == "web"]
    (mount,) = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == volume["name"]]

    assert (f"{mount['mountPath']}/", mount["readOnly"]) == (MOUNT, True)
    assert volume["secret"]["defaultMode"] & 0o004
