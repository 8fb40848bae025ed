"""The shipped rules, made impatient."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from straggler.errors import ConfigError, ParseError
from straggler.simulate.quick_rules import duration_seconds, find_rules, rule_files, write_quick_rules

RULES = """
groups:
  - name: slow
    interval: 30s
    rules:
      - record: run:x:median
        expr: quantile by (run) (0.5, x)
      - alert: TrainingStraggler
        expr: x > 1.10
        for: 1m
        keep_firing_for: 5m
        labels: {severity: warning}
      - alert: TrainingRankMissing
        expr: absent(x)
        for: 1m30s
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A directory of one alert file and one recording file."""
    for kind in ("alerts", "recording"):
        (tmp_path / "rules" / kind).mkdir(parents=True)
        (tmp_path / "rules" / kind / "straggler.yaml").write_text(RULES, encoding="utf-8")
    return tmp_path / "rules"


def test_only_waiting_changes(rules: Path, tmp_path: Path) -> None:
    """Durations are divided or taken out; expressions, labels and names stay."""
    copies = write_quick_rules(rules, tmp_path, divide_by=30, at_once={"TrainingStraggler"})

    assert [copy.name for copy in copies] == ["recording-straggler.yaml", "alerts-straggler.yaml"]
    before, after = (
        yaml.safe_load(RULES)["groups"][0],
        yaml.safe_load(copies[1].read_text(encoding="utf-8"))["groups"][0],
    )
    assert "interval" not in after
    assert after["rules"][0] == before["rules"][0]
    assert after["rules"][1] == {
        key: value for key, value in before["rules"][1].items() if key not in ("for", "keep_firing_for")
    }
    assert after["rules"][2] == {**before["rules"][2], "for": "3000ms"}


def test_windows_too_on_request(rules: Path, tmp_path: Path) -> None:
    """The windows and offsets of expressions are divided only where that is asked for."""
    (rules / "alerts" / "straggler.yaml").write_text(
        RULES.replace("absent(x)", "changes(x[2m]) > x offset 1m"), encoding="utf-8"
    )

    copies = write_quick_rules(rules, tmp_path, divide_by=20, windows=True)

    rule = yaml.safe_load(copies[1].read_text(encoding="utf-8"))["groups"][0]["rules"][2]
    assert rule["expr"] == "changes(x[6000ms]) > x offset 3000ms"


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("90s", 90), ("1h30m", 5400), ("250ms", 0.25), ("1d", 86400), ("1m500ms", 60.5)]
)
def test_durations(text: str, seconds: float) -> None:
    """Prometheus' durations, in seconds."""
    assert duration_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "1.5m", "m", "5 m", "-1m"])
def test_no_durations(text: str) -> None:
    """What Prometheus refuses is refused."""
    with pytest.raises(ParseError):
        duration_seconds(text)


def test_checkout_has_rules() -> None:
    """Without a choice, the rules are those of this checkout."""
    assert find_rules() == Path(__file__).parents[2] / "rules"
    assert rule_files(find_rules())


def test_wrong_directory_is_refused(tmp_path: Path) -> None:
    """A directory without rules is refused, with what to do."""
    with pytest.raises(ConfigError, match=r"--rules DIR") as refused:
        find_rules(tmp_path)
    assert refused.value.key == "rules"


@pytest.mark.parametrize(
    "content",
    ["", "groups: 5", "groups: [{name: a}]", "a: b: c", "groups: [{name: a, rules: [{alert: A, expr: x, for: soon}]}]"],
)
def test_broken_rules_are_refused(rules: Path, tmp_path: Path, content: str) -> None:
    """A file that Prometheus would refuse is refused before it is started, by name."""
    (rules / "alerts" / "straggler.yaml").write_text(content, encoding="utf-8")

    with pytest.raises(ConfigError, match=r"straggler\.yaml is no file of rules"):
        write_quick_rules(rules, tmp_path, divide_by=30)
