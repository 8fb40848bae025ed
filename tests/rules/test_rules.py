"""The rules, judged by Prometheus' own tool: each file beside this one is a set of unit tests for promtool."""

from __future__ import annotations

from pathlib import Path

import pytest

from servers import promtool

HERE = Path(__file__).parent
RULES = HERE.parents[1] / "rules"
RULE_FILES = sorted(path for part in ("recording", "alerts", "examples") for path in RULES.glob(f"{part}/*.yaml"))


@pytest.mark.parametrize("file", RULE_FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_prometheus_accepts_the_rules(file: Path) -> None:
    """Each rule file is valid, and has no rule twice."""
    promtool("check", "rules", "--lint=all", "--lint-fatal", str(file))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("file", sorted(HERE.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_rules_say_what_they_should(file: Path) -> None:
    """Series that were made by hand give exactly the expected alerts, texts and figures."""
    promtool("test", "rules", str(file))
