"""The preview is a tool for developers: its lock file must not tie anybody to a registry, and users never get it."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PREVIEW = ROOT / "dashboards" / "preview"


def test_lock_file_names_no_registry() -> None:
    """A lock file that was made behind a mirror once made everybody else's installation ask that mirror."""
    lock = json.loads((PREVIEW / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name: entry for name, entry in lock["packages"].items() if name}

    assert {name for name, entry in packages.items() if "resolved" in entry} == set()
    assert {name for name, entry in packages.items() if not re.match("sha512-", entry.get("integrity", ""))} == set()
    assert "omit-lockfile-registry-resolved=true" in (PREVIEW / ".npmrc").read_text(encoding="utf-8")


def test_packages_are_pinned() -> None:
    """A range would let Grafana's libraries drift apart: they change with each release."""
    package = json.loads((PREVIEW / "package.json").read_text(encoding="utf-8"))
    versions = package["dependencies"] | package["devDependencies"]

    assert {name for name, version in versions.items() if not re.fullmatch(r"\d+\.\d+\.\d+", version)} == set()


def test_installed_package_has_no_preview() -> None:
    """The wheel is made of ``exporter`` alone."""
    assert 'where = ["exporter"]' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
