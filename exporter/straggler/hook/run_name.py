"""The name of the run: the same on all ranks, and another one for another training.

Asked in this order: ``STRAGGLER_RUN``; Slurm's job and step; the name of the Kubernetes job, where something tells it
for certain; ``TORCHELASTIC_RUN_ID`` unless it is ``none`` (what a static rendezvous says); the name of a Kubeflow job
as its pods spell it; a checksum of the rendezvous address, which all ranks share or they could not meet.

Only what each rank sees alike counts. torchrun counts restarts on each node for itself, so they are no part of it. A
pod with the host's network is called like its node, so a pod's name counts only where the rendezvous host agrees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import getpid
from zlib import crc32

_JOB_VARIABLES = ("JOBSET_NAME", "PYTORCHJOB_NAME", "TRAINJOB_NAME", "KUBERNETES_JOB_NAME", "JOB_NAME")
"""Set by manifests through the downward API: Kubernetes itself tells a pod only its own name."""
_KUBEFLOW_ROLES = ("master", "worker", "chief", "evaluator")
"""A PyTorchJob's pods, their host names and services are called ``resnet-master-0``, ``resnet-worker-3``."""
_LOOPBACK = ("", "localhost", "0.0.0.0", "::1")  # noqa: S104 - compared with, not listened on
_FIRST_SPECIAL_STEP = 4_294_967_280
"""Slurm numbers the batch script, the interactive step and their like from the top of 32 bits."""


def find_run(
    environment: Mapping[str, str], namespace: str, node: str, *, alone: bool, warn: Callable[[str, str], None]
) -> str:
    """Name the run.

    Args:
        environment: ``os.environ``.
        namespace: the pod's, if known.
        node: tells apart what is named by a loopback address, and lone processes.
        alone: the process is known to have no peers.
        warn: called if nothing names the run.
    """
    name = environment.get("STRAGGLER_RUN", "").strip() or _slurm(environment)
    if name:
        return name
    if "KUBERNETES_SERVICE_HOST" in environment:
        job = _certain_job(environment) or _torchelastic(environment) or _spelt_job(environment)
        name = f"{namespace}/{job}" if namespace and job else job
    else:
        name = _torchelastic(environment)
    name = name or _rendezvous(environment, node)
    if name:
        return name
    if alone:
        return f"local-{node}-{getpid()}"
    warn("run", "nothing in the environment names this training run: set STRAGGLER_RUN or pass StepTimer(run=...)")
    return "unnamed"


def _slurm(environment: Mapping[str, str]) -> str:
    job, step = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_STEP_ID", "")
    if not job:
        return ""
    # mpirun starts its processes on other nodes through steps of its own, and those on the first node in none.
    is_step = step.isdecimal() and int(step) < _FIRST_SPECIAL_STEP and "OMPI_COMM_WORLD_RANK" not in environment
    return f"{job}.{step}" if is_step else job


def _certain_job(environment: Mapping[str, str]) -> str:
    given = next((environment[key] for key in _JOB_VARIABLES if environment.get(key)), "")
    if given:
        return given
    job, role, index = _kubeflow_parts(_master(environment))
    return job if (role, index) == ("master", "0") else ""


def _torchelastic(environment: Mapping[str, str]) -> str:
    name = environment.get("TORCHELASTIC_RUN_ID", "").strip()
    return "" if name.lower() == "none" else name


def _spelt_job(environment: Mapping[str, str]) -> str:
    """The job in the pod's own name; of an Indexed Job only if there is no rendezvous to go by."""
    master = _master(environment)
    pod = environment.get("POD_NAME") or environment.get("HOSTNAME", "")
    job, _role, _index = _kubeflow_parts(pod)
    if job and (not master or _kubeflow_parts(master)[0] == job):
        return job
    index = environment.get("JOB_COMPLETION_INDEX", "")
    if index and "MASTER_ADDR" not in environment:
        before, found, after = pod.rpartition(f"-{index}")  # llm-3, and llm-3-x7k2p for the pod
        if found and (not after or (after[0] == "-" and len(after) == 6)):
            return before
    return ""


def _master(environment: Mapping[str, str]) -> str:
    """First label of the rendezvous host; ``""`` for an address of digits and on the master itself."""
    host = environment.get("MASTER_ADDR", "")
    label = host.partition(".")[0]
    return "" if host in _LOOPBACK or ":" in host or label.isdigit() else label


def _kubeflow_parts(label: str) -> tuple[str, str, str]:
    """``resnet-worker-3`` is worker 3 of ``resnet``; empty for another form."""
    rest, _, index = label.rpartition("-")
    job, _, role = rest.rpartition("-")
    return (job, role, index) if job and role in _KUBEFLOW_ROLES and index.isdigit() else ("", "", "")


def _rendezvous(environment: Mapping[str, str], node: str) -> str:
    """A checksum of the rendezvous address: the address itself would name a place, not a run."""
    host, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
    if not host:
        return ""
    if host in _LOOPBACK or host.startswith("127."):
        host = node  # all ranks are here; elsewhere the same address is another run
    return f"master-{crc32(f'{host}:{port}'.encode('utf-8', 'replace')):08x}"
