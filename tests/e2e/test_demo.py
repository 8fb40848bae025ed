"""``straggler demo`` with Prometheus and Alertmanager, as ``make demo`` runs it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from demo_command import PATIENT, judged_demo
from servers import program
from straggler.simulate.node import gpu_uuid
from straggler.simulate.stage import HOSTNAME

pytestmark = [pytest.mark.servers, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def _servers() -> None:
    program("prometheus")
    program("alertmanager")


def test_default(record_property: Callable[[str, object], None]) -> None:
    """As it is by default, the alert comes, names rank 2, and the result says how long it took and what it cost."""
    done = judged_demo(*PATIENT)

    assert done.code == 0, str(done)
    result = done.result
    record_property("demo_seconds_to_alert", result["seconds_to_alert"])
    record_property("demo_duration_seconds", result["duration_seconds"])
    record_property("demo_efficiency", result["efficiency"]["measured"])
    assert result["ok"] is True
    assert result["problem"] is None
    assert result["engine"] == "prometheus"
    assert result["alert"]["name"] == "TrainingStraggler"
    assert result["alert"]["rank"] == result["slow_rank"] == 2
    assert result["cause"] == "thermal"
    assert gpu_uuid(HOSTNAME, 2) in result["alert"]["annotations"]["description"]
    assert result["step_seconds"]["expected_healthy"] == pytest.approx(0.044)
    assert result["step_seconds"]["expected_slow"] == pytest.approx(0.057)
    assert result["step_seconds"]["slow"] > result["step_seconds"]["healthy"]
    assert result["own_seconds"]["slow"] > 1.2 * result["own_seconds"]["healthy"]
    assert set(result["fired"]) == {"TrainingStraggler"}
    assert len(result["steps"]) == 8
    assert "becomes slow" in done.errors  # progress is not on standard output


def test_other_rank_and_factor() -> None:
    """Another rank, another factor, fewer ranks: that one is named."""
    done = judged_demo("--ranks", "4", "--slow-rank", "3", "--slow-factor", "2", "--slow-after", "8", *PATIENT)

    assert done.code == 0, str(done)
    assert done.result["alert"]["rank"] == 3
    assert done.result["ranks"] == 4


@pytest.mark.slow
def test_healthy_run_fires_nothing() -> None:
    """Two minutes in which no rank is slow: nothing fires."""
    done = judged_demo("--fault", "none")

    assert done.code == 0, str(done)
    assert done.result["fired"] == []
    assert done.result["alert"] is None
    assert done.result["slow_rank"] is None
    assert done.result["duration_seconds"] >= 120
    assert min(done.result["steps"]) > 1000
