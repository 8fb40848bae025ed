"""The ranks as JSON, as the landing page, and as documented."""

from __future__ import annotations

import json
import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from conftest import Expected
from facts import gpu_facts, identity, recent, totals, view
from straggler.detect.lately import Lately
from straggler.detect.policy import DEFAULT
from straggler.join.view import RankView
from straggler.metrics.self_metrics import ExporterStatus, SourceStatus
from straggler.model.rank import RankState
from straggler.model.reading import SourceState
from straggler.sidecar.api import ranks_document
from straggler.sidecar.api_reference import render_reference
from straggler.sidecar.landing import render_landing
from straggler.sidecar.rank_row import COLUMNS, cells
from straggler.sidecar.state import Snapshot


def _document(*views: RankView, status: ExporterStatus | None = None) -> dict[str, object]:
    snapshot = Snapshot(taken=1.0, taken_monotonic=1.0, views=views, status=status or ExporterStatus())
    return ranks_document(snapshot, DEFAULT)


def _ranks(*views: RankView) -> list[dict[str, object]]:
    ranks = _document(*views)["ranks"]
    assert isinstance(ranks, list)
    return ranks


def test_slow_rank_is_marked() -> None:
    """Three ranks at 30 ms and one at 45: it is one and a half times its peers, and critical."""
    ranks = _ranks(*(view(rank, recent=recent(0.045 if rank == 3 else 0.030, 0.050)) for rank in range(4)))

    assert [rank.get("slow") for rank in ranks] == [None, None, None, "critical"]
    assert [rank["slowdown_ratio"] for rank in ranks] == [1.0, 1.0, 1.0, 1.5]


def test_rank_without_peers_has_no_ratio() -> None:
    """Alone, without own time, before 32 steps or gone, a rank has no slowdown ratio at all."""
    alone = _ranks(view(0))
    unmeasured = _ranks(view(0), view(1, recent=recent(own=None), own_reason="no_wait_phase"))
    short = _ranks(view(0), view(1, recent=recent()._replace(steps=31)))
    gone = _ranks(view(0), view(1, state=RankState.CRASHED, recent=None))
    stages = _ranks(view(0), view(1, identity=identity(1, peer_group="1")))

    for ranks in (alone, unmeasured, short, gone, stages):
        assert not [rank for rank in ranks if "slowdown_ratio" in rank]


def test_runs_are_compared_apart() -> None:
    """Two runs on one node have nothing to do with each other."""
    views = [
        view(rank, identity=identity(rank, run=run), recent=recent(own, 0.1))
        for run, own in (("a", 0.03), ("b", 0.06))
        for rank in range(2)
    ]

    assert [rank["slowdown_ratio"] for rank in _ranks(*views)] == [1.0] * 4


def test_unknown_is_absent() -> None:
    """No key is null, empty or NaN."""
    gpu = replace(gpu_facts(0), values={"utilization_ratio": math.nan, "sm_active_ratio": 0.0})
    (rank,) = _ranks(view(0, gpu=gpu, totals=totals(), step=None))

    assert None not in rank.values()
    assert "" not in rank.values()
    assert "step" not in rank
    assert rank["gpu"] == {
        "UUID": gpu.key.uuid,
        "gpu": 0,
        "pci_bus_id": "00000000:10:00.0",
        "model": "NVIDIA H100 80GB HBM3",
        "sm_active_ratio": 0.0,
    }


def test_sources_say_how_they_are() -> None:
    """Sources are listed with state, age and blind spots."""
    status = ExporterStatus(
        sources=(
            SourceStatus(source="rings", state=SourceState.OK, age_seconds=0.5),
            SourceStatus(source="dcgm", state=SourceState.STALE, blind={"values_frozen": 2}),
        )
    )

    assert _document(status=status)["sources"] == [
        {"source": "rings", "state": "ok", "age_seconds": 0.5},
        {"source": "dcgm", "state": "stale", "blind": {"values_frozen": 2}},
    ]


@given(st.text(), st.text())
def test_landing_page_is_text(run: str, node: str) -> None:
    """Whatever a run and a node are called, the page has the tags that it has for any other name."""
    document = _document(view(0, identity=identity(run=run, node=node)))
    plain = _document(view(0, identity=identity(run="r", node="n")))

    page, other = (render_landing(each, "no hint") for each in (document, plain))
    assert page.count("<") == other.count("<")
    assert page.count('"') == other.count('"')


def test_landing_page_without_ranks() -> None:
    """Where no rank is seen the page says where it looks."""
    assert "Rings are looked for in /x &amp; nowhere" in render_landing(
        _document(), "Rings are looked for in /x & nowhere"
    )


def test_every_state_has_its_row() -> None:
    """A row has one text for each column, in whatever state the rank is."""
    ranks = _ranks(
        view(0, gpu=gpu_facts(2)),
        view(1, state=RankState.HUNG, own_reason="cuda_graph", recent=recent(own=None)),
        view(2, state=RankState.FINISHED, recent=None),
        view(3, excluded_phase="eval", totals=None, recent=None, step=None),
    )

    rows = [dict(zip((column.title for column in COLUMNS), cells(rank), strict=True)) for rank in ranks]
    assert [row["state"] for row in rows] == ["running", "hung", "finished", "eval"]
    assert [row["own"] for row in rows] == ["34.0 ms", "cuda_graph", "", ""]
    assert [row["GPU"] for row in rows] == ["2", "no_evidence", "", "no_evidence"]
    assert rows[0]["SM active"] == "61 %"
    assert json.dumps(rows)


def test_reference_is_current(expected: Expected) -> None:
    """``docs/api.md`` says what the tables say."""
    expected.check("../../docs/api.md", render_reference())


def test_cause_of_a_slow_rank() -> None:
    """A slow rank, and no other, says why: by label, in a sentence, and in the table for people."""
    views = [view(rank, recent=recent(0.045 if rank == 3 else 0.030, 0.050)) for rank in range(4)]
    lately = {
        found.rank.key: Lately(
            step_seconds=0.05,
            own_seconds=0.045 if found.rank.key.rank == 3 else 0.030,
            now_seconds=0.045 if found.rank.key.rank == 3 else 0.030,
            data_seconds=0.017 if found.rank.key.rank == 3 else 0.002,
        )
        for found in views
    }
    snapshot = Snapshot(taken=1.0, taken_monotonic=1.0, views=tuple(views), lately=lately)
    ranks = ranks_document(snapshot, DEFAULT)["ranks"]

    assert [rank.get("cause") for rank in ranks] == [None, None, None, "data_loading"]
    assert ranks[3]["cause_text"] == (
        "Data loading: waits for its next batch 17.0 ms a step, peers 2.0 ms; explains 100 % of the gap"
    )
    assert cells(ranks[3])[9] == "1.50 x slow, data_loading"
