"""Every query and every selector against a real Prometheus with a past (``server.py``)."""

from __future__ import annotations

import math
import re

import pytest

from dashboards.conftest import MINUTES
from dashboards.files import Json, Query, load, queries, variables
from dashboards.grafana import Opened
from dashboards.history import END
from dashboards.promql import selectors
from dashboards.server import Prometheus

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(300)]

STRAGGLER = {"run": "aurora-13b", "rank": "5"}
HEALTHY = {"run": "borealis-7b", "rank": "0"}
CROWD = {"run": "crowd-30b", "rank": "200"}
PIPELINE = {"run": "dorado-34b", "rank": "21"}
CABLE = {"run": "cable-1b", "rank": "2"}
CRASHED = {"run": "crash-1b"}

HUNG, BEHIND = "Slowest rank [B]", "Slowest rank [C]"
BAD_LINK, SPEED_LEFT = "Links in trouble [A]", "Links in trouble [B]"

ONLY_IN_TROUBLE = (
    HUNG,
    BEHIND,
    "Links in trouble",
    "Firing alerts",
    "Slowest ranks now [E]",
    "Slowest ranks now [F]",
    "What explains the gap",
    "NCCL of this rank and of the compared one [C]",
    "annotation Alerts",
    "annotation Restarts",
    "Sources in trouble",
    "What cannot be seen now",
)
"""Nothing to show is the good answer here."""
NOT_IN_THIS_PAST = {
    "fleet": (),
    "run": ("crashed", "hung", "arrivals:behind", "over_sockets", "gdr_ratio:lacking"),
    "rank": ("hung",),
    "exporter": ('severity="critical"',),
}
"""What did not happen to what is looked at; the Fleet sees all of it."""
MOST_SERIES = 60
"""More lines than that in one panel are a carpet; the default of the ``ranks`` variable is 48."""


def opened(name: str, prometheus: Prometheus, chosen: dict[str, str]) -> Opened:
    """A dashboard over the last hour of the past."""
    dashboard = load(name)
    names = {variable["name"] for variable in variables(dashboard)}
    mine = {key: value for key, value in chosen.items() if key in names}
    return Opened(dashboard, prometheus, END - MINUTES * 60, END, mine)


def answer(view: Opened, query: Query) -> list[Json]:
    """The series with at least one number in them."""
    _, result = view.ask(query)
    return [series for series in result if any(not math.isnan(value) for value in numbers(series))]


def numbers(series: Json) -> list[float]:
    """All values of a series."""
    return [float(value) for _, value in series.get("values") or [series["value"]]]


@pytest.mark.parametrize("name", ["fleet", "run", "rank", "exporter"])
def test_every_query_returns_data(name: str, prometheus: Prometheus) -> None:
    """With a straggler in the chosen run, no panel and no annotation is empty."""
    chosen = {} if name == "fleet" else STRAGGLER
    view = opened(name, prometheus, chosen)
    empty = [query.where for query in queries(view.dashboard) if not answer(view, query)]

    assert [where for where in empty if where not in (HUNG, BEHIND, BAD_LINK, SPEED_LEFT)] == []


@pytest.mark.parametrize("name", ["fleet", "run", "rank", "exporter"])
def test_every_selector_matches(name: str, prometheus: Prometheus) -> None:
    """What hides behind ``or vector(0)`` or a comparison exists, too: no metric or label is misspelt."""
    view = opened(name, prometheus, {} if name == "fleet" else STRAGGLER)
    dead = []
    for query in queries(view.dashboard):
        expr = view.substitute(query.expr, view.macros(view.step_seconds(query)))
        for selector in selectors(expr):
            text = re.sub(r" (offset|@) .*", "", selector.prettify())
            if not prometheus.get("series", **{"match[]": text}, start=view.begins, end=view.ends):
                dead.append((query.where, text))

    assert [(where, text) for where, text in dead if not any(word in text for word in NOT_IN_THIS_PAST[name])] == []


@pytest.mark.parametrize("name", ["fleet", "run", "rank", "exporter"])
@pytest.mark.parametrize("chosen", [HEALTHY, CROWD, PIPELINE], ids=["healthy", "crowd", "pipeline"])
def test_other_runs_are_seen_too(name: str, chosen: dict[str, str], prometheus: Prometheus) -> None:
    """A healthy run without a ``cluster`` label, one of 320 ranks, one of four stages: only alarms may be empty."""
    view = opened(name, prometheus, chosen)
    empty = [query.where for query in queries(view.dashboard) if not answer(view, query)]

    assert [where for where in empty if not where.startswith(ONLY_IN_TROUBLE)] == []


@pytest.mark.parametrize("name", ["fleet", "run", "rank", "exporter"])
def test_first_options_fit_together(name: str, prometheus: Prometheus) -> None:
    """Each variable offers something, and its first option leaves the next variable something."""
    view = opened(name, prometheus, {})
    for variable in variables(view.dashboard):
        if variable["type"] == "query":
            options = view.options(variable)
            assert options, variable["name"]
            view.values[variable["name"]] = options[0]


@pytest.mark.parametrize("name", ["fleet", "run", "rank", "exporter"])
def test_legends_name_what_is_there(name: str, prometheus: Prometheus) -> None:
    """No ``{{label}}`` of a legend is missing from a series: the line would have no name."""
    view = opened(name, prometheus, {} if name == "fleet" else STRAGGLER)
    nameless = [
        (query.where, label)
        for query in queries(view.dashboard)
        for label in re.findall(r"\{\{\s*(\w+)\s*\}\}", query.legend)
        if label not in ("rank", "rank_node") or not query.where.startswith("annotation")
        for series in answer(view, query)
        if label not in series["metric"]
    ]

    assert nameless == []


@pytest.mark.parametrize("name", ["fleet", "run", "rank", "exporter"])
def test_a_crowd_is_cut_down(name: str, prometheus: Prometheus) -> None:
    """320 ranks do not become 320 lines, rows or bars."""
    view = opened(name, prometheus, CROWD)
    sizes = {query.where: len(view.ask(query)[1]) for query in queries(view.dashboard)}

    assert {where: size for where, size in sizes.items() if size > MOST_SERIES} == {}


def test_the_straggler_comes_first(prometheus: Prometheus) -> None:
    """The first panel of the Run dashboard names the slow rank: in a small run, in a crowd, beside a heavy stage."""
    for chosen in (STRAGGLER, CROWD, PIPELINE):
        view = opened("run", prometheus, chosen)
        first = next(queries(view.dashboard))
        (series,) = answer(view, first)

        assert series["metric"]["rank"] == chosen["rank"]
        assert numbers(series)[0] > 1.20


@pytest.mark.parametrize("name", ["run", "rank"])
@pytest.mark.parametrize(
    ("chosen", "cause"),
    [(STRAGGLER, "thermal"), (PIPELINE, "host_cpu"), (HEALTHY, "none"), (CRASHED, "hung")],
    ids=["straggler", "pipeline", "healthy", "hung"],
)
def test_the_cause_stands_beside_it(name: str, chosen: dict[str, str], cause: str, prometheus: Prometheus) -> None:
    """Why a rank is slow is said at the top; nobody is blamed where none is, or praised while the run hangs."""
    view = opened(name, prometheus, chosen)
    why = next(query for query in queries(view.dashboard) if query.where.startswith("Why"))

    assert [series["metric"]["cause"] for series in answer(view, why)] == [cause]


def test_a_bad_cable_stands_out(prometheus: Prometheus) -> None:
    """One port of the node has a quarter of the speed that is expected of it, and symbol errors, and that alerts."""
    view = opened("rank", prometheus, CABLE)
    said = {query.where: answer(view, query) for query in queries(view.dashboard) if "annotation" not in query.where}

    def by_device(letter: str) -> dict[str, float]:
        return {series["metric"]["device"]: numbers(series)[0] for series in said[f"RDMA ports of its node [{letter}]"]}

    assert by_device("B") == {"mlx5_0": 1, "mlx5_1": 1, "mlx5_2": 0.25, "mlx5_3": 1}
    assert {device for device, errors in by_device("F").items() if errors} == {"mlx5_2"}
    (alert,) = said["Firing alerts [A]"]
    assert (alert["metric"]["alertname"], alert["metric"]["rank_node"]) == ("TrainingLinkDegraded", "cable-gpu-01")


def test_a_bad_cable_is_on_the_runs_page_too(prometheus: Prometheus) -> None:
    """Nobody is slow, all wait: the Run dashboard says which port of which node they wait for."""
    view = opened("run", prometheus, CABLE)
    said = {query.where: answer(view, query) for query in queries(view.dashboard)}
    labels = ("rank_node", "device", "fault")
    bad = {tuple(series["metric"][label] for label in labels) for series in said[BAD_LINK]}

    assert bad == {("cable-gpu-01", "mlx5_2", "rate"), ("cable-gpu-01", "mlx5_2", "errors")}
    assert [numbers(series)[0] for series in said[SPEED_LEFT]] == [0.25]
    assert said["Why [A]"][0]["metric"]["cause"] == "link"


def test_a_hang_is_no_good_news(prometheus: Prometheus) -> None:
    """While a run hangs, its first panel counts hung ranks and names who is behind, and praises nobody; all is lost."""
    view = opened("run", prometheus, CRASHED)
    said = {query.where: answer(view, query) for query in queries(view.dashboard)}

    assert said["Slowest rank [A]"] == []
    assert numbers(said[HUNG][0]) == [7]
    assert [series["metric"]["rank"] for series in said[BEHIND]] == ["7"]
    assert numbers(said["Share lost [A]"][0]) == [1]


def test_the_chosen_ranks_hold_the_straggler(prometheus: Prometheus) -> None:
    """Of 320 ranks 48 are drawn over time, and the slow one is among them."""
    view = opened("run", prometheus, CROWD)
    query = next(query for query in queries(view.dashboard) if query.where.startswith("Slowdown, rank by time"))
    drawn = answer(view, query)

    assert len(drawn) == 48
    assert CROWD["rank"] in {series["metric"]["rank"] for series in drawn}


def test_ranks_are_in_order(prometheus: Prometheus) -> None:
    """Lines of the heatmap are sorted by number: 2 before 10."""
    view = opened("run", prometheus, STRAGGLER)
    query = next(query for query in queries(view.dashboard) if query.where.startswith("Slowdown, rank by time"))
    ranks = [int(series["metric"]["rank"]) for series in answer(view, query)]

    assert ranks == sorted(ranks)
    assert len(ranks) == 16
