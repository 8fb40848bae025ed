"""A process that answers lines with lines, and may hang: started, asked, left, killed."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

_END_SECONDS: Final = 0.5
"""A process that was killed has ended by then, unless the kernel itself waits for the driver."""
MOST_BYTES: Final = 8 * 1024 * 1024

_BOOT: Final = (
    "import sys; idle, sys.path[:] = float(sys.argv[1]), sys.argv[2:]; "
    "from straggler.sources.nvml.worker import main; main(idle)"
)


def worker_command(idle_seconds: float) -> tuple[str, ...]:
    """How the process that looks is started.

    A new interpreter, not a fork: the sidecar has threads, and a fork copies their locks as they stand. It is given
    this one's module path, so that it never imports from whatever directory the sidecar was started in.
    """
    paths = [os.path.abspath(path) for path in sys.path if path]  # noqa: PTH100 - entries of sys.path are texts
    return (sys.executable, "-c", _BOOT, str(idle_seconds), *paths)


class Ended(Exception):  # noqa: N818 - no error: the process is over, and the code says how
    """The process is not there any more.

    Args:
        code: its exit code; negative for a signal.
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


class WorkerProcess:
    """One running process.

    Args:
        command: program and arguments.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and our own text
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        assert self._process.stdin is not None  # noqa: S101 - tells mypy what PIPE means
        assert self._process.stdout is not None  # noqa: S101
        self._requests = self._process.stdin
        self._answers = self._process.stdout
        self._buffer = b""

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def ask(self) -> None:
        """Send a request.

        Raises:
            Ended: nobody reads it.
        """
        try:
            self._requests.write(b"look\n")
        except OSError as error:
            raise Ended(self._end()) from error

    def answer(self, timeout_seconds: float) -> bytes | None:
        """Wait for a line.

        Returns:
            ``None`` if it has not come yet; it may still, and is then given by a later call.

        Raises:
            Ended: none will come.
        """
        deadline = time.monotonic() + timeout_seconds
        waiting = select.poll()  # not select: a sidecar of many ranks has descriptors beyond 1,024
        waiting.register(self._answers, select.POLLIN)
        while b"\n" not in self._buffer:
            left = max(deadline - time.monotonic(), 0.0)
            if not waiting.poll(left * 1000):
                return None
            chunk = os.read(self._answers.fileno(), 65_536)
            if not chunk or len(self._buffer) > MOST_BYTES:
                raise Ended(self._end())
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def kill(self) -> None:
        """End it. In a driver call that cannot be interrupted it ends with the call at the earliest: see ``gone``."""
        self._process.kill()
        for pipe in (self._requests, self._answers):
            with contextlib.suppress(OSError):
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)

    def gone(self) -> bool:
        """Whether the process has really ended."""
        return self._process.poll() is not None

    def _end(self) -> int:
        """Make sure that it ends, and give its code."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)  # it has closed its pipe: it is on its way out, with a code of its own
        self.kill()
        return self._process.returncode if self.gone() else -signal.SIGKILL
