"""Who a rank is, from environments as the launchers leave them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from straggler.hook.identity import LAUNCHERS, find_identity, with_changes
from straggler.wire.decode import decode_identity
from straggler.wire.encode import encode_identity
from straggler.wire.records import Identity

Environment = dict[str, str]


def find(environment: Mapping[str, str], **given_values: Any) -> tuple[Identity, list[str]]:
    """The identity, and what was reported."""
    reports: list[str] = []
    identity = find_identity(
        environment, warn=lambda _about, text: reports.append(text), hook_version="1", **given_values
    )
    return identity, reports


def torchrun(rank: int, nodes: int = 2, per_node: int = 4, **more: str) -> Environment:
    """As ``torch.distributed.elastic`` 2.13 starts a worker."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(nodes * per_node),
        "LOCAL_RANK": str(rank % per_node),
        "LOCAL_WORLD_SIZE": str(per_node),
        "GROUP_RANK": str(rank // per_node),
        "ROLE_RANK": str(rank),
        "ROLE_NAME": "default",
        "MASTER_ADDR": "node-a",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "3",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    } | more


def srun(rank: int, per_node: int = 4, **more: str) -> Environment:
    """As Slurm 23 starts a task of step 2 of job 4711 on two nodes."""
    node = rank // per_node
    return {
        "SLURM_JOB_ID": "4711",
        "SLURM_JOBID": "4711",
        "SLURM_STEP_ID": "2",
        "SLURM_STEPID": "2",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank % per_node),
        "SLURM_NODEID": str(node),
        "SLURM_NTASKS": "8",
        "SLURM_STEP_NUM_TASKS": "8",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
        "SLURMD_NODENAME": f"gpu{node:03}",
        "SLURM_JOB_USER": "ada",
        "SLURM_JOB_NAME": "llm",
        "CUDA_VISIBLE_DEVICES": "0,1,2,3",
    } | more


def batch_script(**more: str) -> Environment:
    """What a batch script sees: the first task of no step."""
    return {
        "SLURM_JOB_ID": "4711",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_NODEID": "0",
        "SLURM_NTASKS": "8",
        "SLURMD_NODENAME": "gpu000",
        "SLURM_JOB_USER": "ada",
    } | more


def mpirun(rank: int, **more: str) -> Environment:
    """As Open MPI 4 starts a process."""
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": "8",
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank % 4),
        "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
        "OMPI_UNIVERSE_SIZE": "8",
        "PMIX_RANK": str(rank),
        "PMIX_NAMESPACE": "prterun-gpu000-123@1",
    } | more


def pod(name: str, **more: str) -> Environment:
    """A container in Kubernetes."""
    return {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "HOSTNAME": name, "POD_NAMESPACE": "ml"} | more


def all_ranks(environments: Iterable[Environment]) -> tuple[set[str], list[int], list[str]]:
    """Run names, ranks, and reports of all ranks of one job."""
    found = [find(environment) for environment in environments]
    return (
        {identity.run for identity, _ in found},
        [identity.rank for identity, _ in found],
        [line for _, reports in found for line in reports],
    )


EIGHT = range(8)
JOBS: dict[str, tuple[str, list[Environment]]] = {
    "torchrun, static rendezvous": ("master-d0cc1292", [torchrun(rank) for rank in EIGHT]),
    "torchrun, named": ("exp7", [torchrun(rank, TORCHELASTIC_RUN_ID="exp7") for rank in EIGHT]),
    "torchrun, unequal restarts": (
        "exp7",
        [torchrun(r, TORCHELASTIC_RUN_ID="exp7", TORCHELASTIC_RESTART_COUNT=str(r // 4)) for r in EIGHT],
    ),
    "srun on two nodes": ("4711.2", [srun(rank) for rank in EIGHT]),
    "torchrun under srun": (
        "4711.2",
        [srun(rank // 4, per_node=1) | torchrun(rank) for rank in EIGHT],
    ),
    "torchrun in a batch script": ("4711", [batch_script() | torchrun(rank) for rank in EIGHT]),
    "mpirun in a batch script": (
        "4711",
        [
            batch_script(**mpirun(rank)) if rank < 4 else srun(1, per_node=1, SLURM_STEP_ID="0", **mpirun(rank))
            for rank in EIGHT
        ],
    ),
    "mpirun": ("exp7", [mpirun(rank, STRAGGLER_RUN="exp7") for rank in EIGHT]),
    "srun with PMIx": ("4711.2", [srun(rank, PMIX_RANK=str(rank)) for rank in EIGHT]),
    "PyTorchJob": (
        "ml/resnet",
        [
            pod(
                "resnet-master-0" if rank == 0 else f"resnet-worker-{rank - 1}",
                RANK=str(rank),
                WORLD_SIZE="8",
                MASTER_ADDR="resnet-master-0",
                MASTER_PORT="23456",
            )
            for rank in EIGHT
        ],
    ),
    "PyTorchJob of an old operator": (
        "ml/resnet",
        [
            pod("resnet-master-0", RANK="0", WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT="23456"),
            pod("resnet-worker-0", RANK="1", WORLD_SIZE="2", MASTER_ADDR="resnet-master-0", MASTER_PORT="23456"),
        ],
    ),
    "PyTorchJob without a master, torchrun": (
        "ml/bert",
        [pod(f"bert-worker-{r // 4}", **torchrun(r, MASTER_ADDR="bert-worker-1.ml.svc")) for r in EIGHT],
    ),
    "PyTorchJob on the host's network": (
        "ml/bert",
        [pod(f"prod-worker-{r}", RANK=str(r), WORLD_SIZE="8", MASTER_ADDR="bert-master-0") for r in EIGHT],
    ),
    "JobSet told by its label": (
        "ml/llm",
        [
            pod(f"llm-node-0-{r // 4}", JOBSET_NAME="llm", JOB_COMPLETION_INDEX=str(r // 4), **torchrun(r))
            for r in EIGHT
        ],
    ),
    "JobSet of several jobs, by their rendezvous": (
        "master-7963b077",
        [
            pod(f"llm-node-{r // 4}-0", JOB_COMPLETION_INDEX="0", **torchrun(r, MASTER_ADDR="llm-node-0-0.llm"))
            for r in EIGHT
        ],
    ),
    "Indexed Job by its rendezvous": (
        "master-2b6b3361",
        [pod(f"llm-{r}", JOB_COMPLETION_INDEX=str(r), RANK=str(r), MASTER_ADDR="llm-0.llm") for r in EIGHT],
    ),
    "Indexed Job without one": ("ml/exp-1", [pod(f"exp-1-{r}", JOB_COMPLETION_INDEX=str(r)) for r in EIGHT]),
    "Indexed Job, names of pods": (
        "ml/exp-1",
        [pod("host", POD_NAME=f"exp-1-{r}-x7k2p", JOB_COMPLETION_INDEX=str(r)) for r in EIGHT],
    ),
}


@pytest.mark.parametrize("job", JOBS)
def test_all_ranks_of_a_job_share_its_run(job: str) -> None:
    """Each launcher's environments give each rank its number and all of them one name, and nothing to report."""
    run, environments = JOBS[job]
    ranks = list(range(len(environments)))

    assert all_ranks(environments) == ({run}, ranks, [])


def test_two_trainings_are_two_runs() -> None:
    """Local trainings at the same port on two nodes, and two masters, do not share a name."""
    here = torchrun(0, MASTER_ADDR="localhost", STRAGGLER_NODE="a")
    names = {find(here | change)[0].run for change in ({}, {"STRAGGLER_NODE": "b"}, {"MASTER_ADDR": "c"})}

    assert len(names) == 3


def test_a_rank_under_torchrun() -> None:
    """All that torchrun tells is known; the restart count is the attempt."""
    identity, _ = find(torchrun(5, TORCHELASTIC_RESTART_COUNT="1", CUDA_VISIBLE_DEVICES="GPU-a,GPU-b"))

    assert identity == Identity(
        run="master-d0cc1292",
        rank=5,
        node=identity.node,
        world_size=8,
        local_rank=1,
        local_world_size=4,
        attempt=1,
        visible_devices="GPU-a,GPU-b",
        user=identity.user,
        own_reason="no_wait_phase",
        hook_version="1",
    )
    assert identity.node


def test_a_task_under_slurm() -> None:
    """Slurm tells node, user, job and step."""
    identity, _ = find(srun(5))

    assert (identity.node, identity.user, identity.slurm_job, identity.slurm_step) == ("gpu001", "ada", "4711", "2")
    assert (identity.world_size, identity.local_rank) == (8, 1)


@pytest.mark.parametrize("step", ["4294967291", "4294967290", "²", ""])
def test_what_is_no_step_of_slurm_names_none(step: str) -> None:
    """The batch script and an interactive shell have numbers of steps that no other rank of the job has."""
    assert find(batch_script(SLURM_STEP_ID=step))[0].run == "4711"


def test_a_host_that_sounds_like_a_master_is_none() -> None:
    """A PyTorchJob has one master, number 0; a node may be called anything."""
    rank = pod("x", RANK="0", WORLD_SIZE="2", MASTER_ADDR="gpu-master-7", MASTER_PORT="23456")

    assert not find(rank)[0].run.startswith("ml/")


def test_arguments_come_first() -> None:
    """What the user gives is taken before the environment, and that before the launcher."""
    environment = torchrun(5, STRAGGLER_RANK="6", STRAGGLER_RUN="env", STRAGGLER_PEER_GROUP="stage1")
    from_environment, _ = find(environment)
    from_arguments, _ = find(environment, rank=7, run="arg", peer_group="stage2", world_size=16)

    assert (from_environment.rank, from_environment.run, from_environment.peer_group) == (6, "env", "stage1")
    assert (from_arguments.rank, from_arguments.run, from_arguments.peer_group) == (7, "arg", "stage2")
    assert from_arguments.world_size == 16


def test_a_process_that_starts_ranks_of_its_own() -> None:
    """With a rank of the user's own, the launcher's local rank is that of the parent: it is not taken."""
    identity, _ = find(torchrun(0, per_node=1), rank=3, world_size=8)

    assert (identity.rank, identity.world_size, identity.local_rank) == (3, 8, None)


@pytest.mark.parametrize("environment", [{}, batch_script(), {"SLURM_JOB_ID": "1"}, pod("notebook-0")])
def test_a_process_that_no_launcher_started(environment: Environment) -> None:
    """It is rank 0 of 1, has a run of its own, and measures own time."""
    identity, reports = find(environment)

    assert (identity.rank, identity.world_size, identity.own_reason, reports) == (0, 1, "measured", [])
    assert identity.run


@pytest.mark.parametrize("value", ["abc", "-1", "1.5", "٣", "99999999999", "1e3"])
def test_a_bad_number_is_reported_and_unknown(value: str) -> None:
    """It is not guessed at, and the rank is not taken for a lone one."""
    identity, reports = find({"RANK": value, "WORLD_SIZE": "8", "MASTER_ADDR": "m"})

    assert (identity.rank, identity.world_size) == (0, None)
    assert identity.own_reason == "no_wait_phase"
    assert any("RANK=" in line for line in reports)


def test_a_rank_outside_its_world() -> None:
    """Then the size is not believed."""
    identity, reports = find({"RANK": "8", "WORLD_SIZE": "8", "STRAGGLER_RUN": "r"})

    assert (identity.rank, identity.world_size, len(reports)) == (8, None, 1)


def test_nothing_names_the_run() -> None:
    """A rank with peers and no name for the run says what to set."""
    identity, reports = find({"RANK": "1", "WORLD_SIZE": "2"})

    assert identity.run == "unnamed"
    assert "STRAGGLER_RUN" in reports[0]


def test_eight_uuids_stay_whole() -> None:
    """The list of visible devices is evidence for the join: it reaches the sidecar uncut."""
    devices = ",".join(f"GPU-{index:08}-0000-0000-0000-000000000000" for index in range(8))
    identity, _ = find(torchrun(0, CUDA_VISIBLE_DEVICES=devices))

    assert decode_identity(encode_identity(identity)).visible_devices == devices


VARIABLES = st.sampled_from(
    sorted(
        {name for launcher in LAUNCHERS for name in launcher[1:] if name}
        | {"STRAGGLER_RUN", "STRAGGLER_RANK", "MASTER_ADDR", "HOSTNAME", "SLURM_JOB_ID", "POD_NAME", "USER"}
        | {"KUBERNETES_SERVICE_HOST", "JOB_NAME", "TORCHELASTIC_RUN_ID", "CUDA_VISIBLE_DEVICES", "STRAGGLER_NODE"}
    )
)


@given(st.dictionaries(VARIABLES, st.text(max_size=40) | st.integers(-5, 20).map(str), max_size=12))
def test_any_environment_gives_an_identity_that_a_reader_takes(environment: Environment) -> None:
    """Whatever the variables hold, nothing is raised, and the identity survives the wire."""
    identity, _ = find(environment)
    decoded = decode_identity(encode_identity(identity))

    assert (decoded.run, decoded.rank, decoded.world_size) == (identity.run, identity.rank, identity.world_size)


def test_changes_are_checked() -> None:
    """What is no field, or no value for one, is reported and left out; the rest is taken."""
    reports: list[str] = []
    before = Identity("r", 0)
    fields = {"rank": 3, "gpu": "x", "colour": 1, "clock": "moon", "framework": " torch\n9 ", "world_size": None}
    after = with_changes(before, fields, lambda _about, text: reports.append(text))

    assert after == before._replace(rank=3, framework="torch 9")
    assert len(reports) == 3


def test_a_rank_that_cannot_be_read_is_said_to_be_rank_0() -> None:
    """Where a launcher's rank is no number, the process is rank 0 of an unknown size, and a report says both."""
    said: dict[str, str] = {}
    identity = find_identity({"RANK": "abc"}, warn=said.__setitem__, hook_version="")

    assert (identity.rank, identity.world_size) == (0, None)
    assert "rank 0" in said["rank"]
    assert "abc" in said["RANK"]
