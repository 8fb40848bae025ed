"""The shipped rules, made impatient: a demonstration cannot wait a minute for ``for``.

Thresholds, labels and texts stay as they are. What changes: each ``for`` and ``keep_firing_for`` is divided, those of
chosen alerts are taken out, groups are evaluated at Prometheus' own interval and, if wanted, the windows that
expressions look back over are divided too.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from straggler.errors import ConfigError, ParseError

_CHECKOUT = Path(__file__).resolve().parents[3] / "rules"
_DISTRIBUTION = "straggler-exporter"
_INSTALLED = f"share/{_DISTRIBUTION}/rules/"
"""Part of the path of each rule file in an installed distribution, wherever the installer has put it."""

_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000, "y": 31_536_000_000}
# Prometheus 2.42, promql duration: 1h30m, 90s, 0
_DURATION = re.compile(r"(?:\d+(?:ms|[smhdwy]))+|0")
# changes(run:training_step:max[2m]) and run:training_step:max offset 2m; the subquery that adds up ([30d:2m]) stays
_WINDOW = re.compile(r"(?<=\[)[0-9a-z]+(?=\])|(?<=\boffset )[0-9a-z]+")
_PART = re.compile(r"(\d+)(ms|[smhdwy])")


def find_rules(chosen: Path | None = None) -> Path:
    """The directory with ``recording/`` and ``alerts/``: the chosen one, else the checkout's, else the installed one.

    Raises:
        ConfigError: it is not there, or holds no rules.
    """
    for place in (chosen,) if chosen else (_CHECKOUT, *_installed()):
        if any(rule_files(place)):
            return place
    looked = chosen or f"{_CHECKOUT} and in the installed {_DISTRIBUTION}"
    raise ConfigError("rules", f"no alerts/*.yaml in {looked}: give the directory with --rules DIR")


def _installed() -> set[Path]:
    try:
        files = metadata.files(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return set()
    return {Path(str(file.locate())).resolve().parents[1] for file in files if _INSTALLED in file.as_posix()}


def rule_files(rules: Path) -> list[Path]:
    """All rule files of the directory; recording rules first. None where this user may not look."""
    try:
        return [*sorted(rules.glob("recording/*.yaml")), *sorted(rules.glob("alerts/*.yaml"))]
    except PermissionError:  # before Python 3.13
        return []


def write_quick_rules(
    rules: Path, target: Path, *, divide_by: float, at_once: Collection[str] = (), windows: bool = False
) -> list[Path]:
    """Write the impatient copy.

    Args:
        rules: the shipped directory.
        target: an existing directory for the copy; files get flat names.
        divide_by: what each ``for`` and ``keep_firing_for`` is divided by.
        at_once: alerts that lose them altogether.
        windows: divide the windows of expressions too, e.g. ``[2m]``.

    Returns:
        The files written.

    Raises:
        ConfigError: a file that Prometheus would refuse too.
    """
    written = []
    for source in rule_files(rules):
        try:
            content = yaml.safe_load(source.read_text(encoding="utf-8"))
            _hurry(content, divide_by, at_once, windows=windows)
        except (OSError, yaml.YAMLError, LookupError, TypeError, AttributeError, ParseError) as error:
            raise ConfigError("rules", f"{source} is no file of rules: {error}") from error
        copy = target / f"{source.parent.name}-{source.name}"
        copy.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), encoding="utf-8")
        written.append(copy)
    return written


def _hurry(content: dict[str, Any], divide_by: float, at_once: Collection[str], *, windows: bool) -> None:
    """Change the rules of one file in place."""
    for group in content["groups"]:
        group.pop("interval", None)
        for rule in group["rules"]:
            if windows:
                rule["expr"] = _WINDOW.sub(lambda found: _divided(found[0], divide_by), rule["expr"])
            for key in ("for", "keep_firing_for"):
                if key in rule and rule.get("alert") in at_once:
                    del rule[key]
                elif key in rule:
                    rule[key] = _divided(str(rule[key]), divide_by)


def _divided(duration: str, divide_by: float) -> str:
    return f"{round(duration_seconds(duration) * 1000 / divide_by)}ms"


def duration_seconds(text: str) -> float:
    """``1h30m`` is 5400.

    Raises:
        ParseError: the text is no duration of Prometheus.
    """
    if not _DURATION.fullmatch(text):
        raise ParseError("duration", text)
    return sum(int(count) * _UNIT_MS[unit] for count, unit in _PART.findall(text)) / 1000
