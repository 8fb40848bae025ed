"""A page in the format that the asker can read: OpenMetrics 1.0, or Prometheus' text format 0.0.4.

The lines are made here. prometheus_client renders any metric of anybody, and so looks at every name of every label of
every sample with regular expressions: a fifth of a scrape. Our names come from the catalogue, the samples of a family
have the same labels, none has a timestamp or an exemplar; so a line is one template for each family. A test compares
the pages with prometheus_client's byte by byte. Nor is its ``choose_encoder`` used: it ignores preferences, fails on a
version that is no number and promises whatever version was asked for.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.utils import floatToGoString

_OPENMETRICS = "application/openmetrics-text"
_OPENMETRICS_VERSIONS = frozenset({"", "0.0.1", "1.0.0"})
"""Prometheus asks for 1.0.0, before 2.40 for 0.0.1: the same text."""
_TEXT_NAMES = frozenset({"text/plain", "text/*", "*/*"})

GZIP_LEVEL = 6
"""A page of 8 ranks and 8 GPUs: level 6 takes a quarter of the time of level 9 and gives 10 % more bytes."""


def render(families: Iterable[Family], accept: str = "") -> tuple[bytes, str]:
    """Turn families into text.

    Args:
        families: in the order in which they shall stand; all samples of one have the same label names.
        accept: the ``Accept`` header; without one the answer is the text format 0.0.4.

    Returns:
        The body and its ``Content-Type``; Prometheus 3 refuses a page without the latter.
    """
    values = _LabelValues()
    if prefers_openmetrics(accept):
        lines = [line for family in families for line in (*_openmetrics_head(family), *_samples(family, values))]
        return "".join((*lines, "# EOF\n")).encode(), f"{_OPENMETRICS}; version=1.0.0; charset=utf-8"
    lines = [line for family in families for line in (*_text_head(family), *_samples(family, values))]
    return "".join(lines).encode(), "text/plain; version=0.0.4; charset=utf-8"


class _LabelValues(dict[str, str]):
    """Label values as they stand between the quotes. Most are on many lines, so each is looked at once a page."""

    def __missing__(self, value: str) -> str:
        text = self[value] = _quoted(value)
        return text


def _openmetrics_head(family: Family) -> tuple[str, str]:
    return f"# HELP {family.name} {_quoted(family.documentation)}\n", f"# TYPE {family.name} {family.type}\n"


def _text_head(family: Family) -> tuple[str, str]:
    """In this format a family is called as its samples are, and an info is a gauge."""
    name = family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
    kind = "gauge" if family.type == "info" else family.type
    return f"# HELP {name} {_escaped(family.documentation)}\n", f"# TYPE {name} {kind}\n"


def _samples(family: Family, values: _LabelValues) -> Iterator[str]:
    names = sorted(family.samples[0].labels) if family.samples else ()
    labels = "{" + ",".join(f'{name}="%s"' for name in names) + "}" if names else ""
    for sample in family.samples:
        texts = tuple([values[sample.labels[name]] for name in names])
        number = floatToGoString(sample.value)  # type: ignore[no-untyped-call]  # gives a str; has no annotations
        yield f"{sample.name}{labels % texts} {number}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")


def prefers_openmetrics(accept: str) -> bool:
    """Whether OpenMetrics stands above the text format in an ``Accept`` header."""
    openmetrics = text = 0.0
    for entry in accept.split(","):
        name, parameters = _media_type(entry)
        weight = _weight(parameters)
        if name == _OPENMETRICS and parameters.get("version", "") in _OPENMETRICS_VERSIONS:
            openmetrics = max(openmetrics, weight)
        elif name in _TEXT_NAMES:
            text = max(text, weight)
    return openmetrics > 0 and openmetrics >= text


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an ``Accept-Encoding`` header allows gzip."""
    weights = dict[str, float]()
    for entry in accept_encoding.split(","):
        name, parameters = _media_type(entry)
        weights[name] = _weight(parameters)
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def compress(page: bytes) -> bytes:
    """Gzip without a time in the header: the same page gives the same bytes."""
    return gzip.compress(page, compresslevel=GZIP_LEVEL, mtime=0)


def _media_type(entry: str) -> tuple[str, dict[str, str]]:
    name, *rest = (part.strip().lower() for part in entry.split(";"))
    parameters = dict[str, str]()
    for part in rest:
        key, _, value = part.partition("=")
        parameters[key.strip()] = value.strip().strip('"')
    return name, parameters


def _weight(parameters: dict[str, str]) -> float:
    """The ``q`` of one entry: 1 where there is none, 0 where it is no number of 0 to 1."""
    try:
        weight = float(parameters.get("q", "1"))
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0
