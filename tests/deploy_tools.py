"""The tools that judge the deploy files, found on the machine or where ``make deploy-test`` puts them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
TOOLS = ROOT / ".deploy-tools"
"""Heavy tools in environments of their own; git ignores it."""


def tool(name: str) -> str:
    """Path of a program; skips the test where it is absent."""
    places = os.pathsep.join([str(TOOLS / "bin"), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    found = shutil.which(name, path=places)
    if found is None:
        pytest.skip(f"no {name} on this machine: `make deploy-test` installs what it can")
    return found


def run(
    *command: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None, seconds: float = 100
) -> tuple[int, str]:
    """Exit code of a command, and all that it said."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    return done.returncode, done.stdout
