"""The committed dashboards, and what stands in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]

FOLDER = Path(__file__).resolve().parents[2] / "dashboards"
NAMES = ("fleet", "run", "rank", "exporter")


def load(name: str) -> Json:
    """One dashboard."""
    dashboard: Json = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return dashboard


def panels(dashboard: Json) -> list[Json]:
    """All panels without the rows."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


@dataclass(frozen=True)
class Query:
    """One query of a panel or an annotation."""

    where: str
    """For messages: the panel's title and the query's letter."""
    expr: str
    legend: str
    instant: bool
    width: int
    """Of the panel, in grid columns."""


def queries(dashboard: Json) -> Iterator[Query]:
    """All that Prometheus is asked when the dashboard is opened, apart from the variables."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield Query(
                f"{panel['title']} [{target['refId']}]",
                target["expr"],
                target["legendFormat"],
                target["instant"],
                panel["gridPos"]["w"],
            )
    for annotation in dashboard["annotations"]["list"]:
        if "expr" in annotation:
            text = annotation["titleFormat"] + annotation["textFormat"]
            yield Query(f"annotation {annotation['name']}", annotation["expr"], text, instant=False, width=24)


def variables(dashboard: Json) -> list[Json]:
    """All variables, in order: a later one may use those before it."""
    found: list[Json] = dashboard["templating"]["list"]
    return found
