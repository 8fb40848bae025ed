"""What promtool does not check: that rules cannot mix runs, break on duplicates, or flap."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import promql_parser as pp
import pytest
import yaml

from rulebook import Rule, alerts, groups, nodes, rules, selectors
from straggler.detect.verdict import VERDICTS
from straggler.metrics.catalogue import BY_NAME, METRICS, Kind

ROOT = Path(__file__).parents[2]
RUNBOOKS = ROOT / "docs" / "runbooks"
TESTS = ROOT / "tests" / "rules"

RECORDED = {rule.name for rule in rules() if not rule.is_alert}
SCRAPED = {
    name
    for metric in METRICS
    for name in ((f"{metric.name}_sum", f"{metric.name}_count") if metric.kind is Kind.SUMMARY else (metric.name,))
}
GIVEN = {"run:training_tokens:baseline_per_gpu_second"}
"""What users record themselves; ``rules/examples`` shows how."""
ADDED = {"cluster", "job", "instance"}
"""Labels that the target brings."""
ANNOTATIONS = {"summary", "description", "impact", "cause", "next_step", "runbook_url", "dashboard_url"}
HEADINGS = [
    "Meaning",
    "Impact",
    "First three commands",
    "How to confirm",
    "How to mitigate",
    "False positives",
]
PORTABLE = {"rate", "changes", "max_over_time", "avg_over_time", "quantile_over_time", "sum_over_time", "label_replace"}
"""Functions that Prometheus 2.42 and VictoriaMetrics both know and answer alike where the rules use them."""
MOST_POINTS = 30_000
"""``-search.maxPointsPerTimeseries`` of VictoriaMetrics."""
IDEMPOTENT = {"max", "min"}
"""Aggregations that do not care whether a page was scraped twice."""
PER_NODE = {"cluster", "rank_node"}
"""What joins a node's ports with the runs that train there: they have no run, and serve all that are."""
PER_GPU = {"cluster", "UUID"}
"""What joins a GPU with the rank that is on it: it has no run either."""
COUNTS_RUNS = {"run_node:training_rank_state:sole"}
"""Asks how many runs a node has, so it must not tell them apart."""
COMPARISONS = {">", "<", ">=", "<=", "==", "!="}
RANKING = {"topk", "bottomk", "limitk", "limit_ratio"}

every_rule = pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
every_alert = pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule.id)


@cache
def cases() -> tuple[dict[str, Any], ...]:
    """All unit tests of the rules."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    files = sorted(TESTS.glob("*.yaml"))
    return tuple(case for file in files for case in yaml.load(file.read_text("utf-8"), loader)["tests"])


@cache
def texts() -> tuple[tuple[str, str, str], ...]:
    """Name, severity and title of each alert that a test reads word by word."""
    return tuple(
        (check["alertname"], alert["exp_labels"]["severity"], alert["exp_annotations"]["summary"])
        for case in cases()
        for check in case.get("alert_rule_test", [])
        for alert in check["exp_alerts"]
    )


def has_run(selector: pp.VectorSelector) -> bool:
    """Whether the series belong to a run."""
    name = base(str(selector.name))
    return name.startswith("run") or (name in BY_NAME and "run" in BY_NAME[name].labels)


def base(name: str) -> str:
    """The catalogue's name of a series: that of a summary has no suffix."""
    return name if name in BY_NAME else re.sub(r"_(sum|count)$", "", name)


def keeps_apart(node: Any, labels: set[str]) -> bool:
    """Whether these labels keep apart what is not one."""
    names = [str(selector.name) for selector, _ in selectors(node)]
    if any("network_" in name for name in names) and labels >= PER_NODE:
        return True
    if any(name.startswith("gpu_") for name in names) and labels >= PER_GPU:
        return True
    wanted = {"cluster", "run"} if any(has_run(selector) for selector, _ in selectors(node)) else {"cluster"}
    return labels >= wanted


@every_rule
def test_runs_of_two_clusters_never_mix(rule: Rule) -> None:
    """Each ``by`` and each ``on`` has cluster and run; nothing is matched or kept by accident."""
    for node, _ in nodes(rule.tree):
        if isinstance(node, pp.AggregateExpr):
            assert node.modifier is not None, f"{node.op} over everything"
            assert node.modifier.type == pp.AggModifierType.By
            assert keeps_apart(node, set(node.modifier.labels)) or rule.id in COUNTS_RUNS
        if isinstance(node, pp.BinaryExpr) and selectors(node.lhs) and selectors(node.rhs) and str(node.op) != "or":
            assert node.modifier is not None, f"no on() for {node.op}"
            assert node.modifier.matching is not None, f"no on() for {node.op}"
            assert node.modifier.matching.type == pp.LabelModifierType.Include
            assert keeps_apart(node, set(node.modifier.matching.labels)) or rule.id in COUNTS_RUNS


@every_rule
def test_a_page_scraped_twice_counts_once(rule: Rule) -> None:
    """Scraped series of ranks are taken by ``max by`` or ``min by`` before anything counts, adds or keeps them.

    The right side of ``and`` and ``unless`` only says whether there is one: two are no more than one.
    """
    for selector, above in selectors(rule.tree):
        if str(selector.name).startswith("training_"):
            way = [
                str(node.op) if isinstance(node, pp.AggregateExpr) else f"{node.op} {side}"
                for node, side in above
                if isinstance(node, pp.AggregateExpr | pp.BinaryExpr)
            ]
            met = [step for step in reversed(way) if step in {"and rhs", "unless rhs"} or " " not in step]
            assert met[:1], f"{selector.name} is kept as scraped"
            assert met[0].split()[0] in {*IDEMPOTENT, "and", "unless"}, f"{selector.name} goes into {met[0]}"


def compares(node: Any) -> bool:
    """Whether series that fail a comparison may come out of this node, as VictoriaMetrics has it: without a value."""
    if isinstance(node, pp.ParenExpr):
        return compares(node.expr)
    if not isinstance(node, pp.BinaryExpr):
        return False
    op = str(node.op)
    return op in COMPARISONS or compares(node.lhs) or (op not in {"and", "unless"} and compares(node.rhs))


@every_rule
def test_nothing_is_chosen_by_a_comparison(rule: Rule) -> None:
    """Left of ``or on`` stands no comparison.

    To VictoriaMetrics a series that fails one is still there: it takes the place, and the value, of the right one.
    """
    for node, _ in nodes(rule.tree):
        if isinstance(node, pp.BinaryExpr) and str(node.op) == "or":
            chooses = node.modifier is not None and node.modifier.matching is not None
            assert not (chooses and compares(node.lhs)), f"record the left side of {node.op} first"


@every_rule
def test_nothing_is_ranked(rule: Rule) -> None:
    """An offender that changes between evaluations starts ``for`` anew each time, and the alert never fires."""
    used = {str(node.op) for node, _ in nodes(rule.tree) if isinstance(node, pp.AggregateExpr)}

    assert not used & RANKING


@every_rule
def test_metrics_and_labels_are_those_of_the_catalogue(rule: Rule) -> None:
    """A misspelt metric or label is no error to Prometheus: it is an alert that never fires."""
    for selector, _ in selectors(rule.tree):
        name = str(selector.name)
        assert name in SCRAPED | RECORDED | GIVEN | {"up"}
        if name in SCRAPED:
            assert {matcher.name for matcher in selector.matchers.matchers} <= {*BY_NAME[base(name)].labels, *ADDED}


@every_rule
def test_subqueries_are_small_enough_for_every_server(rule: Rule) -> None:
    """A point a minute over 30 days was refused by VictoriaMetrics, whose default is 30,000 points."""
    for node, _ in nodes(rule.tree):
        if isinstance(node, pp.SubqueryExpr):
            span, step = getattr(node, "range", None), getattr(node, "step", None)
            assert isinstance(span, timedelta)
            assert isinstance(step, timedelta), "without one the server chooses"
            assert span / step <= MOST_POINTS


@every_rule
def test_functions_exist_wherever_the_rules_run(rule: Rule) -> None:
    """No function of one server only, none that needs a feature flag."""
    assert {node.func.name for node, _ in nodes(rule.tree) if isinstance(node, pp.Call)} <= PORTABLE


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_recorded_names_tell_their_level(name: str) -> None:
    """``level:metric:operation``, the level being what the series are about."""
    measured = r"((run|run_rank|run_node):training|(run_port|port|node):network)_[a-z_]+:[a-z_]+"
    assert name == "run_rank:straggler_cause" or re.fullmatch(measured, name)


def test_no_series_is_recorded_twice() -> None:
    """Two rules that record one name overwrite each other."""
    assert not [
        name for name, count in Counter(rule.name for rule in rules() if not rule.is_alert).items() if count > 1
    ]


def test_groups_suit_every_ruler() -> None:
    """Mimir takes 20 rules a group; Prometheus 2.42 refuses keys that came later; group names are ours alone."""
    for _, group in groups():
        assert len(group["rules"]) <= 20
        assert set(group) <= {"name", "interval", "rules"}
        assert group["name"].startswith("straggler-")
    assert len({group["name"] for _, group in groups()}) == len(groups())


@every_alert
def test_an_alert_says_all_that_on_call_asks(rule: Rule) -> None:
    """Severity, owner, verdict; what, where, impact, cause, next step, runbook and dashboard."""
    labels, texts = rule.raw["labels"], rule.raw["annotations"]

    assert set(labels) == {"severity", "team", "verdict"}
    assert labels["severity"] in {"critical", "warning", "info"}
    assert labels["team"] in {"infrastructure", "training", "monitoring"}
    assert labels["verdict"] in VERDICTS
    assert set(texts) == ANNOTATIONS
    assert texts["runbook_url"].endswith(f"/{rule.name}")


@every_alert
def test_an_alert_compares(rule: Rule) -> None:
    """An expression without a comparison fires on whatever exists."""
    operators = {str(node.op) for node, _ in nodes(rule.tree) if isinstance(node, pp.BinaryExpr)}

    assert operators & {">", "<", ">=", "<=", "=="}


@every_alert
def test_texts_ask_for_series_that_exist(rule: Rule) -> None:
    """A query in a text that finds nothing leaves a hole in the middle of a sentence."""
    asked = set()
    for text in rule.raw["annotations"].values():
        asked |= set(
            re.findall(r"(?:\b(?:run|port|node)(?:_[a-z]+)?:[a-z_:]+|\b(?:training|straggler_exporter)_[a-z_]+)", text)
        )

    assert {name for name in asked if name not in SCRAPED | RECORDED} == set()


@every_alert
def test_the_dashboard_of_an_alert_exists(rule: Rule) -> None:
    """The link opens a dashboard that is shipped, with variables that it has."""
    link = rule.raw["annotations"]["dashboard_url"]
    found = re.match(r"https://grafana\.example/d/([a-z-]+)\?", re.sub(r"{{.*?}}", "", link) + "?")
    assert found is not None
    boards = {
        board["uid"]: board for file in (ROOT / "dashboards").glob("*.json") for board in [json.loads(file.read_text())]
    }

    assert found[1] in boards
    variables = {variable["name"] for variable in boards[found[1]]["templating"]["list"]}
    assert set(re.findall(r"var-([a-z_]+)=", link)) <= variables


@every_alert
def test_an_alert_has_a_runbook(rule: Rule) -> None:
    """With these headings, in this order, and three commands."""
    page = (RUNBOOKS / f"{rule.name}.md").read_text("utf-8")
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)

    assert page.startswith(f"# {rule.name}\n")
    assert parts[1::2] == HEADINGS
    commands = parts[parts.index("First three commands") + 1]
    assert len(re.findall(r"^\d\. ", commands, flags=re.MULTILINE)) == 3


def test_no_runbook_is_left_over() -> None:
    """A runbook belongs to an alert."""
    assert {page.stem for page in RUNBOOKS.glob("*.md")} == {rule.name for rule in alerts()}


@every_alert
def test_an_alert_has_a_firing_and_a_silent_test(rule: Rule) -> None:
    """Fires where it should, in each severity; and somewhere near that, it is shown not to."""
    fired, silent = set(), set()
    for case in cases():
        for check in case.get("promql_expr_test", []):
            for sample in check["exp_samples"]:
                labels = dict(re.findall(r'(\w+)="([^"]*)"', sample.get("labels", "")))
                fired.add((labels.get("alertname"), labels.get("severity")))
        silent |= {check["alertname"] for check in case.get("alert_rule_test", []) if not check["exp_alerts"]}

    assert (rule.name, rule.severity) in fired
    assert rule.name in silent


def test_titles_fit_a_phone() -> None:
    """A title is at most 80 characters, as rendered for a run with a short name."""
    assert [title for _, _, title in texts() if len(title) > 80] == []


@every_alert
def test_every_text_is_read_by_a_test(rule: Rule) -> None:
    """Somewhere the whole alert stands as on-call reads it, in each severity."""
    assert (rule.name, rule.severity) in {(name, severity) for name, severity, _ in texts()}
