"""Child processes that never outlive us, with their output in files.

The kernel ties a child to the *thread* that started it, so start from a thread that lives as long as the child should.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_LIFELINE = Path(__file__).with_name("lifeline.py")
_KILL_AFTER_SECONDS = 5.0
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH")


class Process:
    """One child. Its output goes to ``directory/NAME.log``.

    Args:
        env: added to what it inherits: paths and language. Nothing else comes along, so that variables of a user's own
            training, proxies or settings of ours do not reach into a run.
    """

    def __init__(
        self, name: str, command: Sequence[str], directory: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(  # noqa: S603 - commands are ours, never a shell line
                [sys.executable, "-I", "-S", str(_LIFELINE), str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**{key: os.environ[key] for key in _INHERITED if key in os.environ}, **(env or {})},
                start_new_session=True,  # Ctrl-C in the terminal is for us: we end the children in order
            )
        self.pid = self._popen.pid

    @property
    def returncode(self) -> int | None:
        """``None`` while it runs; negative if a signal ended it."""
        return self._popen.poll()

    def send(self, signum: signal.Signals) -> None:
        """Send a signal to the child and to its own children."""
        if self.returncode is None:
            os.killpg(self.pid, signum)

    def wait(self, seconds: float) -> int | None:
        """Wait for its end; ``None`` if it still runs then."""
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def stop(self, kill_after_seconds: float = _KILL_AFTER_SECONDS) -> None:
        """Ask it to end (SIGTERM), then end it."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)  # a stopped process hears it only now
        if self.wait(kill_after_seconds) is None:
            self.kill()

    def kill(self) -> None:
        """End it at once."""
        self.send(signal.SIGKILL)
        self._popen.wait()

    def tail(self, lines: int = 40) -> str:
        """The last lines of its output."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


class Crew:
    """All children of one run, ended together and in the opposite order of their start."""

    def __init__(self, directory: Path, kill_after_seconds: float = _KILL_AFTER_SECONDS) -> None:
        self.directory = directory
        self._kill_after_seconds = kill_after_seconds
        self.members: list[Process] = []

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str] | None = None) -> Process:
        """Start one more. A name that ran before goes on in the same log."""
        process = Process(name, command, self.directory, env)
        self.members.append(process)
        return process

    def stop(self) -> None:
        """Ask all to end, then wait for each: together they take no longer than the slowest."""
        for process in reversed(self.members):
            process.send(signal.SIGTERM)
            process.send(signal.SIGCONT)
        for process in reversed(self.members):
            process.stop(self._kill_after_seconds)

    def logs(self, lines: int = 40) -> str:
        """What all of them last said, for the message of a failure; what several said alike stands once."""
        said: dict[str, list[str]] = {}
        for process in {process.name: process for process in self.members}.values():
            heading = f"--- {process.name} (pid {process.pid}, {_how(process.returncode)})"
            said.setdefault(process.tail(lines), []).append(heading)
        return "\n".join("\n".join([*headings, text]) for text, headings in said.items())


def _how(returncode: int | None) -> str:
    if returncode is None:
        return "running"
    return f"signal {signal.Signals(-returncode).name}" if returncode < 0 else f"exit code {returncode}"
