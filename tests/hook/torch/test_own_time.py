"""Own time in real jobs of four ranks, of which rank 2 is held up by 30 ms in one place; see ``torch_cases``."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

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
    """Where the backward is compiled own time is absent and says why, on all ranks and in all steps."""
    ranks = results(tmp_path, [case])

    assert [rank[case]["reasons"] for rank in ranks] == [["hidden_collectives"]] * RANKS
    assert [rank[case]["own_total"] for rank in ranks] == [0.0] * RANKS
    assert all(rank[case]["steps"] for rank in ranks)


def test_a_step_is_one_round_of_all_optimizers(ddp: Measured) -> None:
    """A GAN's two optimizers, a ``super().step`` and skipped steps of a GradScaler give one step an iteration."""
    for case in ("ddp:plain:forward", "ddp:gan:forward", "ddp:scaler:optimizer", "ddp:closure:data"):
        if not lacks(case):
            assert {rank[case]["iterations"] - rank[case]["all_steps"] for rank in ddp.ranks} <= {0, 1}, case


@pytest.mark.parametrize("case", possible(["ddp:scaler:optimizer", "fsdp1:scaler:optimizer", "fsdp2:scaler:optimizer"]))
def test_a_scaler_really_skips_steps(request: pytest.FixtureRequest, case: str) -> None:
    """Every fifth step overflows and the optimizer is left out, also where gradients are sharded."""
    ranks = request.getfixturevalue("ddp" if case in DDP else "sharded").ranks
    held_up, iterations = ranks[SLOW_RANK][case]["delays"], ranks[SLOW_RANK][case]["iterations"]

    assert held_up == iterations - iterations // 5


def test_the_phases_tell_where_the_delay_is(ddp: Measured) -> None:
    """What is longer than on the peers is the phase of the delay: ``other`` if it is outside of all of them."""
    where = {"data": "data", "forward": "forward", "last_backward": "backward", "optimizer": "optimizer"}
    for place, phase in {**where, "between": "other", "after": "other"}.items():
        case = f"ddp:plain:{place}"
        slow, *peers = (ddp.ranks[rank][case]["phases"] for rank in (SLOW_RANK, *PEERS))
        excess = {name: slow[name] - statistics.median(peer[name] for peer in peers) for name in slow}
        assert max(excess, key=excess.__getitem__) == phase, (place, excess)
        assert excess[phase] > ddp.outcome(case).delay / 2, (place, excess)


def test_a_rank_arrives_once_a_step_under_ddp_and_never_under_no_sync(ddp: Measured) -> None:
    """Arrivals are the same on all ranks, and four backwards under ``no_sync`` add none."""
    for case in ("ddp:plain:forward", "ddp:accumulate:forward"):
        assert {rank[case]["arrivals"] for rank in ddp.ranks} == {ddp.ranks[0][case]["steps"] - 1}


def test_pipeline_stages_are_peer_groups(ddp: Measured) -> None:
    """The stage is read from the device mesh's dimension ``pp``."""
    groups = [rank["identity"]["peer_group"] for rank in ddp.ranks]
    has_mesh = hasattr(torch.distributed, "device_mesh")
    assert groups == (["0", "0", "1", "1"] if has_mesh else ["0"] * RANKS)


def test_the_identity_says_what_measured(ddp: Measured) -> None:
    """Framework, clock and the process group's own numbers."""
    identity: dict[str, Any] = ddp.ranks[3]["identity"]
    assert (identity["rank"], identity["world_size"], identity["clock"]) == (3, RANKS, "host")
    assert identity["framework"] == f"torch {torch.__version__}"
