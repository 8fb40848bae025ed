"""What the sidecar knows, from the last readings of all sources."""

from __future__ import annotations

import logging

import pytest
from prometheus_client.metrics_core import Metric

from facts import gpu_facts, identity, rank_facts
from scripted import Bench, MakeBench, ScriptedSource
from straggler.model.gpu import GpuKey
from straggler.model.rank import RankState
from straggler.model.reading import Problem, SourceState
from straggler.sidecar.page import build_page
from straggler.sidecar.scrape import SourceCounts
from straggler.sidecar.state import MAX_GPUS
from straggler.sidecar.trouble import QUIET_SECONDS


def _families(bench: Bench) -> dict[str, Metric]:
    return {family.name: family for family in build_page(bench.collector.collect(30)).collect()}


def _named(bench: Bench, name: str) -> dict[tuple[str, ...], float]:
    """Values of one family by label values."""
    family = _families(bench).get(name)
    return {tuple(sample.labels.values()): sample.value for sample in family.samples} if family else {}


def test_ranks_are_joined_with_gpus(make_bench: MakeBench) -> None:
    """A rank that names a GPU of the page has that GPU's values among its own series."""
    gpu = gpu_facts(3)
    rank = rank_facts(0, identity=identity(0, gpu_uuid=gpu.key.uuid))
    bench = make_bench(ScriptedSource("rings", [rank]), ScriptedSource("dcgm", [gpu]))

    assert _named(bench, "training_gpu_sm_active_ratio") == {("r", "0", "0", "n1"): 0.61}
    assert _named(bench, "gpu_sm_active_ratio") == {(gpu.key.uuid, ""): 0.61}


def test_failed_source_loses_its_facts_and_no_others(make_bench: MakeBench) -> None:
    """When the GPU page fails its values are gone at once, not frozen, and the ranks stay."""
    gpu = gpu_facts(0)
    dcgm = ScriptedSource("dcgm", [gpu])
    bench = make_bench(ScriptedSource("rings", [rank_facts(0, identity=identity(gpu_uuid=gpu.key.uuid))]), dcgm)
    assert "gpu_sm_active_ratio" in _families(bench)
    dcgm.facts, dcgm.state, dcgm.problems = (), SourceState.FAILED, [Problem(reason="timeout")]

    families = _families(bench)
    assert "gpu_sm_active_ratio" not in families
    assert "training_gpu_sm_active_ratio" not in families
    assert "training_step" in families


def test_rank_that_is_gone_still_names_its_gpu(make_bench: MakeBench) -> None:
    """After a crash the info says on which GPU the rank was, while no value of that GPU is shown as the rank's."""
    gpu = gpu_facts(3)
    rings = ScriptedSource("rings", [rank_facts(0, identity=identity(gpu=3, local_rank=3, local_world_size=1))])
    rings.facts = [rank_facts(0, identity=identity(gpu_uuid=gpu.key.uuid))]
    bench = make_bench(rings, ScriptedSource("dcgm", [gpu]))
    bench.collector.collect(30)
    rings.facts = [rank_facts(0, state=RankState.CRASHED, recent=None)]

    families = _families(bench)
    info = families["training_rank"].samples[0].labels
    assert (info["UUID"], info["gpu"], info["evidence"]) == (gpu.key.uuid, "3", "uuid")
    assert "training_gpu_sm_active_ratio" not in families
    assert "training_gpu_clocks_event_seconds" not in families


def test_problems_are_counted_once_per_look(make_bench: MakeBench) -> None:
    """Each look's problems are added to the counters, by source and reason."""
    dcgm = ScriptedSource("dcgm", problems=[Problem(reason="bad_line", count=3), Problem(reason="sentinel")])
    bench = make_bench(dcgm)
    bench.collector.collect(30)

    assert _named(bench, "straggler_exporter_refused") == {("dcgm", "bad_line"): 6, ("dcgm", "sentinel"): 2}


def test_refusals_outside_a_look_are_counted(make_bench: MakeBench) -> None:
    """What the web server and the push endpoint refuse stands beside what sources refuse."""
    bench = make_bench(ScriptedSource("rings"))
    bench.state.count_one("http", "too_slow")

    assert _named(bench, "straggler_exporter_refused") == {("http", "too_slow"): 1}


def test_refusals_outside_a_look_are_logged(make_bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    """Of any number of the same the first is told, with the next look; when they have stopped, that is told too."""
    caplog.set_level(logging.INFO)
    bench = make_bench(ScriptedSource("push"))
    for number in range(3):
        for client in ("10.0.0.1", "10.0.0.2"):
            bench.state.tell("push", Problem(reason="unauthorized", detail=f"{number} from {client}"))
        bench.collector.collect(30)
    bench.clock.advance(QUIET_SECONDS)
    bench.collector.collect(30)

    told = [record.getMessage() for record in caplog.records if "unauthorized" in record.getMessage()]
    assert told == ["push: unauthorized: 0 from 10.0.0.1", "push: unauthorized: no longer"]


def test_source_states_ages_and_blind_spots(make_bench: MakeBench) -> None:
    """Each source shows its state, when it last gave facts, and what it cannot see now."""
    dcgm = ScriptedSource("dcgm", blind=[Problem(reason="sm_active_absent", count=8)])
    bench = make_bench(ScriptedSource("push", state=SourceState.ABSENT), dcgm)
    bench.collector.collect(30)
    dcgm.state, dcgm.blind = SourceState.FAILED, ()
    bench.clock.advance(31)

    families = _families(bench)
    states = {
        (sample.labels["source"], sample.labels["state"])
        for sample in families["straggler_exporter_source_state"].samples
        if sample.value == 1
    }
    assert states == {("push", "absent"), ("dcgm", "failed")}
    ages = families["straggler_exporter_source_age_seconds"].samples
    assert [(sample.labels["source"], sample.value) for sample in ages] == [("dcgm", 31)]
    assert "straggler_exporter_blind" not in families


def test_source_counts_are_shown(make_bench: MakeBench) -> None:
    """What a source counts by itself is on the page; what it does not count is absent."""
    counts = SourceCounts(records_read=7, records_missed=1, rings_removed=2, ranks_refused={"duplicate_rank": 2})
    bench = make_bench(ScriptedSource("rings", counts=counts), ScriptedSource("dcgm"))

    assert _named(bench, "straggler_exporter_records_read") == {("rings",): 7}
    assert _named(bench, "straggler_exporter_records_missed") == {("rings",): 1}
    assert _named(bench, "straggler_exporter_rings_removed") == {(): 2}
    assert _named(bench, "straggler_exporter_ranks_refused") == {("duplicate_rank",): 2}


def test_ranks_are_bounded_and_counted(make_bench: MakeBench) -> None:
    """Beyond the limit ranks are left out, those that are gone first, and the number is on the page."""
    ranks = [rank_facts(0, state=RankState.FINISHED, recent=None), *map(rank_facts, range(1, 5))]
    bench = make_bench(ScriptedSource("rings", ranks), max_ranks=3)

    assert [view.rank.key.rank for view in bench.collector.collect(30).views] == [1, 2, 3]
    assert _named(bench, "straggler_exporter_ranks_refused") == {("too_many_ranks",): 2}


def test_gpus_are_bounded_and_counted(make_bench: MakeBench) -> None:
    """An address that leads to the GPUs of a whole cluster does not make a page of a million series."""
    gpus = [gpu_facts(0, key=GpuKey(f"GPU-{number}")) for number in range(MAX_GPUS + 3)]
    snapshot = make_bench(ScriptedSource("dcgm", gpus)).collector.collect(30)

    assert len(snapshot.gpus) == MAX_GPUS
    assert snapshot.status.refused == {("metrics", "too_many_gpus"): 3}


def test_state_changes_are_logged_once(make_bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    """A source that breaks and recovers gives a warning with its reason and a line when it is well again."""
    dcgm = ScriptedSource("dcgm")
    bench = make_bench(dcgm)
    caplog.set_level(logging.INFO)
    bench.collector.collect(30)
    dcgm.state, dcgm.problems = SourceState.FAILED, [Problem(reason="refused", detail="nobody listens")]
    for _ in range(5):
        bench.collector.collect(30)
    dcgm.state, dcgm.problems = SourceState.OK, ()
    bench.collector.collect(30)

    changes = [(record.levelname, record.getMessage()) for record in caplog.records if "is" in record.getMessage()]
    assert changes == [
        ("INFO", "source dcgm is ok"),
        ("WARNING", "source dcgm is failed: refused: nobody listens"),
        ("INFO", "source dcgm is ok"),
    ]


def test_stepping_is_told_to_sources(make_bench: MakeBench) -> None:
    """The GPU source hears from the second look on whether ranks are stepping, to tell frozen from idle."""
    rings = ScriptedSource("rings", [rank_facts(0)])
    dcgm = ScriptedSource("dcgm")
    bench = make_bench(rings, dcgm)
    bench.collector.collect(30)
    bench.collector.collect(30)
    rings.facts = [rank_facts(0, excluded_phase="checkpoint")]
    bench.collector.collect(30)
    bench.collector.collect(30)

    assert [request.stepping for request in dcgm.requests] == [False, True, True, False]


def test_gpu_of_two_sources_is_one(make_bench: MakeBench) -> None:
    """A later source completes what an earlier one left out, and never overrules it."""
    first = gpu_facts(0, values={"utilization_ratio": 0.9}, clocks_event_seconds={"sw_power_cap": 1.0}, model="")
    second = gpu_facts(
        0,
        values={"utilization_ratio": 0.1, "power_watts": 300.0},
        clocks_event_seconds={"sw_power_cap": 3.0, "hw_slowdown": 9.0},
        source="nvml",
    )
    bench = make_bench(ScriptedSource("dcgm", [first]), ScriptedSource("nvml", [second]))

    (gpu,) = bench.collector.collect(30).gpus
    assert gpu.key == GpuKey(first.key.uuid)
    assert gpu.values == {"utilization_ratio": 0.9, "power_watts": 300.0}
    assert gpu.clocks_event_seconds == {"sw_power_cap": 1.0, "hw_slowdown": 9.0}
    assert gpu.source == "dcgm+nvml"
    assert gpu.model == second.model


@pytest.mark.parametrize(
    ("ring", "push", "winner"),
    [
        (RankState.RUNNING, RankState.RUNNING, "rings"),
        (RankState.CRASHED, RankState.CRASHED, "rings"),
        (RankState.CRASHED, RankState.RUNNING, "push"),
        (RankState.RUNNING, RankState.FINISHED, "rings"),
    ],
)
def test_rank_of_two_sources_is_one(make_bench: MakeBench, ring: RankState, push: RankState, winner: str) -> None:
    """A ring wins over a push of the same rank, unless only the pushed one is alive."""
    bench = make_bench(
        ScriptedSource("rings", [rank_facts(0, state=ring, source="rings")]),
        ScriptedSource("push", [rank_facts(0, state=push, source="push")]),
    )

    assert [view.rank.source for view in bench.collector.collect(30).views] == [winner]
