"""Prometheus and Alertmanager as found on this machine, started on free loopback ports for one run."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import socket
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from straggler.errors import SourceAbsentError, SourceFailedError
from straggler.simulate.local_http import read_local
from straggler.simulate.processes import Crew, Process

_READY_SECONDS = 60.0
_UNPRIVILEGED = 10_000
"""More than a server that somebody expects at its usual port."""
_GIVEN_AWAY = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""Two numbers, ``32768	60999``; Linux alone has it."""
_PACKAGES = {
    "prometheus": ("prometheus",),
    "alertmanager": ("alertmanager", "prometheus-alertmanager"),
    "promtool": ("promtool",),
    "amtool": ("amtool",),
}
"""Names under which distributions and the projects themselves install the programs."""


def find_program(name: str) -> str:
    """Path of a program: ``prometheus``, ``alertmanager``, ``promtool`` or ``amtool``.

    Raises:
        SourceAbsentError: it is not installed.
    """
    for candidate in _PACKAGES[name]:
        if path := shutil.which(candidate):
            return path
    raise SourceAbsentError(
        f"{name} is not installed (looked for {' and '.join(_PACKAGES[name])} in PATH); "
        "on Debian and Ubuntu: apt-get install prometheus prometheus-alertmanager"
    )


def free_port() -> int:
    """A loopback port that nobody uses at this moment.

    If it can be, one below those that the kernel gives to whoever connects to somebody: it might give ours away while
    our server is not up yet, or not up again.
    """
    with contextlib.suppress(OSError, ValueError):
        given_away = int(_GIVEN_AWAY.read_text(encoding="ascii").split()[0])
        for port in random.sample(range(_UNPRIVILEGED, given_away), 20):
            with contextlib.suppress(OSError):
                return _free(port)
    return _free(0)


def _free(port: int) -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))
        return int(probe.getsockname()[1])


def wait_until_ready(url: str, process: Process, seconds: float = _READY_SECONDS) -> None:
    """Wait until the URL answers 200.

    Raises:
        SourceFailedError: the process ended, or it did not answer in time; with the end of its log.
    """
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError):
            read_local(url, 2.0)
            return
        if process.returncode is not None or time.monotonic() > deadline:
            raise SourceFailedError("not_ready", f"{process.name} did not come up at {url}:\n{process.tail()}")
        time.sleep(0.05)


class Alertmanager:
    """Sends every alert to one webhook, at once, and tells when it is resolved."""

    def __init__(self, crew: Crew, webhook_url: str) -> None:
        program = find_program("alertmanager")
        config = {
            "route": {
                "receiver": "webhook",
                "group_by": ["..."],
                "group_wait": "0s",
                "group_interval": "1s",
                "repeat_interval": "1h",
            },
            "receivers": [
                {"name": "webhook", "webhook_configs": [{"url": webhook_url, "send_resolved": True}]},
            ],
        }
        path = crew.directory / "alertmanager.yml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.process = crew.start(
            "alertmanager",
            [
                program,
                f"--config.file={path}",
                f"--storage.path={crew.directory / 'alertmanager'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--cluster.listen-address=",  # alone: no gossip port
            ],
        )


class Prometheus:
    """Scrapes targets by job and evaluates rules.

    It hands out targets for the first time about 5 s after its start, so start it early.

    Args:
        targets: host and port, or several, by job; each also gets the label ``cluster``.
        rules: rule files.
        scrape_seconds: between two scrapes of a target, and between two evaluations of a rule.
    """

    def __init__(
        self,
        crew: Crew,
        targets: Mapping[str, str | Sequence[str]],
        rules: Sequence[Path] = (),
        *,
        alertmanager_url: str | None = None,
        scrape_seconds: float = 5.0,
        evaluation_seconds: float | None = None,
        cluster: str = "demo",
    ) -> None:
        program = find_program("prometheus")
        scrape = _duration(scrape_seconds)
        config: dict[str, Any] = {
            "global": {
                "scrape_interval": scrape,
                "scrape_timeout": scrape,
                "evaluation_interval": _duration(evaluation_seconds or scrape_seconds),
            },
            "rule_files": [str(path) for path in rules],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": _listed(target), "labels": {"cluster": cluster}}]}
                for job, target in targets.items()
            ],
        }
        if alertmanager_url:
            address = urllib.parse.urlsplit(alertmanager_url).netloc
            config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [address]}]}]}
        path = crew.directory / "prometheus.yml"
        path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.process = crew.start(
            "prometheus",
            [
                program,
                f"--config.file={path}",
                f"--storage.tsdb.path={crew.directory / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--rules.alert.resend-delay=1s",
                "--log.level=warn",
            ],
        )

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an instant vector: each with ``metric`` and ``value``."""
        return list(self._get("/api/v1/query", query=expression)["result"])

    def alerts(self) -> list[dict[str, Any]]:
        """Pending and firing alerts."""
        return list(self._get("/api/v1/alerts")["alerts"])

    def _get(self, path: str, **parameters: str) -> dict[str, Any]:
        url = f"{self.url}{path}?{urllib.parse.urlencode(parameters)}"
        return dict(json.loads(read_local(url))["data"])


def _listed(targets: str | Sequence[str]) -> list[str]:
    return [targets] if isinstance(targets, str) else list(targets)


def _duration(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
