"""One panel of any kind, and what panels are made of: queries, colours, thresholds, overrides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.src.grafana import DATASOURCE, Json

PLUGIN_VERSION = "11.6.0"
"""The oldest Grafana whose options these are; newer ones migrate from here."""

OWN, EXCESS, WAIT = "blue", "red", "#8e9299"
"""Working, the part of it that delays all others, and being blocked: the same colours on every dashboard."""
GREY = "#8e9299"
"""Peers, and what is over."""
GOOD, WARNING, CRITICAL = "green", "orange", "red"
DASHES: Json = {"fill": "dash", "dash": [8, 6]}
CALM = "text"
"""For numbers that are neither good nor bad."""

TIMES = "suffix:x"
"""A unit: 1.35x."""
BEHIND = "suffix: behind"

SLOWDOWN_STEPS = ((None, GREY), (0, GOOD), (1.10, WARNING), (1.20, CRITICAL))
"""The warning and critical ratios of ``detect/policy.py``; a test holds the two together. Grey: no value."""
SLOWDOWN_CELL_STEPS = ((None, "transparent"), *SLOWDOWN_STEPS[2:])
"""In a table only what is slow has a colour."""
LOST_STEPS = ((None, GREY), (0, GOOD), (0.05, WARNING), (0.15, CRITICAL))

CAUSES = {
    "power_brake": ("power brake", CALM),
    "thermal": ("heat", CALM),
    "power_cap": ("power cap", CALM),
    "clocks_set_low": ("clocks set low", CALM),
    "pcie_degraded": ("PCIe link", CALM),
    "host_cpu": ("no free CPU", CALM),
    "memory": ("host memory", CALM),
    "work": ("more work", CALM),
    "data_loading": ("data loading", CALM),
    "gpu_errors": ("GPU errors", CALM),
    "unknown": ("unknown", GREY),
}
"""Why a rank is slow (``detect/cause.py``), in words that fit a cell; a test compares the names."""

CAUSE_SHARE = 0.5
"""What explains more of the gap than this is its cause (``detect/policy.py``)."""

Step = tuple[float | None, str]


def query(expr: str, legend: str = "", *, instant: bool = False, table: bool = False) -> Json:
    """One query of a panel.

    Args:
        expr: PromQL.
        legend: with ``{{label}}`` for label values.
        instant: at the end of the time range only.
        table: one row for each series, its labels as columns; instant.
    """
    now = instant or table
    return {
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": expr,
        "legendFormat": legend or "__auto",
        "instant": now,
        "range": not now,
        "format": "table" if table else "time_series",
    }


def thresholds(steps: Sequence[Step]) -> Json:
    """Colour steps; the first has no value and colours all that is below the second."""
    return {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in steps]}


def override(name: str, **properties: Any) -> Json:
    """Settings for one series or column. ``custom__width`` stands for the property ``custom.width``."""
    return {"matcher": {"id": "byName", "options": name}, "properties": _properties(properties)}


def override_query(letter: str, **properties: Any) -> Json:
    """The same for all series of one query, whose names depend on their labels."""
    return {"matcher": {"id": "byFrameRefID", "options": letter}, "properties": _properties(properties)}


def _properties(by_key: Mapping[str, Any]) -> list[Json]:
    return [{"id": key.replace("__", "."), "value": value} for key, value in by_key.items()]


def colours(by_name: Mapping[str, str]) -> list[Json]:
    """A fixed colour for each series of that name."""
    return [override(name, color=fixed(colour)) for name, colour in by_name.items()]


def words_for(texts: Mapping[str, tuple[str, str]]) -> list[Json]:
    """Another name and a colour for each series of that name."""
    return [override(name, displayName=text, color=fixed(colour)) for name, (text, colour) in texts.items()]


def dashed(name: str, colour: str) -> Json:
    """The line of that name, dashed: a peer, a limit, or what is possible."""
    return override(name, color=fixed(colour), custom__lineStyle=DASHES)


def fixed(colour: str) -> Json:
    """The colour property for one colour."""
    return {"mode": "fixed", "fixedColor": colour}


def value_texts(texts: Mapping[str, tuple[str, str]]) -> list[Json]:
    """Texts and colours instead of numbers: value to (text, colour)."""
    options = {
        value: {"text": text, "color": colour, "index": index}
        for index, (value, (text, colour)) in enumerate(texts.items())
    }
    return [{"type": "value", "options": options}]


def panel(
    kind: str,
    number: int,
    title: str,
    description: str,
    queries: Sequence[Json],
    *,
    size: tuple[int, int],
    options: Json,
    unit: str = "short",
    decimals: int | None = None,
    low: float | None = None,
    high: float | None = None,
    steps: Sequence[Step] = ((None, CALM),),
    color: Json | None = None,
    mappings: Sequence[Json] = (),
    custom: Json | None = None,
    overrides: Sequence[Json] = (),
    transformations: Sequence[Json] = (),
    links: Sequence[Json] = (),
    points: int | None = None,
    empty: str = "",
) -> Json:
    """A panel of any kind.

    Args:
        kind: Grafana's panel type.
        number: its id: never changed, since links and annotations point to it.
        title: what is shown.
        description: how to read it and what to do.
        queries: from ``query``; they get the letters A, B, ….
        size: width (of 24) and height.
        options: of this kind of panel.
        unit: a Grafana unit.
        decimals: digits after the point.
        low: least value of the axis or gauge.
        high: greatest value.
        steps: colour thresholds.
        color: Grafana's colour property; thresholds unless given.
        mappings: from ``value_texts``.
        custom: field settings of this kind of panel.
        overrides: settings of single series or columns.
        transformations: Grafana transformations, in order.
        links: of the panel's values.
        points: at most so many points in time; Grafana takes one a pixel.
        empty: what to say where there is no value.
    """
    defaults: Json = {
        "unit": unit,
        "thresholds": thresholds(steps),
        "color": color or {"mode": "thresholds"},
        "mappings": list(mappings),
        **({} if decimals is None else {"decimals": decimals}),
        **({} if low is None else {"min": low}),
        **({} if high is None else {"max": high}),
        **({"noValue": empty} if empty else {}),
        **({"links": list(links)} if links else {}),
        **({"custom": custom} if custom else {}),
    }
    return {
        "id": number,
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "gridPos": {"w": size[0], "h": size[1]},
        "pluginVersion": PLUGIN_VERSION,
        "targets": [{**target, "refId": chr(ord("A") + index)} for index, target in enumerate(queries)],
        "fieldConfig": {"defaults": defaults, "overrides": list(overrides)},
        "options": options,
        **({"transformations": list(transformations)} if transformations else {}),
        **({"maxDataPoints": points} if points else {}),
    }
