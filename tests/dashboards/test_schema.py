"""The files against Grafana's own types, turned into a JSON Schema (see ``schema/NOTICE``)."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jsonschema import Draft7Validator, ValidationError

from dashboards.files import Json, load, panels

VALIDATOR = Draft7Validator(
    json.loads((Path(__file__).parent / "schema" / "dashboard.schema.json").read_text(encoding="utf-8"))
)


def complaints(dashboard: Json) -> list[str]:
    """What Grafana's types do not allow, with the place."""
    found = [leaf for error in VALIDATOR.iter_errors(dashboard) for leaf in leaves(error)]
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in found]


def leaves(error: ValidationError) -> Iterator[ValidationError]:
    """The reasons behind "is not valid under any of the schemas": of all kinds of panels, those of the panel's kind."""
    if not error.context:
        yield error
        return
    branches: dict[object, list[ValidationError]] = {}
    for inner in error.context:
        branches.setdefault(inner.schema_path[0], []).append(inner)
    of_its_kind = [branch for branch in branches.values() if not any(map(_another_kind, branch))]
    for inner in (of_its_kind or [min(branches.values(), key=len)])[0]:
        yield from leaves(inner)


def _another_kind(error: ValidationError) -> bool:
    return error.validator in ("const", "enum") and bool(error.absolute_path) and error.absolute_path[-1] == "type"


def test_a_dashboard_is_what_grafana_expects(dashboard: Json) -> None:
    """No option is misspelt, of the wrong type or unknown to its kind of panel."""
    assert complaints(dashboard) == []


def _first(dashboard: Json, kind: str) -> Json:
    return next(panel for panel in panels(dashboard) if panel["type"] == kind)


def _misspell(dashboard: Json) -> None:
    custom = _first(dashboard, "timeseries")["fieldConfig"]["defaults"]["custom"]
    custom["fillOpactiy"] = custom.pop("fillOpacity")


def _wrong_legend(dashboard: Json) -> None:
    _first(dashboard, "timeseries")["options"]["legend"]["displayMode"] = "tabel"


def _wrong_kind(dashboard: Json) -> None:
    _first(dashboard, "stat")["type"] = "singlestats"


def _no_letter(dashboard: Json) -> None:
    del _first(dashboard, "table")["targets"][0]["refId"]


def _text_for_number(dashboard: Json) -> None:
    _first(dashboard, "heatmap")["gridPos"]["w"] = "12"


def _wrong_stacking(dashboard: Json) -> None:
    _first(dashboard, "barchart")["options"]["stacking"] = "yes"


def _unknown_key(dashboard: Json) -> None:
    dashboard["refreshEvery"] = "30s"


@pytest.mark.parametrize(
    "mistake",
    [_misspell, _wrong_legend, _wrong_kind, _no_letter, _text_for_number, _wrong_stacking, _unknown_key],
)
def test_a_mistake_is_found(mistake: Callable[[Json], None]) -> None:
    """The schema is no rubber stamp: each of these is refused."""
    dashboard = copy.deepcopy(load("run"))
    mistake(dashboard)

    assert complaints(dashboard)
