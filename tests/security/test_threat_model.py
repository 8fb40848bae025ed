"""``docs/security.md`` says which test shows what."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
DOCUMENT = TESTS.parent / "docs" / "security.md"


def test_each_line_has_tests_that_exist() -> None:
    """Each line of the threat model names at least one test, and each test that it names is there."""
    lines = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    threats = [line for line in lines if "what somebody tries" not in line]
    missing = []
    for line in threats:
        named = re.findall(r"`(\S+\.py)::(\w+)`", line)
        assert named, line
        missing += [
            f"{file}::{name}"
            for file, name in named
            if f"\ndef {name}(" not in (TESTS / file).read_text(encoding="utf-8")
        ]

    assert len(threats) > 20
    assert missing == []
