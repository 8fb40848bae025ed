"""Real servers for tests: on free loopback ports, in a directory of their own, never outliving the test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from straggler.errors import SourceAbsentError
from straggler.simulate.processes import Crew
from straggler.simulate.servers import Alertmanager, Prometheus, find_program, wait_until_ready
from straggler.simulate.webhook import Webhook

Value = TypeVar("Value")


def program(name: str) -> str:
    """Path of ``prometheus``, ``alertmanager``, ``promtool`` or ``amtool``; skips the test where it is absent."""
    try:
        return find_program(name)
    except SourceAbsentError as absent:
        pytest.skip(str(absent))


def promtool(*arguments: str, text: str | None = None) -> str:
    """Run promtool with ``text`` on its standard input, fail unless it is content, and give what it said.

    How long it may take the calling test says (``pytest.mark.timeout``): some take minutes on a busy machine.
    """
    done = subprocess.run([program("promtool"), *arguments], input=text, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    assert done.returncode == 0, f"promtool {' '.join(arguments)} (exit code {done.returncode}):\n{output}"
    return output


@dataclass(frozen=True, slots=True)
class Monitoring:
    """Prometheus, Alertmanager, and who is on call."""

    prometheus: Prometheus
    alertmanager: Alertmanager
    webhook: Webhook


@contextmanager
def monitoring(
    directory: Path,
    targets: Mapping[str, str | Sequence[str]],
    rules: Sequence[Path],
    *,
    scrape_seconds: float = 1.0,
    evaluation_seconds: float | None = None,
) -> Iterator[Monitoring]:
    """Both servers, ready, with these targets (host and port, or several, by job) and rules; stopped at the end.

    Prometheus scrapes for the first time about 5 s after its start.
    """
    program("prometheus"), program("alertmanager")
    with ExitStack() as stack:
        webhook = Webhook()
        stack.callback(webhook.close)
        crew = Crew(directory)
        stack.callback(crew.stop)
        with crew_logs(crew):
            alertmanager = Alertmanager(crew, webhook.url)
            prometheus = Prometheus(
                crew,
                targets,
                rules,
                alertmanager_url=alertmanager.url,
                scrape_seconds=scrape_seconds,
                evaluation_seconds=evaluation_seconds,
            )
            wait_until_ready(f"{alertmanager.url}/-/ready", alertmanager.process)
            wait_until_ready(f"{prometheus.url}/-/ready", prometheus.process)
            yield Monitoring(prometheus, alertmanager, webhook)


@contextmanager
def crew_logs(crew: Crew) -> Iterator[None]:
    """Show what all processes said last, if what is inside fails."""
    try:
        yield
    except Exception:
        print(crew.logs())  # noqa: T201 - pytest shows it with the failure
        raise
