"""The chart, rendered, and other ways to get at objects of Kubernetes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy_tools import DEPLOY, ROOT, TOOLS

KUBERNETES = DEPLOY / "kubernetes"
CHART = KUBERNETES / "chart"
SCRIPTS = ROOT / "tests/deploy/tools"


def judge(*words: str | Path, given: Any) -> Any:
    """Ask one of the tools; skips where they are not installed."""
    if not (TOOLS / ".installed").is_file():
        pytest.skip("no Helm here: `make deploy-test` installs it")
    command = [TOOLS / "bin/python", SCRIPTS / "kubernetes.py", *words]
    done = subprocess.run(
        [str(word) for word in command],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@cache
def _rendered(values: str) -> str:
    return json.dumps(judge("render", CHART, given=json.loads(values)))


def objects(values: Any) -> list[dict[str, Any]]:
    """What the chart makes of these values."""
    rendered = json.loads(_rendered(json.dumps(values)))
    assert "error" not in rendered, rendered["error"]
    found = [yaml.safe_load_all(text) for path, text in sorted(rendered.items()) if path.endswith(".yaml")]
    return [item for documents in found for item in documents if item]


def one(found: list[dict[str, Any]], kind: str, ending: str = "") -> dict[str, Any]:
    """The only object of a kind whose name ends so."""
    (item,) = [item for item in found if item["kind"] == kind and item["metadata"]["name"].endswith(ending)]
    return item


def pods(item: Any) -> Iterator[dict[str, Any]]:
    """Every pod's spec inside an object, whatever the object is."""
    if isinstance(item, dict):
        if "containers" in item and isinstance(item["containers"], list):
            yield item
        for value in item.values():
            yield from pods(value)
    elif isinstance(item, list):
        for value in item:
            yield from pods(value)


def example_objects(path: Path) -> list[dict[str, Any]]:
    """All objects of an example."""
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
