"""The Slurm scripts, run as Slurm runs them: with next to no environment, and on nodes where everything is wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from deploy_tools import DEPLOY, run, tool
from straggler.hook.identity import find_identity
from straggler.join.visible import visible_gpu
from straggler.wire.records import Identity

SLURM = DEPLOY / "slurm"
UUID = "GPU-5fd4a7f5-1b1c-2a7c-1f1e-2b6a4d0c9e11"
TASK = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "9",
    "SLURM_STEP_NUM_TASKS": "16",
    "SLURM_LOCALID": "1",
    "SLURMD_NODENAME": "gpu-7",
    "SLURM_JOB_USER": "ada",
    "SLURM_RESTART_COUNT": "2",
}


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """An installed copy, with directories of its own."""
    folder = tmp_path / "slurm"
    shutil.copytree(SLURM, folder)
    (tmp_path / "rings").mkdir()
    (folder / "straggler.conf").write_text(
        f"ring_dir={tmp_path}/rings\njob_mapping_dir={tmp_path}/mapping\n", encoding="utf-8"
    )
    return folder


def slurm(script: Path, env: Mapping[str, str]) -> tuple[int, str]:
    """Run a script with this environment and nothing else."""
    return run(script, env=env)


def task_environment(scripts: Path, env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a task after Slurm has read what TaskProlog prints."""
    code, said = slurm(scripts / "straggler-task-prolog", env)
    assert code == 0
    lines = [re.fullmatch(r"export (\w+)=(.*)", line) for line in said.splitlines()]
    assert all(lines), said
    return {**env, **{line[1]: line[2] for line in lines if line}}


def identity(environment: Mapping[str, str]) -> Identity:
    """Who the hook takes a task for; it must have nothing to complain about."""

    def warn(subject: str, text: str) -> None:
        pytest.fail(f"{subject}: {text}")

    return find_identity(environment, warn=warn, hook_version="1")


def mapping(scripts: Path) -> dict[str, list[str]]:
    """Jobs by GPU, as dcgm-exporter reads them."""
    folder = scripts.parent / "mapping"
    return {path.name: path.read_text("utf-8").splitlines() for path in folder.iterdir()} if folder.exists() else {}


def test_the_hook_knows_a_task(scripts: Path) -> None:
    """Run, rank, node, user and restart count of a task come out right, and its ring goes where the sidecar looks."""
    environment = task_environment(scripts, TASK)
    known = identity(environment)

    assert (known.run, known.rank, known.world_size, known.local_rank) == ("4711.0", 9, 16, 1)
    assert (known.node, known.user, known.attempt) == ("gpu-7", "ada", 2)
    assert (known.slurm_job, known.slurm_step) == ("4711", "0")
    assert environment["STRAGGLER_DIR"] == str(scripts.parent / "rings")


def test_the_hooks_own_choice_is_not_forced_on_it(scripts: Path) -> None:
    """Where the directory is the default one, the hook keeps its second choice for containers that lack the first."""
    (scripts / "straggler.conf").unlink()

    assert "STRAGGLER_DIR" not in task_environment(scripts, TASK)


def test_a_heterogeneous_job_is_one_run(scripts: Path) -> None:
    """Its components have different job ids, and their ranks train together."""
    runs = {
        identity(task_environment(scripts, {**TASK, "SLURM_JOB_ID": job, "SLURM_HET_JOB_ID": "4711"})).run
        for job in ("4711", "4712")
    }

    assert runs == {"4711.0"}


def test_the_batch_script_of_a_heterogeneous_job_names_no_run(scripts: Path) -> None:
    """Its environment goes on into every step, which would then all be one run."""
    batch = {**TASK, "SLURM_HET_JOB_ID": "4711", "SLURM_STEP_ID": "4294967291"}

    assert "STRAGGLER_RUN" not in task_environment(scripts, batch)


def test_what_the_user_set_stays(scripts: Path) -> None:
    """A name that the user chose for the run is not replaced."""
    mine = {"STRAGGLER_RUN": "mine", "STRAGGLER_DIR": "/dev/shm/mine", "STRAGGLER_NODE": "n", "SLURM_HET_JOB_ID": "1"}
    environment = {**TASK, **mine}

    assert task_environment(scripts, environment) == environment


def test_uuids_in_cuda_visible_devices_name_the_gpu(scripts: Path) -> None:
    """Since Slurm 25.11 the variable holds UUIDs: each rank's own is found."""
    environment = {**TASK, "CUDA_VISIBLE_DEVICES": f"GPU-00000000-0000-0000-0000-000000000000,{UUID}"}
    found = visible_gpu(identity(task_environment(scripts, environment)))

    assert found is not None
    assert found.named is not None
    assert found.named.uuid == UUID


def test_a_value_cannot_add_a_line(scripts: Path) -> None:
    """A node name with a line break must not become another variable."""
    code, said = slurm(scripts / "straggler-task-prolog", {**TASK, "SLURMD_NODENAME": "a\nexport LD_PRELOAD=/x"})

    assert (code, "LD_PRELOAD" in said) == (0, False)


@pytest.mark.parametrize("gpus", ["0,3", "3,0", "0,3,", "0,x,3", " 0,3 ".strip()])
def test_jobs_are_written_down_by_gpu(scripts: Path, gpus: str) -> None:
    """Indices in any order; what is none is left out."""
    assert slurm(scripts / "straggler-prolog", {"SLURM_JOB_ID": "1", "SLURM_JOB_GPUS": gpus}) == (0, "")
    assert mapping(scripts) == {"0": ["1"], "3": ["1"]}


def test_jobs_on_one_gpu_come_and_go(scripts: Path) -> None:
    """A job takes back its own line, also where another's id begins alike; a prolog that runs again adds nothing."""
    for job in ("1", "11", "11"):
        slurm(scripts / "straggler-prolog", {"SLURM_JOB_ID": job, "SLURM_JOB_GPUS": "0-1"})
    both = mapping(scripts)
    slurm(scripts / "straggler-epilog", {"SLURM_JOB_ID": "1", "SLURM_JOB_GPUS": "0-1"})
    one = mapping(scripts)
    slurm(scripts / "straggler-epilog", {"SLURM_JOB_ID": "11", "SLURM_JOB_GPUS": "0-1"})

    assert (both, one) == ({"0": ["1", "11"], "1": ["1", "11"]}, {"0": ["11"], "1": ["11"]})
    assert mapping(scripts) == {}


def test_jobs_that_start_at_once_are_all_written_down(scripts: Path) -> None:
    """Twenty prologs at a time lose no line."""
    started = [
        subprocess.Popen([scripts / "straggler-prolog"], env={"SLURM_JOB_ID": str(job), "SLURM_JOB_GPUS": "0"})
        for job in range(20)
    ]

    assert [process.wait(60) for process in started] == [0] * 20
    assert sorted(mapping(scripts)["0"], key=int) == [str(job) for job in range(20)]


def test_uuids_are_turned_into_indices(scripts: Path) -> None:
    """The index of a UUID is asked from the driver's tool."""
    said = run(
        "bash", "-c",
        f'nvidia-smi() {{ printf "0, GPU-00000000-0000-0000-0000-000000000000\\n5, {UUID}\\n"; }}; '
        'timeout() { shift 3; "$@"; }; '
        f'. {scripts}/job-mapping.bash; job_gpus',
        env={"SLURM_JOB_GPUS": UUID, "PATH": "/usr/bin:/bin"},
    )  # fmt: skip

    assert said == (0, "5\n")


@pytest.mark.parametrize("script", ["straggler-prolog", "straggler-epilog", "straggler-task-prolog"])
@pytest.mark.parametrize("trouble", ["nothing", "no conf", "broken conf", "a file", "no library", "bad job"])
def test_no_trouble_reaches_the_job(scripts: Path, script: str, trouble: str) -> None:
    """Exit code 0 whatever is wrong: anything else would drain the node or fail the task."""
    environment = {**TASK, "SLURM_JOB_GPUS": "0"}
    match trouble:
        case "nothing":
            environment = {}
        case "no conf":
            (scripts / "straggler.conf").write_text("ring_dir=/nowhere\njob_mapping_dir=\n", encoding="utf-8")
        case "broken conf":
            (scripts / "straggler.conf").write_text("if then ((\njob_mapping_dir=/proc/nowhere\n", encoding="utf-8")
            environment["SLURM_JOB_ID"] = ""  # the default directory stays untouched
        case "a file":
            (scripts.parent / "mapping").write_text("", encoding="utf-8")
        case "no library":
            (scripts / "job-mapping.bash").unlink()
        case "bad job":
            environment |= {"SLURM_JOB_ID": "1; touch /tmp/x", "SLURM_JOB_GPUS": "../../x,$(id),9999999"}

    assert slurm(scripts / script, environment)[0] == 0


@pytest.mark.parametrize("mode", [None, 0o755, 0o722], ids=["missing", "not writable", "not to be entered"])
def test_a_directory_that_cannot_be_written_is_not_given_to_the_hook(mode: int | None) -> None:
    """The hook then finds the user's own directory, instead of having no other choice."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become somebody without rights")
    with tempfile.TemporaryDirectory(dir="/tmp") as place:  # pytest's own directories are root's alone
        Path(place).chmod(0o755)
        rings = Path(place, "rings")
        if mode is not None:
            rings.mkdir()
            rings.chmod(mode)
        shutil.copy(SLURM / "straggler-task-prolog", place)
        Path(place, "straggler.conf").write_text(f"ring_dir={rings}\n", encoding="utf-8")
        user = (tool("setpriv"), "--reuid=12345", "--regid=12345", "--clear-groups")
        before = run(*user, f"{place}/straggler-task-prolog", env=TASK)
        rings.mkdir(exist_ok=True)
        rings.chmod(0o3733)
        after = run(*user, f"{place}/straggler-task-prolog", env=TASK)

    assert before == (0, "export STRAGGLER_NODE=gpu-7\n")
    assert after == (0, f"export STRAGGLER_DIR={rings}\nexport STRAGGLER_NODE=gpu-7\n")


def test_shellcheck_is_content() -> None:
    """No quoting mistake, no misspelt variable, in scripts and examples."""
    files = sorted(path for path in SLURM.rglob("straggler-*")) + sorted(SLURM.glob("examples/*.sbatch"))
    more = [DEPLOY / "systemd/install", *sorted((DEPLOY / "kubernetes/chart/files").glob("*.sh"))]

    assert run(tool("shellcheck"), "-x", *files, *more, cwd=SLURM) == (0, "")


def test_targets_are_what_sinfo_says(tmp_path: Path) -> None:
    """Each node once, as file_sd for Prometheus; without an answer the file stays as it was."""
    sinfo = tmp_path / "bin/sinfo"
    sinfo.parent.mkdir()
    sinfo.write_text('#!/bin/sh\nprintf "gpu-2\\ngpu-1\\ngpu-2\\n"\n', encoding="utf-8")
    sinfo.chmod(0o755)
    file = tmp_path / "straggler.json"
    env = {"PATH": f"{sinfo.parent}:/usr/bin:/bin"}

    good = run(SLURM / "straggler-targets", file, "gpu", env=env)
    written = json.loads(file.read_text(encoding="utf-8"))
    sinfo.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    bad = run(SLURM / "straggler-targets", file, env=env)

    assert (good, written) == ((0, ""), [{"targets": ["gpu-1:10110", "gpu-2:10110"]}])
    assert bad[0] != 0
    assert json.loads(file.read_text(encoding="utf-8")) == written
    assert {path.name for path in tmp_path.iterdir()} == {"bin", "straggler.json"}
