"""Directories that clean up after themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from straggler.simulate.workspace import Workspace

KILLED = """
import os, signal, sys
from pathlib import Path
from straggler.simulate.workspace import Workspace
print(Workspace(Path(sys.argv[1])).directory, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_removed_at_the_end(tmp_path: Path) -> None:
    """The directory and all that is in it go with the run."""
    workspace = Workspace(tmp_path)
    (workspace.directory / "rings").mkdir()
    (workspace.directory / "rings" / "a").write_text("a", encoding="utf-8")

    workspace.close()

    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """A directory whose owner was killed goes when the next run begins; one in use stays."""
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    left = Path(subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.strip())
    assert left.is_dir()

    first, second = Workspace(tmp_path), Workspace(tmp_path)

    assert not left.exists()
    assert first.directory.is_dir()
    assert second.directory.is_dir()
    first.close()
    second.close()


def test_kept_on_request(tmp_path: Path) -> None:
    """A directory that somebody wants to look at survives later runs."""
    kept = Workspace(tmp_path)
    kept.close(keep=True)

    Workspace(tmp_path).close()

    assert list(tmp_path.iterdir()) == [kept.directory]


def test_foreign_directory_of_that_name_stays(tmp_path: Path) -> None:
    """A directory that merely has such a name is not ours to remove."""
    (tmp_path / "straggler-demo-mine").mkdir()

    Workspace(tmp_path).close()

    assert (tmp_path / "straggler-demo-mine").is_dir()
