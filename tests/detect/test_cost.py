"""What slowness costs: by hand, and the same from the rules, from a recording and from living windows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recordings import Own, job
from servers import promtool
from straggler.detect import wording
from straggler.detect.cost import lost_gpu_seconds, own_excess
from straggler.detect.policy import DEFAULT
from straggler.detect.recorded import Playback, timeline
from straggler.detect.replay import replay
from straggler.detect.sample import sample
from straggler.detect.straggling import assess
from straggler.metrics.book import MetricBook
from straggler.metrics.families import add_ranks
from straggler.model.recorded import RecordedStep

RULES = Path(__file__).parents[2] / "rules" / "recording"
STEPS = 64


def test_the_slow_ranks_own_time_counts() -> None:
    """Two slow ranks spend 13 and 20 ms themselves; where none is slow, the largest gap of a group stands for them."""
    groups = [[0.034, 0.035, 0.036], [0.050, 0.051, 0.058]]

    assert own_excess([0.013, 0.020], groups) == pytest.approx(0.033)
    assert own_excess([], groups) == pytest.approx(0.007)
    assert own_excess([], []) == 0.0


def test_nobody_gives_time_back() -> None:
    """A rank that waits less than the run's least wait, as another window had it, takes nothing off others' waiting."""
    assert lost_gpu_seconds([0.1, 0.5], least_wait=0.2) == pytest.approx(0.3)
    assert lost_gpu_seconds([0.2, 0.5], own_excess=-0.1) == pytest.approx(0.3)
    assert lost_gpu_seconds([], own_excess=-0.1) == 0.0


def steady(*slow: int, factor: float = 1.5) -> Own:
    """Ranks that always take a second, but for these."""
    return lambda _step, rank, _rng: factor if rank in slow else 1.0


CASES: dict[str, tuple[list[RecordedStep], float]] = {
    "nobody": (job(8, STEPS, steady()), 0.0),
    "a slow rank": (job(8, STEPS, steady(2)), 8 * 0.5),
    "a slow node of two": (job(16, STEPS, steady(*range(8, 16), factor=1.2)), 16 * 0.2),
    "a rank below the threshold": (job(8, STEPS, steady(2, factor=1.08)), 8 * 0.08),
    "slow ranks of two stages": (
        job(16, STEPS, lambda _step, rank, _rng: {3: 1.5, 12: 1.7}.get(rank, 1.0), groups=["0"] * 8 + ["1"] * 8),
        14 * 0.7 + 0.2 + 0.5 + 0.7,  # fourteen wait for rank 12, rank 3 a little, and both spend what they are slow by
    ),
}
"""Recorded jobs, and the GPU-seconds that each of their steps loses."""


@pytest.mark.servers
@pytest.mark.parametrize("name", CASES)
def test_rules_recording_and_windows_cost_the_same(name: str, tmp_path: Path) -> None:
    """Worked out by hand, step by step from the recording, from the last window as live, and by the rules."""
    rows, by_hand = CASES[name]
    wall = rows[0].wall_ns * 1e-9
    lost = replay(rows, DEFAULT, "r").lost_gpu_seconds
    playback = Playback(timeline(rows), "r")
    for _ in playback.play():
        pass
    views = playback.views()

    assert lost == pytest.approx(STEPS * by_hand)
    samples = [sample(view) for view in views]
    slow = assess(samples, DEFAULT).slow
    windows = [view.rank.recent for view in views if view.rank.recent is not None]
    groups: dict[str, list[float]] = {}
    for one in samples:
        groups.setdefault(one.peer_group, []).append(one.own_mean)
    live = lost_gpu_seconds(
        [window.wait_mean_seconds or 0.0 for window in windows],
        own_excess([found.sample.own_mean - found.group.mean_reference for found in slow], list(groups.values())),
        least_wait=min(window.wait_min_seconds or 0.0 for window in windows),
    )
    assert live == pytest.approx(by_hand)
    book = MetricBook()
    add_ranks(book, views)
    series = []
    for found in (found for family in book.collect() for found in family.samples):
        labels = ",".join(f"{key}={json.dumps(value)}" for key, value in found.labels.items())
        series.append({"series": f"{found.name}{{{labels}}}", "values": f"{found.value!r}x20"})
    expected = {
        "expr": "round(run:training_lost_gpu_seconds:per_second, 1e-6)",
        "eval_time": "4m",
        "exp_samples": [{"labels": '{run="r"}', "value": round(by_hand / wall, 6)}],
    }
    path = tmp_path / "test.json"
    path.write_text(
        json.dumps(
            {
                "rule_files": [str(RULES / f"{part}.yaml") for part in ("own", "state", "waste")],
                "evaluation_interval": "15s",
                "tests": [{"interval": "15s", "input_series": series, "promql_expr_test": [expected]}],
            }
        ),
        encoding="utf-8",
    )
    promtool("test", "rules", str(path))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0.0 GPU-hours"), (400.0, "0.111 GPU-hours"), (18_432.0, "5.1 GPU-hours")]
)
def test_cost_in_gpu_hours(seconds: float, text: str) -> None:
    """The unit that is budgeted, with three digits that matter."""
    assert wording.gpu_hours(seconds) == text
