"""The committed files: made by the source, and by the rules of good dashboards.

Which rules: those of grafana/dashboard-linter that do not ask for a ``job`` and an ``instance`` variable (a run is on
many instances), and our own: nothing that averages a straggler away, nothing that flickers.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import promql_parser as pp

from conftest import Expected
from dashboards.files import FOLDER, NAMES, Json, Query, load, panels, queries, variables
from dashboards.promql import nodes, outside
from straggler.metrics.catalogue import BY_NAME, Kind

MACROS = {"__rate_interval": "2m", "__range": "3h", "__interval": "30s", "ranks": "48"}
UNITS = {
    "Bps",
    "bytes",
    "celsius",
    "dateTimeFromNow",
    "flops",
    "hertz",
    "none",
    "recps",
    "eps",
    "percentunit",
    "s",
    "short",
    "string",
    "suffix:x",
    "suffix: behind",
    "watt",
}
"""Grafana ids in use: a misspelt one would be shown as text behind the number."""
COUNTER_FUNCTIONS = {"rate", "increase", "resets"}


def tree(query: Query) -> pp.Expr:
    """The query's syntax tree, with something in place of Grafana's variables."""
    return pp.parse(re.sub(r"\$(\w+)", lambda match: MACROS.get(match[1], "x"), query.expr))


def test_files_are_what_the_source_makes() -> None:
    """Nobody edits the JSON by hand, and nobody forgets to make it."""
    command = [sys.executable, "-m", "dashboards.src.build", "--check"]
    done = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_ids_never_change(expected: Expected) -> None:
    """Links and annotations point to uids and panel ids: a change is seen in review."""
    lines = [
        f"{dashboard['uid']} {panel['id']:>3} {panel['type']} {panel['title']}"
        for dashboard in map(load, NAMES)
        for panel in dashboard["panels"]
    ]

    expected.check("dashboards/panels.txt", "\n".join(lines) + "\n")


def test_a_file_fits_any_installation(dashboard: Json) -> None:
    """Nothing has to be edited before the import, by hand or by provisioning."""
    assert "__inputs" not in dashboard
    assert "id" not in dashboard
    assert len(dashboard["uid"]) <= 40
    sources = [variable for variable in variables(dashboard) if variable["type"] == "datasource"]
    assert [(source["name"], source["label"], source["query"]) for source in sources] == [
        ("datasource", "Data source", "prometheus")
    ]


def test_everything_asks_the_chosen_data_source(dashboard: Json) -> None:
    """No query, variable or annotation names a data source of the author's."""
    asking = [
        *panels(dashboard),
        *(target for panel in panels(dashboard) for target in panel["targets"]),
        *(variable for variable in variables(dashboard) if variable["type"] == "query"),
        *(annotation for annotation in dashboard["annotations"]["list"] if "expr" in annotation),
    ]

    assert {item["datasource"]["uid"] for item in asking} == {"${datasource}"}


def test_panels_have_ids_and_places(dashboard: Json) -> None:
    """Ids are unique, and no panel covers another or leaves the grid."""
    ids = Counter(panel["id"] for panel in dashboard["panels"])
    cells = Counter(
        (x, y)
        for place in (panel["gridPos"] for panel in dashboard["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    )

    assert [number for number, count in ids.items() if count > 1 or number < 1] == []
    assert [cell for cell, count in cells.items() if count > 1 or cell[0] >= 24] == []


def test_panels_explain_themselves(dashboard: Json) -> None:
    """Each has a title, a description of more than a few words and something to ask."""
    poor = [
        panel["title"]
        for panel in panels(dashboard)
        if not panel["title"] or len(panel["description"].split()) < 12 or not panel["targets"]
    ]

    assert poor == []


def test_numbers_have_units(dashboard: Json) -> None:
    """Each panel and each override that names a unit names one of Grafana's."""
    used = {panel["fieldConfig"]["defaults"]["unit"] for panel in panels(dashboard)}
    used |= {
        setting["value"]
        for panel in panels(dashboard)
        for override in panel["fieldConfig"]["overrides"]
        for setting in override["properties"]
        if setting["id"] == "unit"
    }

    assert used <= UNITS


def test_variables_follow_the_time_range(dashboard: Json) -> None:
    """A run that ended last night can be chosen once the time range shows it."""
    asked = [variable for variable in variables(dashboard) if variable["type"] == "query"]

    assert asked
    assert [variable["name"] for variable in asked if variable["refresh"] != 2] == []


def test_all_matches_a_missing_label(dashboard: Json) -> None:
    """A single Prometheus has no ``cluster`` label: All is a regular expression that matches nothing, too."""
    several = [variable for variable in variables(dashboard) if variable.get("includeAll")]

    assert "cluster" in {variable["name"] for variable in several}
    assert {variable["allValue"] for variable in several} == {".*"}
    assert {variable["current"]["value"][0] for variable in several} == {"$__all"}


def test_counters_are_rates(dashboard: Json) -> None:
    """A counter is never shown as it is: it grows for ever and says nothing."""
    bare = [
        (query.where, selector.name)
        for query in queries(dashboard)
        for selector in outside(tree(query), COUNTER_FUNCTIONS)
        if _counts(selector.name or "")
    ]

    assert bare == []


def test_rates_have_grafanas_window(dashboard: Json) -> None:
    """A fixed window shows gaps when zoomed in and misses most of the samples when zoomed out."""
    fixed = [
        query.where
        for query in queries(dashboard)
        if not query.where.startswith("annotation")  # marks are asked in steps of 30 s, whatever the range
        and re.search(r"(?:rate|increase|resets)\([^\[]*\[(?!\$__rate_interval|\$__range)", query.expr)
    ]

    assert fixed == []


def _counts(name: str) -> bool:
    metric = BY_NAME.get(name) or BY_NAME.get(name.removesuffix("_sum").removesuffix("_count"))
    return metric is not None and metric.kind in (Kind.COUNTER, Kind.SUMMARY)


def test_nothing_averages_the_straggler_away(dashboard: Json) -> None:
    """No query takes a mean over ranks: one rank at 1.35 among 511 at 1.00 is a mean of 1.0007."""
    averaging = [
        query.where
        for query in queries(dashboard)
        if any(isinstance(node, pp.AggregateExpr) and str(node.op) == "avg" for node in nodes(tree(query)))
    ]

    assert averaging == []


def test_lines_do_not_flicker(dashboard: Json) -> None:
    """Over time, topk chooses once, at the end of the range: else each point would choose other ranks."""
    flickering = [
        query.where
        for query in queries(dashboard)
        if not query.instant and "topk" in query.expr
        for node in nodes(tree(query))
        if isinstance(node, pp.AggregateExpr) and str(node.op) == "topk" and "@ end()" not in node.prettify()
    ]

    assert flickering == []


def test_links_of_a_row_use_what_is_in_it(dashboard: Json) -> None:
    """A link from a column that the table leaves out would open any run, the first one."""
    for panel in panels(dashboard):
        if panel["type"] != "table":
            continue
        (shown,) = [
            step["options"]["include"]["names"]
            for step in panel["transformations"]
            if step["id"] == "filterFieldsByName"
        ]
        assert set(re.findall(r"__data\.fields\.(\w+)", str(panel["fieldConfig"]))) <= set(shown), panel["title"]


def test_links_lead_somewhere() -> None:
    """Each link to a dashboard names one that exists, and only variables that it has."""
    known = {dashboard["uid"]: dashboard for dashboard in map(load, NAMES)}
    text = "".join((Path(FOLDER) / f"{name}.json").read_text(encoding="utf-8") for name in NAMES)
    links = re.findall(r'"url": "/d/([\w-]+)(?:\?([^"]*))?"', text)

    assert {uid for uid, _ in links} == set(known)
    for uid, arguments in links:
        names = {variable["name"] for variable in variables(known[uid])}
        assert set(re.findall(r"var-(\w+)=", arguments)) <= names
