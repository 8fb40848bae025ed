"""The price list of the page about operations; ``guards/test_documents.py`` looks up what all pages name."""

from __future__ import annotations

import re

from deploy_tools import ROOT
from straggler.sidecar.setting import settings


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
