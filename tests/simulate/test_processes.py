"""Children that never outlive us."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from straggler.simulate.processes import Crew

PARENT = """
import sys, time
from pathlib import Path
from straggler.simulate.processes import Crew
crew = Crew(Path(sys.argv[1]))
print(crew.start("child", [sys.executable, "-c", "import time; time.sleep(300)"]).pid, flush=True)
time.sleep(300)
"""


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    """A crew that is stopped after the test."""
    crew = Crew(tmp_path)
    yield crew
    crew.stop()


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    """Wait; fail if it does not become true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.02)


def gone(pid: int) -> bool:
    """Whether the process has ended (a zombie that init has not collected yet counts as ended)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_killed_parent_leaves_no_orphan(tmp_path: Path) -> None:
    """A parent that is killed with SIGKILL, and so cannot clean up, takes its children with it."""
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert not gone(child)
        parent.kill()

    until(lambda: gone(child))


def test_output_goes_to_the_log(crew: Crew) -> None:
    """What a child says is in its log and in the crew's report, with how it ended."""
    child = crew.start("talker", [sys.executable, "-c", "print('hello'); raise SystemExit(3)"])

    assert child.wait(60) == 3
    assert child.tail() == "hello"
    assert "--- talker" in crew.logs()
    assert "exit code 3" in crew.logs()


def test_same_words_are_reported_once(crew: Crew) -> None:
    """When eight ranks fail alike, the report has eight headings and one text."""
    for rank in range(3):
        assert crew.start(f"rank{rank}", [sys.executable, "-c", "print('no such module')"]).wait(60) == 0

    report = crew.logs()

    assert report.count("no such module") == 1
    assert all(f"--- rank{rank} " in report for rank in range(3))


def test_environment_is_added(crew: Crew) -> None:
    """A child gets our environment and what is added to it."""
    child = crew.start(
        "env", [sys.executable, "-c", "import os; print(os.environ['A'], 'PATH' in os.environ)"], {"A": "b"}
    )

    assert child.wait(60) == 0
    assert child.tail() == "b True"


def test_stop_ends_a_child_that_ignores_it(tmp_path: Path) -> None:
    """A child that does not listen to SIGTERM is killed after a while."""
    crew = Crew(tmp_path, kill_after_seconds=0.2)
    deaf = crew.start("deaf", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"])
    until(lambda: deaf.tail() == "ready")

    crew.stop()

    assert deaf.returncode == -signal.SIGKILL


def test_stop_wakes_a_stopped_child(crew: Crew) -> None:
    """A child under SIGSTOP hears SIGTERM all the same."""
    child = crew.start("stopped", [sys.executable, "-c", "import time; time.sleep(300)"])
    child.send(signal.SIGSTOP)

    child.stop()

    assert child.returncode == -signal.SIGTERM


def test_stop_ends_grandchildren(crew: Crew) -> None:
    """What a child started itself is ended with it."""
    child = crew.start("family", ["sh", "-c", "sleep 300 & echo $!; wait"])
    until(lambda: child.tail().isdigit())
    grandchild = int(child.tail())

    child.stop()

    until(lambda: gone(grandchild))


def test_missing_program_says_so(crew: Crew) -> None:
    """A command that does not exist ends at once, and its log says why."""
    child = crew.start("ghost", ["/does/not/exist"])

    assert child.wait(60) == 1
    assert "No such file or directory: '/does/not/exist'" in child.tail()
