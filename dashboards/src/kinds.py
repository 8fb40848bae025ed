"""The kinds of panels that the dashboards use: one function each, with our look as the default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.src.columns import join
from dashboards.src.grafana import Json
from dashboards.src.panel import panel, value_texts

_CELLS = 150
"""Columns of a heatmap: narrower ones are stripes."""


def stat(
    number: int,
    title: str,
    description: str,
    queries: Sequence[Json],
    *,
    size: tuple[int, int] = (4, 4),
    loud: bool = False,
    named: bool = False,
    words: bool = False,
    trend: bool = False,
    **settings: Any,
) -> Json:
    """One number to be seen from afar.

    Args:
        number: its id.
        title: what is shown.
        description: how to read it and what to do.
        queries: instant, or over time where ``trend``.
        size: width and height.
        loud: colour the whole panel, not the number alone.
        named: write the legend above the number.
        words: write the legend in its place.
        trend: draw the course behind it.
        settings: see ``panel``.
    """
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "orientation": "auto",
        "textMode": "name" if words else "value_and_name" if named else "value",
        "wideLayout": False,
        "colorMode": "background" if loud else "value",
        "graphMode": "area" if trend else "none",
        "justifyMode": "center",
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    }
    return panel("stat", number, title, description, queries, size=size, options=options, **settings)


def timeseries(
    number: int,
    title: str,
    description: str,
    queries: Sequence[Json],
    *,
    size: tuple[int, int] = (12, 8),
    stacked: bool = False,
    fill: int = 0,
    width: int = 2,
    lines: bool = False,
    table: bool = False,
    **settings: Any,
) -> Json:
    """Lines over time.

    Args:
        number: its id.
        title: what is shown.
        description: how to read it and what to do.
        queries: over time.
        size: width and height.
        stacked: on top of each other.
        fill: opacity of the area below a line, in per cent.
        width: of the lines.
        lines: draw the thresholds.
        table: a legend at the right with the last and the greatest value.
        settings: see ``panel``.
    """
    custom = {
        "drawStyle": "line",
        "lineWidth": 1 if stacked else width,
        "fillOpacity": 75 if stacked else fill,
        "showPoints": "never",
        # Bridges steps that are longer than the window of a rate, not outages.
        "spanNulls": 300_000,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if lines else "off"},
        **settings.pop("custom", {}),
    }
    legend = {
        "showLegend": True,
        "displayMode": "table" if table else "list",
        "placement": "right" if table else "bottom",
        "calcs": ["lastNotNull", "max"] if table else [],
    }
    options = {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    settings = {"color": {"mode": "palette-classic"}, "custom": custom, **settings}
    return panel("timeseries", number, title, description, queries, size=size, options=options, **settings)


def bars(
    number: int,
    title: str,
    description: str,
    queries: Sequence[Json],
    *,
    x: str,
    columns: Sequence[str],
    order: str = "",
    size: tuple[int, int] = (12, 9),
    stacked: bool = False,
    horizontal: bool = False,
    values: bool = False,
    legend: bool = False,
    **settings: Any,
) -> Json:
    """One bar, or one stack, for each row of a table.

    Args:
        number: its id.
        title: what is shown.
        description: how to read it and what to do.
        queries: tables. Each must aggregate: a metric name in the labels would keep the rows apart.
        x: the label with the bars' names.
        columns: what the value of each query is called.
        order: a label to sort the bars by.
        size: width and height.
        stacked: columns on top of each other.
        horizontal: bars lie.
        values: write the value at each bar.
        legend: tell several columns beside each other apart.
        settings: see ``panel``.
    """
    options = {
        "xField": x,
        "orientation": "horizontal" if horizontal else "vertical",
        "stacking": "normal" if stacked else "none",
        "showValue": "always" if values else "never",
        "barWidth": 0.85,
        "groupWidth": 0.85,
        "barRadius": 0,
        "fullHighlight": False,
        "xTickLabelRotation": 0,
        "xTickLabelMaxLength": 24,
        "xTickLabelSpacing": 0,
        "legend": {"showLegend": stacked or legend, "displayMode": "list", "placement": "bottom", "calcs": []},
        "tooltip": {"mode": "multi", "sort": "none"},
    }
    custom = {"fillOpacity": 90, "lineWidth": 0, "gradientMode": "none", **settings.pop("custom", {})}
    values_of = {f"Value #{chr(ord('A') + index)}": name for index, name in enumerate(columns)}
    transformations = join({x: x, **values_of}, queries, order=order)
    settings = {"custom": custom, "transformations": transformations, **settings}
    return panel("barchart", number, title, description, queries, size=size, options=options, **settings)


def heatmap(
    number: int,
    title: str,
    description: str,
    queries: Sequence[Json],
    *,
    low: float,
    high: float,
    size: tuple[int, int] = (12, 9),
    unit: str = "none",
    decimals: int = 2,
) -> Json:
    """One line for each series, from the first at the top; hardly visible at ``low``, red at ``high``."""
    options = {
        "calculate": False,
        "cellGap": 0,
        "cellValues": {"unit": unit, "decimals": decimals},
        "color": {
            "mode": "opacity",
            "fill": "red",
            "scale": "linear",
            "scheme": "Reds",
            "steps": 64,
            "reverse": False,
            "exponent": 0.5,
            "min": low,
            "max": high,
        },
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "showColorScale": True, "yHistogram": False},
        "yAxis": {"axisPlacement": "left", "reverse": True},
    }
    custom = {"scaleDistribution": {"type": "linear"}}
    return panel(
        "heatmap",
        number,
        title,
        description,
        queries,
        size=size,
        options=options,
        unit=unit,
        custom=custom,
        points=_CELLS,
    )


def states(
    number: int,
    title: str,
    description: str,
    queries: Sequence[Json],
    *,
    size: tuple[int, int] = (12, 8),
    texts: Mapping[str, tuple[str, str]],
    legend: bool = True,
    **settings: Any,
) -> Json:
    """One band for each series, coloured by its state.

    Args:
        number: its id.
        title: what is shown.
        description: how to read it and what to do.
        queries: over time; the values are states.
        size: width and height.
        texts: value to (text, colour).
        legend: list the states below.
        settings: see ``panel``.
    """
    options = {
        "mergeValues": True,
        "showValue": "auto",
        "alignValue": "left",
        "rowHeight": 0.85,
        "perPage": 24,
        "legend": {"showLegend": legend, "displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    custom = {"fillOpacity": 85, "lineWidth": 0}
    mappings = value_texts(texts)
    return panel(
        "state-timeline",
        number,
        title,
        description,
        queries,
        size=size,
        options=options,
        custom=custom,
        mappings=mappings,
        **settings,
    )
