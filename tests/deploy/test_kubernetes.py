"""The chart, its manifests and the examples: judged by Helm and by the schemas of those who will read them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy_chart import CHART, KUBERNETES, SCRIPTS, example_objects, judge, objects, one, pods
from deploy_tools import ROOT, TOOLS, tool

pytestmark = pytest.mark.slow  # each render and each verdict is a process

EXAMPLES = sorted((KUBERNETES / "examples").glob("*.yaml"))
OPERATOR = "monitoring.coreos.com/v1"
FOREIGN = {"JobSet", "PyTorchJob", "ClusterTrainingRuntime", "TrainJob", "VMRule"}
"""Kinds whose schemas are in no package; their pods are checked."""

EVERYTHING = {
    "podMonitor": {
        "enabled": True,
        "inPod": True,
        "labels": {"release": "kps"},
        "cluster": "c1",
        "honorLabels": True,
        "endpoint": {
            "scheme": "https",
            "tlsConfig": {"serverName": "straggler", "ca": {"secret": {"name": "scrape", "key": "ca.crt"}}},
            "basicAuth": {
                "username": {"name": "scrape", "key": "username"},
                "password": {"name": "scrape", "key": "p"},
            },
        },
    },
    "prometheusRule": {"enabled": True, "labels": {"release": "kps"}, "namespace": "monitoring"},
    "vmRule": {"enabled": True},
    "dashboards": {"enabled": True, "annotations": {"grafana_folder": "Training"}},
    "links": {"grafana": "https://g.corp/", "runbooks": "https://wiki.corp/straggler"},
    "admissionPolicy": {"enabled": True},
    "nccl": {"logs": "/run/straggler/*/*/nccl.*.log"},
    "rings": {"namespacedRuns": True, "owners": "0,1000-60000"},
    "push": {"tokensSecret": "tokens"},
    "webConfigSecret": "web",
    "nvml": {"enabled": True},
    "hostPID": True,
    "probes": {"scheme": "https"},
    "image": {"digest": f"sha256:{'0' * 64}", "pullSecrets": ["pull"]},
    "config": {"hang_seconds": 300, "dcgm": {"timeout_seconds": 3}},
    "extraVolumes": [{"name": "tls", "secret": {"secretName": "tls"}}],
    "extraVolumeMounts": [{"name": "tls", "mountPath": "/tls", "readOnly": True}],
    "priorityClassName": "telemetry",
    "podLabels": {"team": "infra"},
    "podAnnotations": {"a": "b"},
}
LEAST: dict[str, Any] = {
    "ringDirectory": {"prepare": "none", "sweep": {"enabled": False}},
    "infiniband": {"hostSys": False},
    "networkPolicy": {"enabled": False},
    "dcgm": {"service": {"enabled": False}},
    "nodeSelector": {"nvidia.com/gpu.present": None},
    "tolerations": [],
    "probes": {"scheme": "tcp"},
}
DIRECTORY = {"ringDirectory": {"prepare": "directory"}, "dcgm": {"url": "http://127.0.0.1:9400/metrics"}}


def check_schemas(found: list[dict[str, Any]]) -> None:
    """Fail unless each object, and each pod in a foreign one, is what its readers expect."""
    own = [item for item in found if item["apiVersion"] != OPERATOR and item["kind"] not in FOREIGN]
    foreign = [spec for item in found if item["kind"] in FOREIGN for spec in pods(item)]
    wrapped = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec} for spec in foreign]
    assert [problem for problem in judge("validate", given=own + wrapped) if problem] == []
    operators = [item for item in found if item["apiVersion"] == OPERATOR]
    if operators and (TOOLS / "node_modules").is_dir():
        done = subprocess.run(
            [tool("node"), str(SCRIPTS / "crds.mjs"), str(TOOLS)],
            input=json.dumps(operators),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert [problem for problem in json.loads(done.stdout) if problem] == []


@pytest.mark.parametrize(
    "values", [{}, EVERYTHING, LEAST, DIRECTORY], ids=["default", "everything", "least", "directory"]
)
def test_helm_and_the_schemas_are_content(values: Any) -> None:
    """Helm's linter finds nothing, and each object has only keys and types that its reader knows."""
    assert judge("lint", CHART, given=values) == []
    check_schemas(objects(values))


def test_the_judges_see_a_mistake() -> None:
    """A misspelt key and a wrong type do not get past them."""
    wrong = one(objects({}), "DaemonSet")
    wrong["spec"]["template"]["spec"]["enableServiceLink"] = True

    assert judge("validate", given=[wrong]) != [None]
    monitor = one(objects({"podMonitor": {"enabled": True}}), "PodMonitor")
    monitor["spec"]["podMetricsEndpoints"][0]["interval"] = "often"
    with pytest.raises(AssertionError):
        check_schemas([monitor])


@pytest.mark.parametrize(
    "values",
    [
        {"ringDirectry": {}},
        {"ringDirectory": {"prepare": "maybe"}},
        {"ringDirectory": {"hostPath": "/run"}},
        {"image": {"digest": "sha256:1"}},
        {"podMonitor": {"interval": "often"}},
        {"rings": {"owners": "root"}},
        {"nccl": {"logs": "nccl.log"}},
        {"probes": {"scheme": "ftp"}},
    ],
)
def test_values_that_cannot_be_used_are_refused(values: Any) -> None:
    """A misspelt value does not silently leave the default in force."""
    assert "error" in judge("render", CHART, given=values)


def test_each_value_is_documented_and_in_the_schema() -> None:
    """Every key of values.yaml is one of the schema's, and the other way round."""

    def keys(value: Any, schema: Any, path: str = "") -> Iterator[tuple[str, str]]:
        properties = schema.get("properties")
        if properties is None:
            return
        for key in sorted(set(value) ^ set(properties)):
            yield path, key
        for key in set(value) & set(properties):
            yield from keys(value[key], properties[key], f"{path}{key}.")

    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    del schema["properties"]["global"]

    assert list(keys(values, schema)) == []


@pytest.mark.parametrize(
    "values", [{}, EVERYTHING, LEAST, DIRECTORY], ids=["default", "everything", "least", "directory"]
)
def test_what_stays_running_has_no_privileges(values: Any) -> None:
    """No token, no capability, no write but to the rings; only the init container that prepares has more."""
    pod = one(objects(values), "DaemonSet")["spec"]["template"]["spec"]

    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not any(pod.get(key) for key in ("hostNetwork", "hostIPC"))
    assert pod.get("hostPID", False) is values.get("hostPID", False)
    for container in pod["containers"]:
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert {"memory", "cpu"} == set(container["resources"]["limits"])
        assert security.get("runAsNonRoot", True) or container["name"] == "sweep"
    hosts = {volume["name"] for volume in pod["volumes"] if "hostPath" in volume}
    for container in pod["containers"]:
        mounts = {mount["name"]: mount for mount in container["volumeMounts"] if mount["name"] in hosts}
        assert {name for name, mount in mounts.items() if not mount.get("readOnly")} == {"rings"}
    privileged = [item["name"] for item in pod.get("initContainers", []) if item["securityContext"].get("privileged")]
    assert privileged == (["prepare"] if values.get("ringDirectory", {}).get("prepare", "tmpfs") == "tmpfs" else [])


@pytest.mark.parametrize(
    "values", [{}, EVERYTHING, LEAST, DIRECTORY], ids=["default", "everything", "least", "directory"]
)
def test_the_sidecar_takes_its_settings(values: Any, tmp_path: Path) -> None:
    """The sidecar itself accepts the rendered settings, and what the user gave stands in them."""
    from straggler.sidecar.settings import load

    text = one(objects(values), "ConfigMap", "straggler")["data"]["straggler.yaml"]
    file = tmp_path / "straggler.yaml"
    file.write_text(text, encoding="utf-8")

    config = load({}, {}, file)

    assert str(config.listen) == ":10110"
    assert config.dcgm.same_node is (values is not LEAST)
    assert config.hang_seconds == (300 if values is EVERYTHING else 120)
    assert str(config.infiniband.sys_dir) == ("/sys" if values is LEAST else "/host/sys")
    assert config.nccl.logs == values.get("nccl", {}).get("logs", "")
    assert config.rings.namespaced_runs is (values is EVERYTHING)
    assert config.rings.owners == ("0,1000-60000" if values is EVERYTHING else "")


def test_dcgm_is_asked_on_the_own_node_only() -> None:
    """The Service that the sidecar's settings name leads nowhere but to its own node, and the policy lets it."""
    found = objects({})
    service = one(found, "Service", "-dcgm")
    settings = yaml.safe_load(one(found, "ConfigMap", "straggler")["data"]["straggler.yaml"])
    (egress,) = [rule for rule in one(found, "NetworkPolicy")["spec"]["egress"] if rule["ports"][0]["port"] == 9400]

    assert service["spec"]["internalTrafficPolicy"] == "Local"
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    assert settings["dcgm"] == {"url": f"http://{name}.{namespace}.svc:9400/metrics", "same_node": True}
    assert egress["to"][0]["podSelector"]["matchLabels"] == service["spec"]["selector"]


def test_rules_and_dashboards_are_the_projects_own() -> None:
    """The chart ships each rule group and each dashboard unchanged, but for the addresses in the links."""
    found = objects(EVERYTHING)
    groups: dict[str, list[Any]] = {"PrometheusRule": [], "VMRule": []}
    for item in found:
        if item["kind"] in groups:
            groups[item["kind"]] += item["spec"]["groups"]
    sources = sorted((ROOT / "rules").glob("[ar]*/*.yaml"))
    texts = [path.read_text(encoding="utf-8") for path in sources if path.parent.name in ("alerts", "recording")]
    linked = [
        text.replace("https://grafana.example", "https://g.corp").replace(
            "https://runbooks.example/straggler", "https://wiki.corp/straggler"
        )
        for text in texts
    ]
    expected = sorted(
        (group for text in linked for group in yaml.safe_load(text)["groups"]), key=lambda group: str(group["name"])
    )
    boards = {
        key: json.loads(text)
        for item in found
        if "dashboard" in item["metadata"]["name"]
        for key, text in item["data"].items()
    }

    for shipped in groups.values():
        assert sorted(shipped, key=lambda group: str(group["name"])) == expected
    assert boards == {
        f"straggler-{path.name}": json.loads(path.read_text("utf-8")) for path in (ROOT / "dashboards").glob("*.json")
    }
    assert {item["metadata"]["labels"].get("release") for item in found if item["kind"] == "PrometheusRule"} == {"kps"}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("straggler.yaml", {}),
        ("straggler-podmonitor.yaml", {"podMonitor": {"enabled": True}}),
    ],
)
def test_the_manifests_are_what_the_chart_renders(name: str, values: Any, request: pytest.FixtureRequest) -> None:
    """The plain manifests are the chart with its defaults; ``make golden`` rewrites them."""
    rendered = judge("render", CHART, given=values)
    keep = [
        text
        for path, text in sorted(rendered.items())
        if path.endswith(".yaml") and ("podmonitor" in path) == bool(values)
    ]
    text = "\n---\n".join(part.strip() for part in keep if part.strip())
    text = (
        "# Rendered from the chart with its defaults, by `make golden` after `make deploy-test`: do not edit.\n"
        + re.sub(r"\n *app\.kubernetes\.io/managed-by: Helm", "", text)
        + "\n"
    )
    file = KUBERNETES / "manifests" / name
    if request.config.getoption("--golden"):
        file.write_text(text, encoding="utf-8")

    assert file.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.stem))
def test_examples_have_valid_pods(path: Path) -> None:
    """Kubernetes' own kinds, and the pods in all others, fit their schemas."""
    check_schemas(example_objects(path))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.stem))
def test_examples_name_the_rank_and_the_directory(path: Path) -> None:
    """Every training container mounts rings where the hook looks for them, and what subPathExpr names is set."""
    specs = [spec for item in example_objects(path) for spec in pods(item)]

    assert specs
    for spec in specs:
        (container,) = spec["containers"]
        names = {variable["name"] for variable in container["env"]}
        (mount,) = container["volumeMounts"]
        (volume,) = [volume for volume in spec["volumes"] if volume["name"] == mount["name"]]
        assert mount["mountPath"] == "/run/straggler"
        assert {"POD_NAMESPACE", "POD_NAME", "NODE_NAME"} <= names
        assert names & {"JOBSET_NAME", "PYTORCHJOB_NAME", "TRAINJOB_NAME", "KUBERNETES_JOB_NAME"}
        if "hostPath" in volume:
            # "Directory" would keep pods from starting where the DaemonSet has not been.
            assert volume["hostPath"] == {"path": "/run/straggler", "type": "DirectoryOrCreate"}
            assert set(re.findall(r"\$\((\w+)\)", mount["subPathExpr"])) == {"POD_NAMESPACE", "POD_UID"} <= names
        else:
            assert volume["emptyDir"]["medium"] == "Memory"
            assert spec["securityContext"]["fsGroup"]


def test_no_variable_of_the_examples_is_unknown_to_the_hook() -> None:
    """The names in the examples are names that the hook reads."""
    code = "".join(path.read_text("utf-8") for path in (ROOT / "exporter/straggler/hook").glob("*.py"))
    names = {
        variable["name"]
        for path in EXAMPLES
        for item in example_objects(path)
        for spec in pods(item)
        for variable in spec["containers"][0]["env"]
    }

    assert {name for name in names if f'"{name}"' not in code} == {"POD_UID"}
