"""Own time in real jobs of four ranks, of which rank 2 is slow by 30 ms in one place.

All cases of a family run in one job, since starting one takes longer than training. The machine that tests run on is
small and shared, so what misses its mark is measured a second and a third time: noise passes, a wrong method does not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from torch_jobs import RANKS, SLOW_RANK, gap, results

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DELAY = 0.030
PLACES = ("data", "forward", "first_backward", "last_backward", "optimizer", "between")
DDP = (
    *(f"ddp:plain:{place}" for place in PLACES),
    "ddp:accumulate:forward",
    "ddp:batchnorm:data",
    "ddp:batchnorm:optimizer",
    "ddp:allreduce:optimizer",
    "ddp:allreduce:forward",
    "ddp:closure:data",
    "ddp:closure:between",
    "ddp:reentrant:forward",
    "ddp:nonreentrant:last_backward",
    "ddp:compile:forward",
    "ddp:scaler:optimizer",
    "ddp:commhook:first_backward",
    "ddp:asyncsave:forward",
    "ddp:clip:between",
    "ddp:static:first_backward",
    "ddp:unused:forward",
    "ddp:gan:forward",
    "ddp:zero:optimizer",
    "pipeline:plain:forward",
    "pipeline:plain:last_backward",
)
FSDP1 = tuple(f"fsdp1:plain:{place}" for place in ("forward", "last_backward", "optimizer"))
FSDP2 = (*(f"fsdp2:plain:{place}" for place in PLACES), "fsdp2:clip:forward", "fsdp2:accumulate:forward")
HAS_FSDP2 = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 6)
SHARDED = FSDP1 + (FSDP2 if HAS_FSDP2 else ())


class Measured:
    """The results of a family, measured again where they miss their mark."""

    def __init__(self, out: Path, cases: tuple[str, ...]) -> None:
        self._out = out
        self.ranks = results(out / "first", cases)
        for attempt in ("second", "third"):
            missed = [case for case in cases if not self.is_right(case)]
            if missed:
                for known, again in zip(self.ranks, results(out / attempt, missed), strict=True):
                    known.update({case: again[case] for case in missed})

    def is_right(self, case: str) -> bool:
        """Whether own time shows the delay within 10 % on the slow rank alone, and wall time shows nothing.

        The ranks that are not slow tell how quiet the machine is: by what they differ among themselves the slow one may
        differ too.
        """
        delay = DELAY * (2 if ":gan:" in case else 1)
        peers = sorted(rank[case]["own"] for number, rank in enumerate(self.ranks) if number != SLOW_RANK)
        noise = peers[-1] - peers[0]
        is_clear = self.ranks[SLOW_RANK][case]["own"] - peers[-1] > delay / 3
        is_exact = abs(gap(case, self.ranks, "own") - delay) <= delay / 10 + noise
        return is_clear and is_exact and abs(gap(case, self.ranks, "wall")) <= delay / 5

    def table(self, case: str) -> str:
        """For the failure's text."""
        return "; ".join(
            f"{what} {'/'.join(f'{rank[case][what] * 1e3:.0f}' for rank in self.ranks)}"
            for what in ("wall", "own", "wait")
        )


@pytest.fixture(scope="module")
def ddp(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """DistributedDataParallel, and the pipeline."""
    return Measured(tmp_path_factory.mktemp("ddp"), DDP)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """FSDP."""
    return Measured(tmp_path_factory.mktemp("sharded"), SHARDED)


@pytest.mark.parametrize("case", DDP)
def test_ddp_finds_the_slow_rank(ddp: Measured, case: str) -> None:
    """The slow rank's own time exceeds its peers' by the delay within 10 %, while all steps are equally long."""
    assert ddp.is_right(case), ddp.table(case)
    assert {tuple(rank[case]["reasons"]) for rank in ddp.ranks} == {("measured",)}


@pytest.mark.parametrize("case", SHARDED)
def test_fsdp_finds_the_slow_rank(sharded: Measured, case: str) -> None:
    """The same where every layer is a barrier, in forward and in backward."""
    assert sharded.is_right(case), sharded.table(case)
    assert {tuple(rank[case]["reasons"]) for rank in sharded.ranks} == {("measured",)}


def test_a_step_is_one_round_of_all_optimizers(ddp: Measured) -> None:
    """A GAN's two optimizers, a ``super().step`` and skipped steps of a GradScaler give one step an iteration."""
    for case in ("ddp:plain:forward", "ddp:gan:forward", "ddp:scaler:optimizer", "ddp:closure:data"):
        assert {rank[case]["iterations"] - rank[case]["all_steps"] for rank in ddp.ranks} <= {0, 1}, case


def test_the_phases_tell_where_the_delay_is(ddp: Measured) -> None:
    """The delay stands in the phase that it was made in; between backward and step that is ``other``."""
    where = {"data": "data", "forward": "forward", "last_backward": "backward", "optimizer": "optimizer"}
    for place, phase in {**where, "between": "other"}.items():
        phases = ddp.ranks[SLOW_RANK][f"ddp:plain:{place}"]["phases"]
        peers = ddp.ranks[0][f"ddp:plain:{place}"]["phases"]
        assert phases[phase] - peers[phase] == pytest.approx(DELAY, rel=0.2), place


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
