"""What Grafana makes of a query before it sends it: variables and intervals, by its own rules."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from dashboards.files import Json, Query, variables
from dashboards.server import Prometheus

SCRAPE_SECONDS = 30
"""The data source's scrape interval."""

_PIXELS = 1600
_NICE_SECONDS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_NAME = re.compile(r"\$\{(\w+)(?::\w+)?\}|\$(\w+)")
_QUERY_RESULT = re.compile(r"query_result\((.+)\)", re.DOTALL)
_LABEL_VALUES = re.compile(r"label_values\((?:(.+),\s*)?(\w+)\)", re.DOTALL)


@dataclass
class Opened:
    """A dashboard in a browser: its time range, and a choice for each variable."""

    dashboard: Json
    prometheus: Prometheus
    begins: float
    ends: float
    chosen: dict[str, str] = field(default_factory=dict)
    """Variables by name; what is not in it is All where that is allowed, else the first option."""
    values: dict[str, str] = field(default_factory=dict)
    """What stands for each variable in a query."""

    def __post_init__(self) -> None:
        """Resolve the variables in order."""
        for variable in variables(self.dashboard):
            self.values[variable["name"]] = self._value(variable)

    def _value(self, variable: Json) -> str:
        name, kind = variable["name"], variable["type"]
        if name in self.chosen:
            return _escaped(self.chosen[name]) if variable.get("multi") else self.chosen[name]
        if kind == "datasource":
            return "prometheus"
        if kind == "constant":
            return str(variable["query"])
        if kind == "custom":
            return str(variable["query"].split(",")[0])
        if variable["includeAll"]:
            return str(variable["allValue"])
        options = self.options(variable)
        return options[0] if options else ""

    def options(self, variable: Json) -> list[str]:
        """What a query variable offers.

        Raises:
            ValueError: its query is not understood, or Prometheus refuses it.
        """
        query = self.substitute(variable["query"]["query"], self.macros(SCRAPE_SECONDS))
        if result := _QUERY_RESULT.fullmatch(query):
            answer = self.prometheus.get("query", query=result[1], time=self.ends)["result"]
            texts = [_text(series) for series in answer]
            pattern = variable["regex"].strip("/")
            return [found[1] for text in texts if (found := re.search(pattern, text))]
        match = _LABEL_VALUES.fullmatch(query)
        if match is None:
            raise ValueError(f"{variable['name']}: a query of an unknown kind: {query}")
        scope = {"match[]": match[1]} if match[1] else {}
        values = self.prometheus.get(f"label/{match[2]}/values", start=self.begins, end=self.ends, **scope)
        return sorted(values, key=lambda value: (len(value), value) if variable["sort"] == 3 else (0, value))

    def substitute(self, text: str, macros: dict[str, str]) -> str:
        """Replace variables and macros.

        Raises:
            ValueError: there is one that nobody defines.
        """

        def value(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            if name.isdigit():  # "$1" of label_replace is not Grafana's
                return match[0]
            if name in macros:
                return macros[name]
            if name not in self.values:
                raise ValueError(f"nobody defines ${name}")
            return self.values[name]

        return _NAME.sub(value, text)

    def ask(self, query: Query) -> tuple[str, list[Json]]:
        """Send a query as Grafana would.

        Returns:
            What was sent, and the series that came back.
        """
        step = self.step_seconds(query)
        expr = self.substitute(query.expr, self.macros(step))
        if query.instant:
            data = self.prometheus.get("query", query=expr, time=self.ends)
        else:
            begins, ends = (int(at // step * step) for at in (self.begins, self.ends))
            data = self.prometheus.get("query_range", query=expr, start=begins, end=ends, step=step)
        return expr, data["result"]

    def step_seconds(self, query: Query) -> int:
        """From the width of the panel, never below the scrape interval."""
        wanted = (self.ends - self.begins) / (_PIXELS * query.width / 24)
        nice = next(candidate for candidate in _NICE_SECONDS if candidate >= wanted * 0.75)
        return max(SCRAPE_SECONDS, nice)

    def macros(self, step: int) -> dict[str, str]:
        """Grafana's own variables for a step."""
        return {
            "__interval": f"{step}s",
            "__rate_interval": f"{max(step + SCRAPE_SECONDS, 4 * SCRAPE_SECONDS)}s",
            "__range": f"{self.ends - self.begins:.0f}s",
        }


def _text(series: Json) -> str:
    """A series as ``query_result`` writes it: ``name{label="value"} value time``."""
    labels = ",".join(f'{key}="{value}"' for key, value in series["metric"].items() if key != "__name__")
    return f"{series['metric'].get('__name__', '')}{{{labels}}} {series['value'][1]} {series['value'][0] * 1000:.0f}"


def _escaped(value: str) -> str:
    """A single value of a variable with several goes into a regular expression."""
    return re.sub(r"([\\^$.*+?()\[\]{}|])", r"\\\\\1", value)
