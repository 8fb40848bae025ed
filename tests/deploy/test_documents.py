"""Deployment and operations, as far as they can be checked: what they name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy_tools import ROOT
from straggler.sidecar.setting import settings

DOCUMENTS = [ROOT / "docs" / name for name in ("deploy.md", "operations.md")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.stem))
def test_links_lead_somewhere(document: Path) -> None:
    """Each relative link, and each path below deploy/ in a command, is a file of this project."""
    text = document.read_text(encoding="utf-8")
    links = {document.parent / link.partition("#")[0] for link in re.findall(r"\]\((?!https?:)([^)#]+)", text)}
    paths = {ROOT / path for path in re.findall(r"(?<![\w/.])deploy/[\w./-]*\w", text)}

    assert [str(path) for path in sorted(links | paths) if not path.exists()] == []


def test_the_price_list_names_settings() -> None:
    """Each setting with a price exists, and its default is the one that is stated."""
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8").partition("## What each")[2].partition("##")[0]
    stated = dict(re.findall(r"^\| `([\w.]+)` \(([\w.]+)", text, re.MULTILINE))
    known = {".".join(setting.path): setting.field.default for setting in settings()}

    assert stated
    for name, default in stated.items():
        assert name in known
        if default.isdigit():
            assert float(default) == float(known[name])


def test_metrics_in_the_documents_exist() -> None:
    """What one is told to look at is in the catalogue."""
    names = set(re.findall(r"^\w+", (ROOT / "tests/expected/metric_names.txt").read_text("utf-8"), re.MULTILINE))
    text = "".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)
    used = set(re.findall(r"\b(?:training|straggler_exporter)_\w*[a-z]\b", text))

    assert used
    assert used - names == set()
