"""Facts to series."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from prometheus_client.metrics_core import Metric

from conftest import Expected
from facts import gpu_facts, identity, rank_facts, recent, totals, view
from straggler.join.view import RankView
from straggler.metrics.book import MetricBook
from straggler.metrics.exposition import render
from straggler.metrics.families import add_gpus, add_ranks
from straggler.metrics.self_metrics import ExporterStatus, SourceStatus, add_exporter
from straggler.model.gpu import GpuKey
from straggler.model.rank import RankState
from straggler.model.reading import SourceState


def _book(*views: RankView) -> MetricBook:
    book = MetricBook()
    add_ranks(book, views)
    return book


def _values(book: MetricBook, name: str) -> dict[tuple[str, ...], float]:
    """Label values, in the order in which they were added, to value."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in book.collect()
        for sample in family.samples
        if sample.name == name
    }


def _family(book: MetricBook, name: str) -> Metric | None:
    return next((family for family in book.collect() if family.name == name), None)


def test_whole_page(expected: Expected) -> None:
    """Two ranks, one on a GPU and one gone, give exactly this page."""
    book = _book(view(0, gpu=gpu_facts(0)), view(1, state=RankState.CRASHED, recent=None))
    add_gpus(book, [gpu_facts(0), gpu_facts(1, key=GpuKey("GPU-aa", 3), mig_profile="1g.10gb")])

    page, _ = render(book.collect())

    expected.check("metrics/two_ranks.prom", page.decode())
    assert not book.refused


def test_absent_own_time_is_no_series() -> None:
    """A rank whose own time is not measured has no own series at all: neither the step nor zero."""
    book = _book(
        view(
            totals=totals(own_seconds=None, wait_seconds=None),
            recent=recent(own=None),
            own_reason="gpu_clock_missing",
        )
    )

    names = {sample.name for family in book.collect() for sample in family.samples}
    assert not {name for name in names if "own" in name or "wait" in name}
    assert _values(book, "training_recent_step_seconds") == {("r", "0", "0", "n1"): 0.044}


def test_absent_gpu_value_is_no_series() -> None:
    """A GPU value that DCGM did not report gives no series, while a zero gives a zero."""
    book = _book(view(gpu=gpu_facts(values={"utilization_ratio": 0.0})))

    assert _values(book, "training_gpu_utilization_ratio") == {("r", "0", "0", "n1"): 0.0}
    assert _family(book, "training_gpu_sm_active_ratio") is None


def test_before_the_first_step() -> None:
    """A rank without a step has state, info and world size, and no counter that claims a zero."""
    book = _book(view(totals=None, recent=None, step=None, last_step_timestamp_seconds=None))

    assert {family.name for family in book.collect()} == {
        "training_rank",
        "training_rank_phase",
        "training_rank_state",
        "training_world_size",
    }


@pytest.mark.parametrize("state", [RankState.CRASHED, RankState.FINISHED])
def test_gone_rank_keeps_counters_and_state(state: RankState) -> None:
    """When a rank is gone its gauges go at once, and its counters, state and info stay."""
    alive = {family.name for family in _book(view(gpu=gpu_facts())).collect()}
    gone = _book(view(gpu=gpu_facts(), state=state))

    left = {family.name: family.type for family in gone.collect()}
    assert set(left.values()) == {"counter", "summary", "info", "gauge"}
    assert [name for name, kind in left.items() if kind == "gauge"] == ["training_rank_state"]
    assert set(left) < alive
    assert _values(gone, "training_rank_state")["r", "0", "0", "n1", state.value] == 1


def test_exactly_one_state_is_one() -> None:
    """Every state has a series and exactly one of them is 1, so a rule can compare with 0 or 1."""
    values = _values(_book(view(state=RankState.HUNG)), "training_rank_state")

    assert {labels[-1]: value for labels, value in values.items()} == {
        "running": 0,
        "hung": 1,
        "crashed": 0,
        "finished": 0,
    }


def test_excluded_phase() -> None:
    """A rank in a checkpoint says so."""
    values = _values(_book(view(excluded_phase="checkpoint")), "training_rank_phase")

    assert {labels[-1]: value for labels, value in values.items()} == {"checkpoint": 1, "eval": 0}


def test_info_prefers_the_joined_gpu() -> None:
    """The info shows the GPU that was found, in the exporter's spelling, and how it was found."""
    facts = rank_facts(identity=identity(gpu_uuid="", gpu=7, pci_bus_id="17:00.0", pod="trainer-0"))
    gpu = gpu_facts(3, key=GpuKey("GPU-ab", 2), pod="other", namespace="team")
    book = _book(RankView(rank=facts, gpu=gpu, evidence="pci_bus_id", unmatched_reason=""))

    family = _family(book, "training_rank")
    assert family is not None
    labels = family.samples[0].labels
    assert labels["UUID"] == "GPU-ab"
    assert labels["GPU_I_ID"] == "2"
    assert labels["gpu"] == "3"
    assert labels["pci_bus_id"] == "00000000:13:00.0"
    assert labels["evidence"] == "pci_bus_id"
    assert labels["rank_pod"] == "trainer-0"
    assert labels["rank_namespace"] == "team"


def test_info_without_a_gpu_says_what_the_rank_knows() -> None:
    """Without a join the info carries what the process itself named."""
    family = _family(_book(view(identity=identity(gpu_uuid="GPU-own", gpu=5))), "training_rank")

    assert family is not None
    labels = family.samples[0].labels
    assert (labels["UUID"], labels["gpu"], labels["evidence"]) == ("GPU-own", "5", "")


def test_one_bad_sample_costs_that_sample() -> None:
    """A value that is no number, a falling counter, a series twice and a name of nowhere are refused, each counted."""
    book = MetricBook()
    bad = gpu_facts(values={"temperature_celsius": math.nan, "energy_joules_total": -1.0, "colour": 1.0})
    add_gpus(book, [bad, replace(bad, values={"power_watts": 1.0}, clocks_event_seconds={})])

    assert book.refused == {"not_finite": 1, "negative_counter": 1, "unknown_name": 1, "duplicate_series": 1}
    assert _values(book, "gpu_power_watts") == {(bad.key.uuid, ""): 1.0}


def test_exporter_counts_living_ranks_only() -> None:
    """Ranks without a GPU or own time count while they live; a crashed one is not a blind spot."""
    views = [
        view(0, gpu=gpu_facts()),
        view(1, own_reason="no_wait_phase"),
        view(2, state=RankState.CRASHED, own_reason="no_wait_phase"),
    ]
    book = MetricBook()
    add_exporter(book, ExporterStatus(), views)

    assert _values(book, "straggler_exporter_ranks") == {("r",): 3}
    assert _values(book, "straggler_exporter_ranks_without_gpu") == {("r", "no_evidence"): 1}
    assert _values(book, "straggler_exporter_ranks_without_own_time") == {("r", "no_wait_phase"): 1}


def test_exporter_status(expected: Expected) -> None:
    """The exporter's own series, with a source that is broken and one that is not there."""
    book = MetricBook()
    status = ExporterStatus(
        sources=(
            SourceStatus(
                source="rings",
                state=SourceState.OK,
                duration_seconds=0.002,
                age_seconds=0.0,
                records_read=1234,
                records_missed=0,
            ),
            SourceStatus(source="dcgm", state=SourceState.FAILED, age_seconds=31.5, blind={"sm_active_absent": 8}),
            SourceStatus(source="push", state=SourceState.ABSENT),
        ),
        refused={("dcgm", "bad_value"): 2},
        ranks_refused={"duplicate_rank": 1},
        scrape_seconds=0.25,
        rings_removed=3,
        hang_after_seconds=120,
    )
    add_exporter(book, status, ())

    lines = render(book.collect())[0].decode().splitlines(keepends=True)
    expected.check("metrics/exporter.prom", "".join(line for line in lines if "build_info{" not in line))
