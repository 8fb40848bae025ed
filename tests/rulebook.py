"""The shipped rules as the guards read them: parsed YAML, and PromQL as a tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import promql_parser as pp
import yaml

RULES = Path(__file__).parents[1] / "rules"
FILES = (*sorted(RULES.glob("recording/*.yaml")), *sorted(RULES.glob("alerts/*.yaml")))

_CHILDREN = ("expr", "lhs", "rhs", "param", "vector_selector")


@dataclass(frozen=True, slots=True)
class Rule:
    """One recording or alerting rule."""

    name: str
    """Of the alert, or of the recorded series."""
    is_alert: bool
    group: str
    raw: dict[str, Any]

    @property
    def severity(self) -> str:
        """``""`` for a recording rule."""
        return str(self.raw.get("labels", {}).get("severity", ""))

    @property
    def id(self) -> str:
        """The name, for an alert with its severity."""
        return f"{self.name}-{self.severity}" if self.is_alert else self.name

    @property
    def tree(self) -> Any:
        """The expression, parsed."""
        return pp.parse(self.raw["expr"])


@cache
def groups() -> tuple[tuple[Path, dict[str, Any]], ...]:
    """All groups, with the file that they stand in."""
    return tuple((file, group) for file in FILES for group in yaml.safe_load(file.read_text("utf-8"))["groups"])


@cache
def rules() -> tuple[Rule, ...]:
    """All rules, recording rules first."""
    return tuple(
        Rule(rule.get("alert") or rule["record"], "alert" in rule, group["name"], rule)
        for _, group in groups()
        for rule in group["rules"]
    )


@cache
def alerts() -> tuple[Rule, ...]:
    """All alerting rules; one name may have several severities."""
    return tuple(rule for rule in rules() if rule.is_alert)


def nodes(node: Any, above: tuple[tuple[Any, str], ...] = ()) -> Iterator[tuple[Any, tuple[tuple[Any, str], ...]]]:
    """A node of the tree and all below it, each with the way there.

    The way is the nodes above it, outermost first, each with the name of the branch taken: ``lhs``, ``rhs``, ``expr`` …
    """
    yield node, above
    branches = [(name, getattr(node, name, None)) for name in _CHILDREN]
    for name, child in (*branches, *(("args", argument) for argument in getattr(node, "args", None) or [])):
        if isinstance(child, pp.Expr):
            yield from nodes(child, (*above, (node, name)))


def selectors(node: Any) -> list[tuple[pp.VectorSelector, tuple[tuple[Any, str], ...]]]:
    """All vector selectors, each with the way there."""
    return [(found, above) for found, above in nodes(node) if isinstance(found, pp.VectorSelector)]


def numbers(node: Any) -> list[float]:
    """All number literals, in ascending order."""
    return sorted(found.val for found, _ in nodes(node) if isinstance(found, pp.NumberLiteral))


def ranges(node: Any) -> set[float]:
    """All windows and offsets, in seconds."""
    found: set[float] = set()
    for part, _ in nodes(node):
        for name in ("range", "offset"):
            value = getattr(part, name, None)
            if isinstance(value, timedelta):
                found.add(value.total_seconds())
    return found


def seconds(duration: str | None) -> float:
    """``5m`` is 300; no duration is 0."""
    return float(pp.parse_duration(duration).total_seconds()) if duration else 0.0


@cache
def peak_flops() -> tuple[tuple[str, float], ...]:
    """Pattern of the models and operations a second, for each kind of GPU that the rules know."""
    (rule,) = (rule for rule in rules() if rule.name == "run:training_gpu_peak_flops:per_model")
    operations = [node for node, _ in nodes(rule.tree) if isinstance(node, pp.BinaryExpr)]
    products: list[Any] = [operation for operation in operations if str(operation.op) == "*"]
    return tuple(
        (next(one.value for one in product.lhs.matchers.matchers if one.name == "gpu_model"), product.rhs.val)
        for product in products
    )
