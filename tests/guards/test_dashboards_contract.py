"""Dashboards hang on names that others own: metrics, recorded series, alerts, thresholds."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest

from dashboards.files import NAMES, Json, load, panels, queries, variables
from dashboards.promql import selectors
from dashboards.server import rules
from straggler.detect.cause import CAUSES
from straggler.detect.policy import DEFAULT
from straggler.metrics.catalogue import BY_NAME, METRICS, Kind

WRITTEN_BY_PROMETHEUS = {"ALERTS", "ALERTS_FOR_STATE", "up"}
MACROS = {"__rate_interval": "2m", "__range": "3h", "ranks": "48"}


def known_series() -> set[str]:
    """All series that exist where the exporter is scraped and the rules are loaded."""
    names = {name for name in BY_NAME if BY_NAME[name].kind is not Kind.SUMMARY}
    names |= {f"{metric.name}{end}" for metric in METRICS if metric.kind is Kind.SUMMARY for end in ("_sum", "_count")}
    return names | {rule["record"] for rule in rules("recording")} | WRITTEN_BY_PROMETHEUS


def names_in(expr: str) -> set[str | None]:
    """The series that a query asks for."""
    return {selector.name for selector in selectors(re.sub(r"\$(\w+)", lambda match: MACROS.get(match[1], "x"), expr))}


@pytest.mark.parametrize("name", NAMES)
def test_dashboards_use_only_published_series(name: str) -> None:
    """A renamed metric empties a panel silently: it did so to everybody who used ``Hostname`` of dcgm-exporter."""
    used = {series for query in queries(load(name)) for series in names_in(query.expr)}

    assert used <= known_series()


@pytest.mark.parametrize("name", NAMES)
def test_variables_use_only_published_labels(name: str) -> None:
    """A variable over a label that the metric has not offers nothing, and everything is filtered away."""
    for variable in variables(load(name)):
        if variable["type"] != "query":
            continue
        query = variable["query"]["query"]
        if result := re.fullmatch(r"query_result\((.+)\)", query):
            assert names_in(result[1]) <= known_series()
            continue
        metric, label = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", query).groups()  # type: ignore[union-attr]  # no match fails the test
        assert label in (*BY_NAME[metric].labels, "cluster", "instance")


@pytest.mark.parametrize("rule", rules("alerts"), ids=lambda rule: f"{rule['alert']}-{rule['labels']['severity']}")
def test_alerts_open_a_dashboard_that_exists(rule: dict[str, dict[str, str]]) -> None:
    """``dashboard_url`` names one of ours, and carries only variables that it has."""
    url = rule["annotations"]["dashboard_url"]
    dashboards = {dashboard["uid"]: dashboard for dashboard in map(load, NAMES)}
    uid = re.search(r"/d/([\w-]+)", url)
    assert uid is not None

    names = {variable["name"] for variable in variables(dashboards[uid[1]])}
    assert set(re.findall(r"var-(\w+)=", url)) <= names


def test_runbooks_are_where_the_alerts_say() -> None:
    """The link beside a firing alert is the alert's own ``runbook_url``."""
    bases = {rule["annotations"]["runbook_url"].removesuffix(f"/{rule['alert']}") for rule in rules("alerts")}
    constants = {
        variable["query"] for name in NAMES for variable in variables(load(name)) if variable["name"] == "runbooks"
    }

    assert constants == bases
    assert all(urlsplit(base).scheme == "https" for base in bases)


def test_colours_change_where_the_verdicts_do() -> None:
    """A slowdown is orange from the warning ratio and red from the critical one, on every dashboard."""
    steps = [
        [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]][-2:]
        for name in ("run", "rank")
        for panel in panels(load(name))
        if panel["title"] in ("Slowest rank", "Slowdown")
    ]

    assert steps == [[DEFAULT.warning_ratio, DEFAULT.critical_ratio]] * len(steps)
    assert len(steps) == 3


def _panel(name: str, title: str) -> Json:
    return next(panel for panel in panels(load(name)) if panel["title"] == title)


@pytest.mark.parametrize("name", ["run", "rank"])
def test_every_cause_has_words(name: str) -> None:
    """A cause that the dashboards do not know would stand there as the value of a label."""
    words = {override["matcher"]["options"] for override in _panel(name, "Why")["fieldConfig"]["overrides"]}

    assert words == {*CAUSES, "none", "hung", *(("link", "transport") if name == "run" else ())}


def test_a_cause_is_red_where_the_verdict_names_it() -> None:
    """The share of the gap from which a cause is the cause."""
    steps = _panel("rank", "What explains the gap")["fieldConfig"]["defaults"]["thresholds"]["steps"]

    assert [step["value"] for step in steps] == [None, DEFAULT.cause_share]
