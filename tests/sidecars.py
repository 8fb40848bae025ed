"""A real sidecar process for tests: on a free loopback port, with its log, never outliving the test."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_PATIENCE = {f"STRAGGLER_{name}_TIMEOUT_SECONDS": "50" for name in ("SCRAPE", "DCGM", "NVML")}
"""What a scrape has time for, unless a test says otherwise: this machine may be busy."""
_PORT = re.compile(r"serves on .*, port (\d+)")


class ServedSidecar:
    """``straggler serve`` as a process.

    Args:
        flags: added to the command line.
        environment: added to what it inherits.
        prefix: words before the command, of a program that becomes it.
    """

    def __init__(self, *flags: str, environment: Mapping[str, str] | None = None, prefix: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "straggler", "serve", "--listen", "127.0.0.1:0", *flags],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **_PATIENCE, **(environment or {})},
        )
        self._lines: list[str] = []
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.append(line)
            if found := _PORT.search(line):
                self.port = int(found[1])
                break
        else:
            self.close()
            raise AssertionError("".join(self._lines))
        # An unread pipe would fill and block the process.
        self._reader = threading.Thread(target=self._read_on, daemon=True)
        self._reader.start()

    def _read_on(self) -> None:
        assert self._process.stderr is not None
        self._lines += self._process.stderr

    @property
    def url(self) -> str:
        """Without a slash at the end."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def log(self) -> str:
        """Everything so far."""
        return "".join(self._lines)

    def request(
        self, path: str, method: str = "GET", body: bytes | None = None, /, **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Ask once; ``Accept_Encoding`` is the header ``Accept-Encoding``."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as client:
            client.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = client.getresponse()
            return answer, answer.read()

    def metrics(self, **headers: str) -> str:
        """The page as text."""
        return self.request("/metrics", **headers)[1].decode()

    def end(self, signum: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and give the exit code."""
        self._process.send_signal(signum)
        code = self._process.wait(60)
        self._reader.join(60)
        return code

    def close(self) -> None:
        """Make sure that it is gone."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(60)
        if self._process.stderr is not None:
            self._process.stderr.close()


@contextlib.contextmanager
def served(
    *flags: str, environment: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
) -> Iterator[ServedSidecar]:
    """A sidecar that is gone afterwards."""
    sidecar = ServedSidecar(*flags, environment=environment, prefix=prefix)
    try:
        yield sidecar
    finally:
        sidecar.close()


def straggler(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "straggler", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **(environment or {})},
        timeout=100,
        check=False,
    )


@contextlib.contextmanager
def hung_page() -> Iterator[str]:
    """The URL of a server that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/metrics"


def write_config(directory: Path, text: str) -> str:
    """A YAML file; gives its path."""
    path = directory / "straggler.yml"
    path.write_text(text, encoding="utf-8")
    return str(path)
