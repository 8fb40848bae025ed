"""The scrape examples, each read by the program that it is for."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from deploy_tools import DEPLOY, ROOT, run, tool
from servers import promtool

EXAMPLES = DEPLOY / "prometheus"
FOR_PROMETHEUS = sorted(path for path in EXAMPLES.glob("*.yml") if path.stem != "vmagent")
LINKED = re.compile(r"^( +)kubernetes_sd_configs:\n(?:\1 .*\n)+", re.MULTILINE)


def vmagent(file: Path) -> tuple[int, str]:
    """Let vmagent read a configuration strictly and end."""
    flags = (f"-promscrape.config={file}", "-promscrape.config.strictParse", "-dryRun")
    return run(tool("vmagent"), *flags, "-remoteWrite.url=http://127.0.0.1:1/")


@pytest.mark.servers
@pytest.mark.parametrize("example", FOR_PROMETHEUS, ids=lambda path: str(path.stem))
def test_promtool_reads_the_examples(example: Path, tmp_path: Path) -> None:
    """Prometheus takes each file; where a distribution built it without Kubernetes, vmagent takes that part."""
    shutil.copytree(EXAMPLES, tmp_path / "p")
    for name in ("straggler-ca.pem", "straggler-password"):
        (tmp_path / "p" / name).touch()
    text = LINKED.sub(r"\1static_configs: []\n", example.read_text(encoding="utf-8"))
    file = tmp_path / "p" / example.name
    file.write_text(text, encoding="utf-8")

    assert "kubernetes_sd" not in text
    assert "SUCCESS" in promtool("check", "config", str(file))


@pytest.mark.servers
@pytest.mark.parametrize("name", ["vmagent", "kubernetes", "file_sd", "slurm"])
def test_vmagent_reads_the_examples(name: str) -> None:
    """Without a key that it does not know."""
    code, said = vmagent(EXAMPLES / f"{name}.yml")

    assert code == 0, said


@pytest.mark.servers
def test_vmagent_sees_a_mistake(tmp_path: Path) -> None:
    """A misspelt key does not get past it."""
    file = tmp_path / "wrong.yml"
    file.write_text((EXAMPLES / "vmagent.yml").read_text("utf-8").replace("file_sd_configs", "file_sd_config"), "utf-8")

    assert vmagent(file)[0] != 0


def test_what_is_sent_on_is_all_that_rules_read() -> None:
    """The filter before remote write keeps every metric of the catalogue."""
    config = yaml.safe_load((EXAMPLES / "remote-write.yml").read_text(encoding="utf-8"))
    (keep,) = config["remote_write"][0]["write_relabel_configs"]
    text = (ROOT / "tests/expected/metric_names.txt").read_text(encoding="utf-8")
    names = re.findall(r"^\w+", text, re.MULTILINE)

    assert names
    assert [name for name in names if not re.fullmatch(keep["regex"], name)] == []


def test_all_examples_call_the_sidecars_alike() -> None:
    """Dashboards and alerts about the exporter itself go by the job's name."""
    jobs = {
        config["job_name"]
        for path in EXAMPLES.glob("*.yml")
        for config in yaml.safe_load(path.read_text(encoding="utf-8"))["scrape_configs"]
    }

    assert jobs == {"straggler-exporter", "straggler-exporter-in-pod"}  # the latter's series are renamed
