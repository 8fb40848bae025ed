"""Which processes are ranks, as far as their environment tells, and which only start some."""

from __future__ import annotations

import pytest

from straggler.hook.launch.begin import is_launcher
from straggler.hook.launch.rank import is_rank

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
SRUN = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_ID": "0"}
ALONE = {"RANK": "0", "WORLD_SIZE": "1"}


@pytest.mark.parametrize(
    ("environment", "in_group", "expected"),
    [
        pytest.param({"STRAGGLER_TORCH": "1"}, False, False, id="cluster-wide, alone"),
        pytest.param({"STRAGGLER_TORCH": "all"}, False, True, id="straggler run, alone"),
        pytest.param({"STRAGGLER_TORCH": " ALL "}, False, True, id="written otherwise"),
        pytest.param({"STRAGGLER_TORCH": "1"}, True, True, id="mp.spawn or Ray: a group, and no variables"),
        pytest.param({"STRAGGLER_TORCH": "1", **TORCHRUN}, True, True, id="torchrun"),
        pytest.param({"STRAGGLER_TORCH": "all", **TORCHRUN}, False, False, id="child of a rank of torchrun"),
        pytest.param({"STRAGGLER_TORCH": "all", **SRUN}, False, False, id="child of a rank of srun"),
        pytest.param({"STRAGGLER_TORCH": "1", **ALONE}, False, True, id="torchrun of one needs no group"),
        pytest.param({"STRAGGLER_TORCH": "1", "SLURM_PROCID": "0"}, False, False, id="batch script"),
        pytest.param(
            {"STRAGGLER_TORCH": "1", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"},
            False,
            True,
            id="mpirun with another library",
        ),
        pytest.param({"STRAGGLER_TORCH": "1", "STRAGGLER_RANK": "5"}, False, True, id="told by the user"),
        pytest.param({"STRAGGLER_TORCH": "1", "RANK": "x"}, False, False, id="no number"),
    ],
)
def test_who_is_a_rank(environment: dict[str, str], in_group: bool, expected: bool) -> None:  # noqa: FBT001 - a table
    """A process in a group, one that a launcher made a rank, or one that ``straggler run`` was meant for."""
    assert is_rank(environment, in_group=in_group, timed=False) is expected


def test_a_loop_with_a_timer_of_its_own_is_left_to_it() -> None:
    """Two timers would be two rings for one rank, of which the sidecar could believe neither."""
    assert not is_rank({"STRAGGLER_TORCH": "all", **TORCHRUN}, in_group=True, timed=True)


@pytest.mark.parametrize(
    ("argv", "original", "expected"),
    [
        (["/venv/bin/torchrun"], ["/venv/bin/python", "/venv/bin/torchrun", "train.py"], True),
        (["-m"], ["python", "-X", "dev", "-m", "torch.distributed.run", "train.py"], True),
        (["-m"], ["python", "-m", "accelerate.commands.launch"], True),
        (["/venv/bin/accelerate", "launch"], ["python", "/venv/bin/accelerate", "launch"], True),
        (["-m"], ["python", "-m", "train"], False),
        (["train.py", "-m", "torchrun"], ["python", "train.py", "-m", "torchrun"], False),
        (["-c"], ["python", "-c", "import torch"], False),
        ([""], ["python"], False),
        ([], ["python"], False),
    ],
)
def test_a_launcher_is_known_by_its_name(argv: list[str], original: list[str], expected: bool) -> None:  # noqa: FBT001 - a table
    """Programs that import torch to start others, however they are called."""
    assert is_launcher(argv, original) is expected
