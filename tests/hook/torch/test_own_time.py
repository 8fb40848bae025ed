"""Own time of real jobs of four ranks on a real sidecar's page, rank 2 held up in one place; see ``torch_cases``."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from straggler.wire.recent import WINDOW_STEPS
from torch_cases import DDP, HIDDEN, SHARDED, Measured, lacks
from torch_jobs import RANKS, SLOW_RANK, results

PEERS = [rank for rank in range(RANKS) if rank != SLOW_RANK]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def possible(cases: Sequence[str]) -> list[Any]:
    """Parameters, of which those that this torch lacks are skipped."""
    return [pytest.param(case, marks=pytest.mark.skipif(bool(lacks(case)), reason=lacks(case))) for case in cases]


@pytest.fixture(scope="module")
def ddp(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """DistributedDataParallel, and the pipeline."""
    return Measured(tmp_path_factory.mktemp("ddp"), DDP)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """FSDP."""
    return Measured(tmp_path_factory.mktemp("sharded"), SHARDED)


@pytest.mark.parametrize("case", possible(DDP))
def test_ddp_finds_the_slow_rank(ddp: Measured, case: str) -> None:
    """The slow rank's own time exceeds its peers' by the delay within 10 %, while all steps are equally long."""
    assert ddp.outcome(case).is_right(), str(ddp.outcome(case))
    assert ddp.reasons(case) == {"measured"}


@pytest.mark.parametrize("case", possible(SHARDED))
def test_fsdp_finds_the_slow_rank(sharded: Measured, case: str) -> None:
    """The same where every layer is a barrier, in forward and in backward."""
    assert sharded.outcome(case).is_right(), str(sharded.outcome(case))
    assert sharded.reasons(case) == {"measured"}


@pytest.mark.parametrize("case", possible([HIDDEN]))
def test_a_compiled_backward_hides_the_waits_of_fsdp(tmp_path: Path, case: str) -> None:
    """Where the backward is compiled the page has steps, no own time, which would be a guess, and the reason."""
    page = results(tmp_path, [case])[case].page

    assert min(page.values("training_recent_steps")) >= WINDOW_STEPS
    assert [name for name in page.series if "_own_" in name] == ["straggler_exporter_ranks_without_own_time"]
    counted = [(labels["reason"], value) for labels, value in page.series["straggler_exporter_ranks_without_own_time"]]
    assert counted == [("hidden_collectives", RANKS)]
    assert page.labels("own") == ["none"] * RANKS
    assert page.labels("own_reason") == ["hidden_collectives"] * RANKS


def test_a_step_is_one_round_of_all_optimizers(ddp: Measured) -> None:
    """A GAN's two optimizers, a ``super().step`` and skipped steps of a GradScaler give one step an iteration.

    Measuring begins with the first optimizer step that has gradients, which the first one with a closure has not.
    """
    begins = {"ddp:plain:forward": 1, "ddp:gan:forward": 1, "ddp:scaler:optimizer": 1, "ddp:closure:data": 2}
    for case, unmeasured in begins.items():
        if not lacks(case):
            assert [rank["iterations"] - rank["all_steps"] for rank in ddp.seen[case].ranks] == [unmeasured] * RANKS, (
                case
            )


@pytest.mark.parametrize("case", possible(["ddp:scaler:optimizer", "fsdp1:scaler:optimizer", "fsdp2:scaler:optimizer"]))
def test_a_scaler_really_skips_steps(request: pytest.FixtureRequest, case: str) -> None:
    """Every fifth step overflows and the optimizer is left out, also where gradients are sharded."""
    slow = request.getfixturevalue("ddp" if case in DDP else "sharded").seen[case].ranks[SLOW_RANK]

    assert slow["delays"] == sum(step % 5 != 3 for step in range(slow["iterations"]))


def test_the_phases_tell_where_the_delay_is(ddp: Measured) -> None:
    """What is longer than on the peers is the phase of the delay: ``other`` if it is outside of all of them."""
    where = {"data": "data", "forward": "forward", "last_backward": "backward", "optimizer": "optimizer"}
    for place, phase in {**where, "between": "other", "after": "other"}.items():
        case = f"ddp:plain:{place}"
        slow, *peers = (ddp.seen[case].ranks[rank]["phases"] for rank in (SLOW_RANK, *PEERS))
        excess = {name: slow[name] - statistics.median(peer[name] for peer in peers) for name in slow}
        assert max(excess, key=excess.__getitem__) == phase, (place, excess)
        assert excess[phase] > ddp.outcome(case).delay / 2, (place, excess)


def test_a_rank_arrives_once_a_step_under_ddp_and_never_under_no_sync(ddp: Measured) -> None:
    """Arrivals are the same on all ranks, and four backwards under ``no_sync`` add none."""
    for case in ("ddp:plain:forward", "ddp:accumulate:forward"):
        ranks = ddp.seen[case].ranks
        assert {rank["arrivals"] for rank in ranks} == {ranks[0]["steps"] - 1}


@pytest.mark.parametrize("case", [case for case in DDP if case.startswith("pipeline")])
def test_pipeline_stages_are_peer_groups(ddp: Measured, case: str) -> None:
    """The page's label has the stage, which is read from the device mesh's dimension ``pp``."""
    page = ddp.seen[case].page
    groups = ["0", "0", "1", "1"] if hasattr(torch.distributed, "device_mesh") else ["0"] * RANKS  # torch 2.1: no mesh
    for name in ("training_recent_own_median_seconds", "training_recent_steps", "training_rank_info"):
        assert page.labels("peer_group", name) == groups


def test_the_page_says_what_measured(ddp: Measured) -> None:
    """Framework, clock and the process group's own numbers."""
    page = ddp.seen["ddp:plain:forward"].page
    assert page.values("training_world_size") == [RANKS] * RANKS
    assert page.labels("clock") == ["host"] * RANKS
    assert page.labels("framework") == [f"torch {torch.__version__}"] * RANKS
    assert page.labels("peer_group", "training_world_size") == ["0"] * RANKS
