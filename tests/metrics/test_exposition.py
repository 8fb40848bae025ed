"""Pages that every parser reads."""

from __future__ import annotations

import gzip
import subprocess
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from facts import gpu_facts, identity, rank_facts, totals
from servers import program
from straggler.join.view import RankView
from straggler.metrics.book import MetricBook, clean
from straggler.metrics.exposition import accepts_gzip, compress, prefers_openmetrics, render
from straggler.metrics.families import add_gpus, add_ranks
from straggler.metrics.self_metrics import ExporterStatus, add_exporter
from straggler.model.gpu import GpuKey

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"

PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
    "text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)
"""The ``Accept`` headers as they are sent."""

any_text = st.text(st.characters(), max_size=20)
"""Lone surrogates, NUL, line breaks and quotes included."""


@st.composite
def pages(draw: st.DrawFn) -> MetricBook:
    """A page of one rank and one GPU whose every label is any text and every value any number."""
    number = st.floats(allow_nan=True, allow_infinity=True)
    facts = rank_facts(
        identity=identity(
            run=draw(any_text),
            node=draw(any_text),
            peer_group=draw(any_text),
            user=draw(any_text),
            framework=draw(any_text),
        ),
        totals=totals(own_seconds=draw(st.none() | number), flops=draw(st.none() | number)),
        last_step_timestamp_seconds=draw(st.none() | number),
    )
    gpu = gpu_facts(
        key=GpuKey(draw(any_text), draw(st.none() | st.integers(0, 9))),
        values={"temperature_celsius": draw(number)},
        model=draw(any_text),
        clocks_event_seconds={draw(any_text): draw(number)},
    )
    views = [RankView(rank=facts, gpu=gpu, evidence="uuid", unmatched_reason="")]
    book = MetricBook()
    add_ranks(book, views)
    add_gpus(book, [gpu])
    add_exporter(book, ExporterStatus(refused={(draw(any_text), draw(any_text)): 1}), views)
    return book


@pytest.mark.parametrize(
    ("accept", "parse"), [("text/plain", parse_text), (OPENMETRICS, parse_openmetrics)], ids=["text", "openmetrics"]
)
@given(book=pages())
def test_every_page_parses(accept: str, parse: Callable[[str], Iterable[Metric]], book: MetricBook) -> None:
    """Whatever the labels and the values are, both parsers read the page and give every sample back."""
    page, _ = render(book.collect(), accept)

    parsed = {
        (sample.name, frozenset(sample.labels.items()), sample.value)
        for family in parse(page.decode("utf-8"))
        for sample in family.samples
    }
    assert parsed == {
        (sample.name, frozenset(sample.labels.items()), sample.value)
        for family in book.collect()
        for sample in family.samples
    }


@given(any_text)
def test_clean_text_stays(text: str) -> None:
    """Cleaning changes nothing but NUL and lone surrogates, and what it gives is UTF-8."""
    cleaned = clean(text)

    assert cleaned.encode("utf-8").decode("utf-8") == cleaned
    kept = [
        (before, after)
        for before, after in zip(text, cleaned, strict=True)
        if before != "\0" and not "\ud800" <= before <= "\udfff"
    ]
    assert all(before == after for before, after in kept)
    assert "\0" not in cleaned


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/json", False),
        (PROMETHEUS_2, True),
        (PROMETHEUS_3, True),
        ("text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0;q=0.5", False),
        ("application/openmetrics-text;q=0,text/plain;q=0.1", False),
        ("application/openmetrics-text; version=7; q=1, text/plain; q=0.1", False),
        ("application/openmetrics-text; version=x", False),
        ("application/openmetrics-text; q=nan", False),
        (";;;,,=,q=", False),
    ],
)
def test_format_by_accept_header(accept: str, *, openmetrics: bool) -> None:
    """The asker's preference decides, and a version that we do not speak is not promised."""
    assert prefers_openmetrics(accept) is openmetrics


def test_content_types() -> None:
    """The type names the format and its version, without which Prometheus 3 refuses the page."""
    assert render([], "")[1] == "text/plain; version=0.0.4; charset=utf-8"
    assert render([], OPENMETRICS)[1] == "application/openmetrics-text; version=1.0.0; charset=utf-8"


def test_openmetrics_ends_and_has_no_created() -> None:
    """An OpenMetrics page ends in EOF and carries no invented creation times."""
    book = MetricBook()
    add_ranks(book, [RankView(rank=rank_facts(), gpu=None, evidence="", unmatched_reason="no_evidence")])
    page = render(book.collect(), OPENMETRICS)[0].decode()

    assert page.endswith("# EOF\n")
    assert "_created" not in page
    assert "# TYPE training_rank info\n" in page
    assert "# TYPE training_own_seconds counter\n" in page


@pytest.mark.parametrize(
    ("header", "accepted"),
    [("", False), ("gzip", True), ("deflate, gzip;q=0.5", True), ("gzip;q=0", False), ("*", True), ("*;q=0", False)],
)
def test_gzip_by_accept_encoding(header: str, *, accepted: bool) -> None:
    """Compression only for those who ask for it."""
    assert accepts_gzip(header) is accepted


def test_compress_is_reproducible() -> None:
    """The same page gives the same bytes, and they unpack to it."""
    page = b"# EOF\n" * 1000

    assert gzip.decompress(compress(page)) == page
    assert compress(page) == compress(page)


@pytest.mark.servers
def test_promtool_accepts_names_and_types(everything: MetricBook) -> None:
    """Prometheus' own linter has nothing to say about a page with every metric of the catalogue."""
    page, _ = render(everything.collect())

    result = subprocess.run([program("promtool"), "check", "metrics"], input=page, capture_output=True, check=False)

    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


@pytest.mark.servers
@pytest.mark.parametrize("text", ["\r\n\t", "\x00\x01\x1f\x7f", '"\\', "\u2028\x85\ufeff", "\ud800", "🚂", "{}=,#"])
def test_promtool_reads_any_label_text(text: str) -> None:
    """Control characters, separators and broken text in labels do not break Prometheus' parser."""
    book = MetricBook()
    add_ranks(
        book,
        [RankView(rank=rank_facts(identity=identity(run=text)), gpu=None, evidence="", unmatched_reason="no_evidence")],
    )
    page, _ = render(book.collect())

    result = subprocess.run([program("promtool"), "check", "metrics"], input=page, capture_output=True, check=False)

    assert (result.returncode, result.stderr) == (0, b"")
