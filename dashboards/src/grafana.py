"""Grafana's classic dashboard model: variables, links, annotations, and the grid.

Classic JSON is what Grafana 11, 12 and 13 all import, by hand and by provisioning. Nothing here needs editing before
the import: the data source is a variable, so no ``__inputs`` are left to resolve (file provisioning does not do that).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

SCHEMA_VERSION = 39
"""What Grafana 11 writes. A newer number is refused by an older server; an older one is migrated without a loss."""

DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}

TAG = "straggler"
GRID_WIDTH = 24
ROW_HEIGHT = 1

_UNCHOSEN: Json = {"text": "", "value": ""}
"""Grafana takes the default data source, or the first option. Grafana 11 cannot read a variable without it."""


def datasource_variable() -> Json:
    """The one thing that differs between installations."""
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": _UNCHOSEN,
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "refresh": 1,
        "regex": "",
        "skipUrlSync": False,
    }


def query_variable(
    name: str,
    label: str,
    query: str,
    *,
    several: bool,
    numeric: bool = False,
    hide: bool = False,
    regex: str = "",
) -> Json:
    """A choice among label values.

    Args:
        name: of the variable.
        label: what people read.
        query: ``label_values(…)``, or ``query_result(…)`` with a ``regex``.
        several: whether more than one, and All, can be chosen. All is the regular expression ``.*``, which also
            matches series without the label: a single cluster has no ``cluster`` label.
        numeric: sort by number.
        hide: do not show it; it follows from the others.
        regex: the part of an answer that is the option, in slashes.
    """
    everything: Json = {"text": ["All"], "value": ["$__all"]}
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": "StandardVariableQuery", "qryType": 5},
        "definition": query,
        "current": everything if several else _UNCHOSEN,
        "hide": 2 if hide else 0,
        "includeAll": several,
        **({"allValue": ".*"} if several else {}),
        "multi": several,
        "options": [],
        "refresh": 2,
        "regex": regex,
        "skipUrlSync": False,
        "sort": 3 if numeric else 1,
    }


def custom_variable(name: str, label: str, values: Sequence[str]) -> Json:
    """A choice among fixed values; the first is the default."""
    options = [{"selected": value == values[0], "text": value, "value": value} for value in values]
    return {
        "name": name,
        "label": label,
        "type": "custom",
        "query": ",".join(values),
        "current": {"text": values[0], "value": values[0]},
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": options,
        "skipUrlSync": False,
    }


def constant_variable(name: str, value: str) -> Json:
    """A value that a team changes once for all panels, in the dashboard's settings."""
    return {"name": name, "type": "constant", "query": value, "hide": 2, "skipUrlSync": True}


def annotation(name: str, expr: str, *, title: str, text: str, colour: str) -> Json:
    """Marks on all time axes wherever the query has a value."""
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": colour,
        "expr": expr,
        "step": "30s",
        "titleFormat": title,
        "textFormat": text,
        "tagKeys": "severity",
        "useValueForTime": False,
    }


def link(title: str, uid: str) -> Json:
    """A link in the head of the dashboard that keeps the time range and the variables."""
    return {
        "title": title,
        "type": "link",
        "url": f"/d/{uid}",
        "icon": "dashboard",
        "tooltip": "",
        "tags": [],
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
    }


def row(number: int, title: str, panels: Sequence[Json], *, collapsed: bool = False) -> list[Json]:
    """A heading, its panels below it in the order given."""
    head: Json = {"type": "row", "id": number, "title": title, "collapsed": collapsed, "panels": []}
    return [head, *panels]


def place(panels: Sequence[Json]) -> list[Json]:
    """Give each panel its place: left to right, a new line where the width is used up.

    Args:
        panels: each with a ``gridPos`` of width and height alone; rows have none.
    """
    placed: list[Json] = []
    x = y = line = 0
    for panel in panels:
        is_row = panel["type"] == "row"
        width = GRID_WIDTH if is_row else panel["gridPos"]["w"]
        height = ROW_HEIGHT if is_row else panel["gridPos"]["h"]
        if x + width > GRID_WIDTH:
            x, y, line = 0, y + line, 0
        placed.append({**panel, "gridPos": {"x": x, "y": y, "w": width, "h": height}})
        x, line = x + width, max(line, height)
    return placed


def dashboard(
    uid: str,
    title: str,
    description: str,
    *,
    variables: Sequence[Json],
    panels: Sequence[Json],
    links: Sequence[Json],
    annotations: Sequence[Json] = (),
    since: str = "now-3h",
) -> Json:
    """The whole file."""
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "fiscalYearStartMonth": 0,
        "liveNow": False,
        "refresh": "30s",
        "time": {"from": since, "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "weekStart": "",
        "annotations": {"list": [_BUILT_IN, *annotations]},
        "templating": {"list": [datasource_variable(), *variables]},
        "links": list(links),
        "panels": place(panels),
    }


_BUILT_IN: Json = {
    "builtIn": 1,
    "datasource": {"type": "grafana", "uid": "-- Grafana --"},
    "enable": True,
    "hide": True,
    "iconColor": "rgba(0, 211, 255, 1)",
    "name": "Annotations & Alerts",
    "type": "dashboard",
}
