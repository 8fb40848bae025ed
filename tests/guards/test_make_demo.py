"""The first command of the README.

It once fetched torch, gigabytes where the index has only the build for GPUs, for a demonstration without use for it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_demo_installs_no_torch() -> None:
    """``make demo`` asks for an environment without torch."""
    plan = subprocess.run(["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    bootstraps = [line for line in plan.splitlines() if ".ci/bootstrap" in line]
    assert bootstraps
    assert all("--without-torch" in line for line in bootstraps)
