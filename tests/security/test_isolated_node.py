"""A node with several users, in namespaces of its own."""

from __future__ import annotations

import json
import os
import shutil
import site
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy_tools import ROOT, run, tool

PYTHON = "/usr/bin/python3"
PROGRAM = Path(__file__).parent / "isolated_node.py"


@pytest.fixture(scope="module")
def told() -> Any:
    """What happened on the node."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become several users")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if run(PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])")[1].strip() != version:
        pytest.skip(f"other users cannot run this Python, and {PYTHON} is not {version}")
    namespaces = ("--net", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child")
    if run(tool("unshare"), *namespaces, "true")[0]:
        pytest.skip("this machine allows no namespaces")
    tool("ip")
    directory = Path(f"/tmp/straggler-node-{os.getpid()}")  # pytest's own directories are root's alone
    (directory / "rings").mkdir(parents=True)
    python_path = os.pathsep.join([str(ROOT / "exporter"), *site.getsitepackages()])
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": python_path, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        code, said = run(tool("unshare"), *namespaces, PYTHON, PROGRAM, directory / "rings", env=env)
        log = (directory / "sidecar.log").read_text(encoding="utf-8")
    finally:
        shutil.rmtree(directory)
    assert code == 0, said + log
    return json.loads(said.splitlines()[-1])


@pytest.mark.slow
def test_everything_works_without_privileges(told: Any) -> None:
    """Three users' jobs run and are seen by a sidecar that is none of them, behind no network but the loopback."""
    assert told["interfaces"] == ["lo"]
    assert told["runs"] == ["first/0", "second/0", "third/0"]
    assert told["advanced"] == [True, True, True]
    assert told["training"] == [None] * 5  # all go on, the forgers too


@pytest.mark.slow
def test_nobody_touches_anothers_ring(told: Any) -> None:
    """Another user can neither find, read, write, shorten, remove, rename nor open up a ring."""
    assert told["mode"] == "0o640"
    assert told["outsider"] == []


@pytest.mark.slow
def test_sidecar_can_only_read(told: Any) -> None:
    """The sidecar's user lists and reads; the training's data is safe from it."""
    assert told["reader"] == ["list", "read"]


@pytest.mark.slow
def test_nobody_forges(told: Any) -> None:
    """A ring that claims another user's run is refused, its rank too; a link to a ring is not followed."""
    assert told["refused"] == ["foreign_run", "symlink"]
    assert max(told["paces"].values()) <= 100  # who sleeps for 10 ms takes no more steps a second; the forger does
