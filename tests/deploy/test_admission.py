"""The chart's admission policy, evaluated on pods."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from deploy_chart import KUBERNETES, SCRIPTS, example_objects, objects, one
from deploy_tools import TOOLS, tool

pytestmark = pytest.mark.slow  # each render and each verdict is a process

MOUNT = {"name": "straggler", "mountPath": "/run/straggler"}


def training_pod() -> dict[str, Any]:
    """A pod as the examples make it."""
    (job,) = [item for item in example_objects(KUBERNETES / "examples/plain-job.yaml") if item["kind"] == "Job"]
    spec: dict[str, Any] = job["spec"]["template"]["spec"]
    return {"metadata": {"name": "llm-0", "namespace": "training"}, "spec": spec}


def changed(path: str = "/run/straggler", **container: Any) -> dict[str, Any]:
    """The same pod with another host path, or with other fields of its container."""
    pod = training_pod()
    pod["spec"]["volumes"][0]["hostPath"]["path"] = path
    pod["spec"]["containers"][0] |= container
    return pod


@pytest.mark.parametrize(
    ("pod", "word"),
    [
        (training_pod(), None),
        (changed("/data", volumeMounts=[MOUNT]), None),
        (changed("/run/straggler-2", volumeMounts=[MOUNT]), None),
        ({"spec": {"containers": [{"name": "plain"}]}}, None),
        (changed(volumeMounts=[MOUNT]), "subPathExpr"),
        (changed(volumeMounts=[{**MOUNT, "subPathExpr": "other/$(POD_UID)"}]), "subPathExpr"),
        (changed(volumeMounts=[{**MOUNT, "subPath": "other/uid"}]), "subPathExpr"),
        (changed("/run/straggler/other/uid"), "itself"),
        (changed("/run//straggler"), "itself"),
        (changed("/var/run/straggler"), "itself"),
        (changed(env=[{"name": key, "value": "other"} for key in ("POD_NAMESPACE", "POD_UID")]), "must come from"),
        (changed(env=[]), "must come from"),
    ],
)  # fmt: skip
def test_the_admission_policy_lets_a_pod_into_its_own_directory_only(pod: dict[str, Any], word: str | None) -> None:
    """Its expressions, evaluated: the examples pass, and every way around them is refused with a reason."""
    assert_refused(pod, word)


def test_the_admission_policy_sees_init_and_debug_containers() -> None:
    """A container that comes first, or one that is added later, is no way around it either."""
    pod = training_pod()
    pod["spec"]["initContainers"] = [{"name": "first", "volumeMounts": [MOUNT]}]
    assert_refused(pod, "subPathExpr")

    pod = training_pod()
    pod["spec"]["ephemeralContainers"] = [{"name": "debug", "volumeMounts": [MOUNT]}]
    assert_refused(pod, "debug container")


def assert_refused(pod: dict[str, Any], word: str | None) -> None:
    """Fail unless the policy refuses the pod with a message that holds the word, or lets it in if there is none."""
    policy = one(objects({"admissionPolicy": {"enabled": True}}), "ValidatingAdmissionPolicy")
    if not (TOOLS / "node_modules").is_dir():
        pytest.skip("no npm here when `make deploy-test` installed its tools")
    done = subprocess.run(
        [tool("node"), str(SCRIPTS / "policy.mjs"), str(TOOLS)],
        input=json.dumps({"policy": policy, "pods": [pod]}), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (messages,) = json.loads(done.stdout)
    assert (not messages) if word is None else any(word in message for message in messages), messages
