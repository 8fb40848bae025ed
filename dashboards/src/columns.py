"""Tables: rows joined from several queries, and their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dashboards.src.grafana import Json
from dashboards.src.panel import CALM, fixed, override, panel


@dataclass(frozen=True)
class Column:
    """One column of a table: where it comes from, and how it looks."""

    source: str
    """A label, or ``Value #A`` for the value of the first query."""
    heading: str
    width: int | None = None
    """In pixels; what is left over goes to the columns without."""
    settings: Json = field(default_factory=dict)
    """For ``override``, e.g. a unit."""

    @property
    def properties(self) -> Json:
        """All that is not the panel's default."""
        return {**self.settings, **({} if self.width is None else {"custom__width": self.width})}


def column(source: str, heading: str = "", width: int | None = None, **settings: Any) -> Column:
    """A column that is called like its label unless another heading is given."""
    return Column(source, heading or source, width, settings)


def join(shown: Mapping[str, str], queries: Sequence[Json], *, order: str = "") -> list[Json]:
    """Transformations that make one row of what the queries say of the same labels.

    Args:
        shown: label, or ``Value #A`` for the first query's value, to heading; in order. All others are left out.
        queries: tables.
        order: a label to sort by that is not shown.
    """
    several = len(queries) > 1
    names = {("Value" if source == "Value #A" and not several else source): name for source, name in shown.items()}
    return [
        *([{"id": "merge", "options": {}}] if several else []),
        *([{"id": "sortBy", "options": {"sort": [{"field": order, "desc": False}]}}] if order else []),
        {"id": "filterFieldsByName", "options": {"include": {"names": list(names)}}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {},
                "indexByName": {source: index for index, source in enumerate(names)},
                "renameByName": {source: heading for source, heading in names.items() if source != heading},
            },
        },
    ]


def table(
    number: int,
    title: str,
    description: str,
    queries: Sequence[Json],
    *,
    columns: Sequence[Column],
    sort: Mapping[str, bool] | None = None,
    size: tuple[int, int] = (24, 8),
    **settings: Any,
) -> Json:
    """Rows joined from instant queries by the labels that they share.

    Args:
        number: its id.
        title: what is shown.
        description: how to read it and what to do.
        queries: tables. Each must aggregate: a metric name in the labels would keep the rows apart.
        columns: in order; all other labels are left out.
        sort: headings to sort by, and whether the greatest comes first.
        size: width and height.
        settings: see ``panel``.
    """
    transformations = join({one.source: one.heading for one in columns}, queries)
    options = {
        "showHeader": True,
        "cellHeight": "sm",
        "frameIndex": 0,
        "sortBy": [{"displayName": heading, "desc": descending} for heading, descending in (sort or {}).items()],
    }
    custom = {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False, "filterable": False}
    settings = {"color": fixed(CALM), "unit": "string", **settings}
    overrides = [override(one.heading, **one.properties) for one in columns if one.properties]
    return panel(
        "table",
        number,
        title,
        description,
        queries,
        size=size,
        options=options,
        custom=custom,
        transformations=transformations,
        overrides=overrides,
        **settings,
    )
