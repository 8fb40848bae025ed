"""The rank's own page and the sidecar's say the same, though neither may load the other's code."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from straggler.detect.policy import DEFAULT
from straggler.hook import page
from straggler.join.view import RankView
from straggler.metrics import catalogue
from straggler.metrics.book import MetricBook
from straggler.metrics.exposition import render
from straggler.metrics.families import add_ranks
from straggler.model.from_wire import own_reason_of, totals_of
from straggler.model.identity import clean_identity, clean_text
from straggler.model.progress import HangLimits
from straggler.model.rank import RankFacts, RankState
from straggler.wire import layout
from straggler.wire.recent import summarize
from straggler.wire.records import Identity, Live, StepRecord

JOINED = ("training_gpu_", "training_rank_host_", "training_nccl_")
"""What only a join with the node's own facts can tell."""
IDENTITIES = [
    Identity("r", 0),
    Identity(
        'quote " backslash \\ new\nline \u202e',
        7,
        "stage1",
        "n1",
        8,
        3,
        4,
        1,
        "GPU-1",
        2,
        "00000000:17:00.0",
        5,
        "0,1",
        "p",
        "ns",
        "c",
        "4711",
        "2",
        "ada",
        "torch 9",
        "cuda",
        "measured",
        "1",
    ),
    Identity("x" * 200, 1, node="n" * 129),
]


def record(serial: int, flags: int = layout.FLAG_OWN, reason: int = 0) -> StepRecord:
    """A step of 44 ms, and totals of so many."""
    phases = (6_000_000, 0, 10_000_000, 16_000_000, 10_000_000, 2_000_000, 0, 0, 0)
    measured = serial if flags & layout.FLAG_OWN else 0
    return StepRecord(
        serial=serial,
        step=serial + 1000,
        end_monotonic_ns=serial * 44_000_000,
        end_realtime_ns=1_700_000_000_123_456_789,
        flags=flags,
        own_reason=reason,
        wall_ns=44_000_000,
        phase_ns=phases,
        host_data_ns=0,
        total_steps=serial,
        total_wall_ns=serial * 44_000_000,
        total_own_ns=measured * 34_000_000,
        total_wait_ns=measured * 10_000_000,
        total_unmeasured_steps=serial - measured,
        arrivals=serial * 2,
        total_phase_ns=tuple(serial * phase for phase in phases),
        total_tokens=serial * 8192,
        total_allreduce_bytes=serial << 30,
        total_flops=serial * 1.5e15,
        total_samples=serial * 8,
        total_profiled_steps=0,
        total_host_data_ns=serial * 77,
    )


ALL = layout.FLAG_OWN | layout.FLAG_TOKENS | layout.FLAG_SAMPLES | layout.FLAG_FLOPS | layout.FLAG_ALLREDUCE
HISTORIES = {
    "no step yet": [],
    "one": [record(1)],
    "many": [record(serial, ALL) for serial in range(1, 500)],
    "unmeasured": [record(serial, 0, 1) for serial in range(1, 50)],
}


def sidecars(facts: page.Facts) -> str:
    """The page that the sidecar would give for this rank alone, without a GPU."""
    records = HISTORIES_BY_NEWEST[facts.newest]
    live = Live(facts.arrivals, len(records), 1, 1, layout.STATUS_RUNNING, facts.excluded_phase)
    identity = clean_identity(facts.identity)
    excluded = None if facts.excluded_phase is None else layout.PHASES[facts.excluded_phase]
    rank = RankFacts(
        identity=identity,
        state=RankState.RUNNING,
        totals=None if facts.newest is None else totals_of(facts.newest, live, clock=identity.clock),
        recent=summarize(records),
        step=None if facts.newest is None else facts.newest.step,
        last_step_timestamp_seconds=None if facts.newest is None else facts.newest.end_realtime_ns * 1e-9,
        excluded_phase=excluded,
        own_reason=own_reason_of(facts.newest, identity._replace(own_reason=facts.own_reason)),
    )
    book = MetricBook()
    add_ranks(book, [RankView(rank=rank, gpu=None, evidence="", unmatched_reason="")])
    assert not book.refused
    return render(book.collect())[0].decode()


HISTORIES_BY_NEWEST = {(records[-1] if records else None): records for records in HISTORIES.values()}


def series(text: str) -> dict[tuple[str, str, str], dict[tuple[str, tuple[tuple[str, str], ...]], float]]:
    """A page by family: name, type, help; and in it by sample."""
    return {
        (family.name, family.type, family.documentation): {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in family.samples
        }
        for family in text_string_to_metric_families(text)
    }


@pytest.mark.parametrize("identity", IDENTITIES, ids=["plain", "full", "long"])
@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("excluded", [None, *layout.EXCLUDED])
def test_same_page(identity: Identity, history: str, excluded: int | None) -> None:
    """For the same rank both pages have the same families, help texts, types, series and values."""
    records = HISTORIES[history]
    reason = layout.OWN_REASONS[records[-1].own_reason] if records else "measured"
    facts = page.Facts(
        identity=identity,
        newest=records[-1] if records else None,
        recent=summarize(records),
        arrivals=2 * len(records) + 1,
        excluded_phase=excluded,
        own_reason=reason,
        silent_seconds=0.0,
    )

    assert series(page.render(facts)) == series(sidecars(facts))


def test_table_is_the_catalogues() -> None:
    """Each rank metric that needs no join is on the page, in the catalogue's order and words."""
    wanted = [metric for metric in catalogue.RANK_METRICS if not metric.name.startswith(JOINED)]
    extra = [metric.labels[len(catalogue.RANK_LABELS) :] for metric in wanted if metric.kind is not catalogue.Kind.INFO]

    assert [(f.name, f.kind, f.help) for f in page.FAMILIES] == [(m.name, m.kind.value, m.help) for m in wanted]
    assert [(f.label,) if f.label else () for f in page.FAMILIES if f.kind != "info"] == extra
    assert page.RANK_LABELS == catalogue.RANK_LABELS
    assert page.INFO_LABELS == catalogue.INFO_LABELS


@given(st.text(max_size=300))
def test_same_labels(text: str) -> None:
    """Any name is cleaned alike."""
    assert page.clean(text) == clean_text(text)


@given(
    mean=st.none() | st.floats(0.001, 1000),
    silent=st.floats(0, 10_000),
    excluded=st.none() | st.sampled_from(layout.EXCLUDED),
)
def test_same_hang(mean: float | None, silent: float, excluded: int | None) -> None:
    """Both call the same silence a hang."""
    recent = None
    if mean is not None:
        step = record(1)._replace(wall_ns=round(mean * 1e9), phase_ns=(0,) * 9)
        recent = summarize([step])
        assert recent is not None
        mean = recent.step_mean_seconds
    limits = HangLimits(
        steps=DEFAULT.hang_steps, min_seconds=DEFAULT.hang_min_seconds, excluded_seconds=DEFAULT.hang_excluded_seconds
    )
    facts = page.Facts(Identity("r", 0), None, recent, 0, excluded, "measured", silent)

    assert page.is_hung(facts) == (silent > limits.seconds(mean, excluded=excluded is not None))
    assert asdict(limits)
