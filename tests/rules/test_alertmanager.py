"""Who is told what: the shipped Alertmanager example, judged by Alertmanager itself."""

from __future__ import annotations

import json
import queue
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from rulebook import RULES, Rule, alerts
from servers import crew_logs, program
from straggler.simulate.local_http import LocalHandler, LocalServer, read_local
from straggler.simulate.processes import Crew
from straggler.simulate.servers import free_port, wait_until_ready

CONFIG = RULES / "alertmanager" / "alertmanager.yml"
TEMPLATES = RULES / "alertmanager" / "templates"
Labels = Mapping[str, str]

RANK = {"cluster": "c1", "run": "llama", "peer_group": "0", "rank": "2", "rank_node": "node-a"}
RUN = {"cluster": "c1", "run": "llama"}


def amtool(*arguments: str) -> str:
    """What amtool says; fails unless it is content."""
    done = subprocess.run([program("amtool"), *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def alert(name: str, severity: str, labels: Labels, **annotations: str) -> dict[str, Any]:
    """An alert as Prometheus sends it."""
    given = dict.fromkeys(("summary", "description", "impact", "cause", "next_step"), "")
    links = {"runbook_url": "https://runbooks.example/x", "dashboard_url": "https://grafana.example/d/x?var-run=a"}
    return {
        "labels": {"alertname": name, "severity": severity, **labels},
        "annotations": {**given, **links, **annotations},
        "startsAt": (datetime.now(timezone.utc) - timedelta(minutes=5)).isoformat(),
    }


def test_alertmanager_accepts_the_example() -> None:
    """Routes, inhibitions, receivers and templates are valid."""
    assert "SUCCESS" in amtool("check-config", str(CONFIG))


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule.id)
def test_severity_and_team_decide_who_is_told(rule: Rule) -> None:
    """Critical pages, info is mailed, a warning goes to its team's chat."""
    labels = rule.raw["labels"]
    wanted = {"critical": "page", "info": "daily-mail"}.get(labels["severity"], f"{labels['team']}-chat")

    pairs = [f"{key}={value}" for key, value in {"alertname": rule.name, **labels}.items()]
    assert amtool("config", "routes", "test", f"--config.file={CONFIG}", *pairs).strip() == wanted


def test_inhibition_stays_inside_one_run() -> None:
    """Without ``run=~".+"`` on both sides two alerts that lack the label would silence each other."""
    for rule in yaml.safe_load(CONFIG.read_text("utf-8"))["inhibit_rules"]:
        assert 'run=~".+"' in rule["source_matchers"]
        assert 'run=~".+"' in rule["target_matchers"]
        assert {"cluster", "run"} <= set(rule["equal"])


SILENCED = {
    "the crash behind a hang": (
        alert("TrainingRankCrashed", "critical", RUN),
        alert("TrainingHung", "critical", RUN),
    ),
    "slowness of a run that hangs": (
        alert("TrainingHung", "critical", RUN),
        alert("TrainingStraggler", "critical", RANK),
    ),
    "the warning of a critical rank": (
        alert("TrainingStraggler", "critical", RANK),
        alert("TrainingStraggler", "warning", RANK),
    ),
    "a rank of a slow node": (
        alert("TrainingNodeStraggling", "warning", {**RUN, "rank_node": "node-a"}),
        alert("TrainingStraggler", "critical", RANK),
    ),
    "a rank of a crowd": (
        alert("TrainingManyRanksSlow", "warning", {**RUN, "peer_group": "0"}),
        alert("TrainingStraggler", "critical", RANK),
    ),
    "a node of a crowd": (
        alert("TrainingManyRanksSlow", "warning", {**RUN, "peer_group": "0"}),
        alert("TrainingNodeStraggling", "critical", {**RUN, "rank_node": "node-a"}),
    ),
    "some of half the ranks": (
        alert("StragglerExporterBlind", "warning", {**RUN, "source": "ranks", "reason": "unseen_ranks"}),
        alert("TrainingRankMissing", "warning", RUN),
    ),
}
HEARD = {
    "a hang in spite of blindness": (
        alert("StragglerExporterBlind", "warning", {**RUN, "source": "ranks", "reason": "unseen_ranks"}),
        alert("TrainingHung", "critical", RUN),
    ),
    "a crash in spite of blindness": (
        alert("StragglerExporterBlind", "warning", {**RUN, "source": "ranks", "reason": "unseen_ranks"}),
        alert("TrainingRankCrashed", "critical", RUN),
    ),
    "a straggler in spite of blindness": (
        alert("StragglerExporterBlind", "warning", {**RUN, "source": "own_time", "reason": "cuda_graph"}),
        alert("TrainingStraggler", "warning", RANK),
    ),
    "the warning of another rank": (
        alert("TrainingStraggler", "critical", {**RANK, "rank": "3"}),
        alert("TrainingStraggler", "warning", RANK),
    ),
    "a straggler of another run": (
        alert("TrainingHung", "critical", {**RUN, "run": "other"}),
        alert("TrainingStraggler", "critical", RANK),
    ),
    "a straggler of a run of that name in another cluster": (
        alert("TrainingHung", "critical", {**RUN, "cluster": "c2"}),
        alert("TrainingStraggler", "critical", RANK),
    ),
    "a rank on another node": (
        alert("TrainingNodeStraggling", "warning", {**RUN, "rank_node": "node-b"}),
        alert("TrainingStraggler", "critical", RANK),
    ),
    "somebody else's alert without a run": (
        alert("TrainingHung", "critical", {}),
        alert("TrainingStraggler", "warning", {}),
    ),
    "blindness of a run that hangs": (
        alert("TrainingHung", "critical", RUN),
        alert("StragglerExporterBlind", "warning", {**RUN, "source": "own_time", "reason": "cuda_graph"}),
    ),
}


@contextmanager
def alertmanager(directory: Path, config: Mapping[str, Any]) -> Iterator[str]:
    """A real Alertmanager with this configuration; gives its address."""
    path = directory / "alertmanager.yml"
    path.write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
    with ExitStack() as stack:
        crew = Crew(directory)
        stack.callback(crew.stop)
        url = f"http://127.0.0.1:{free_port()}"
        command = [
            program("alertmanager"),
            f"--config.file={path}",
            f"--storage.path={directory / 'data'}",
            f"--web.listen-address={url.removeprefix('http://')}",
            "--cluster.listen-address=",
        ]
        with crew_logs(crew):
            wait_until_ready(f"{url}/-/ready", crew.start("alertmanager", command))
            yield url


def shipped(**changes: Any) -> dict[str, Any]:
    """The example, with templates found from anywhere and nobody told unless the changes say so."""
    config = yaml.safe_load(CONFIG.read_text("utf-8"))
    config["templates"] = [str(TEMPLATES / "*.tmpl")]
    return {**config, **changes}


def post(url: str, sent: Sequence[Mapping[str, Any]]) -> None:
    """Send alerts as Prometheus does."""
    body = json.dumps(list(sent)).encode()
    request = urllib.request.Request(f"{url}/api/v2/alerts", body, {"Content-Type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60):
        pass


@pytest.mark.servers
def test_the_cause_silences_its_consequence_and_nothing_else(tmp_path: Path) -> None:
    """Each pair in clusters of its own: what it says about one, it says about no other."""
    quiet = {"receiver": "nobody", "group_by": ["..."]}
    targets = {}
    with alertmanager(tmp_path, shipped(route=quiet, receivers=[{"name": "nobody"}])) as url:
        # Alerts are taken in one after the other, some time after they were posted: those that silence come last.
        for number, (name, pair) in enumerate({**HEARD, **SILENCED}.items()):
            source, target = (_apart(sent, number) for sent in pair)
            post(url, [source, target])
            targets[name] = target["labels"]
        deadline = time.monotonic() + 60
        while True:
            silent = _suppressed(url)
            suppressed = {name: labels in silent for name, labels in targets.items()}
            if all(suppressed[name] for name in SILENCED) or time.monotonic() > deadline:
                break
            time.sleep(0.1)

    assert suppressed == {name: name in SILENCED for name in targets}


def _suppressed(url: str) -> list[dict[str, str]]:
    """The labels of those that somebody else silences."""
    found = json.loads(read_local(f"{url}/api/v2/alerts"))
    return [one["labels"] for one in found if one["status"]["state"] == "suppressed"]


def _apart(sent: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The alert in a cluster of its pair's own."""
    labels = dict(sent["labels"])
    if "cluster" in labels:
        labels["cluster"] = f"{labels['cluster']}-of-{number}"
    return {**sent, "labels": labels}


@pytest.mark.servers
def test_slack_and_pagerduty_get_the_whole_story(tmp_path: Path) -> None:
    """What, since, impact, cause and next step arrive in both; a run's name cannot wake the whole channel."""
    received: queue.Queue[dict[str, Any]] = queue.Queue()

    class Receiver(LocalHandler):
        def do_POST(self) -> None:  # noqa: N802 - http.server calls it so
            received.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.answer(202, "ok")

    key = tmp_path / "key"
    key.write_text("key", encoding="utf-8")
    listener = LocalServer(Receiver)
    config = shipped()
    config["global"] = {"slack_api_url": f"{listener.url}/slack", "pagerduty_url": f"{listener.url}/pagerduty"}
    config["receivers"] = [one for one in config["receivers"] if one["name"] != "daily-mail"]
    config["receivers"].append({"name": "daily-mail"})
    for receiver in config["receivers"]:
        for pager in receiver.get("pagerduty_configs", []):
            pager["routing_key_file"] = str(key)
    text = json.dumps(config).replace('"30s"', '"0s"').replace('"10s"', '"0s"')
    story = {
        "summary": "<!channel> waits for rank 2: 1.38x its peers' own time",
        "description": "Rank 2 on node node-a, GPU 2 (GPU-1234) & more",
        "impact": "7 other GPUs wait for it.",
        "cause": "Most of the excess is in phase backward.",
        "next_step": "On node-a: `straggler top`.",
    }
    try:
        with alertmanager(tmp_path, json.loads(text)) as url:
            warning = {**RANK, "team": "infrastructure", "verdict": "straggling_rank"}
            post(url, [alert("TrainingStraggler", "warning", warning, **story)])
            critical = alert("TrainingStraggler", "critical", {**warning, "rank": "3"}, **story)
            post(url, [critical])
            messages = [received.get(timeout=60), received.get(timeout=60)]
    finally:
        listener.close()
    slack = next(message["attachments"][0] for message in messages if "attachments" in message)
    page = next(message for message in messages if "payload" in message)

    assert slack["color"] == "warning"
    assert "<!channel>" not in slack["text"]
    for said in (slack["text"], page["payload"]["custom_details"]["alerts"]):
        assert story["impact"] in said
        assert story["cause"] in said
        assert story["next_step"] in said
        assert "GPU-1234" in said
        assert critical["startsAt"][:10] in said
    assert page["payload"]["severity"] == "critical"
    assert page["payload"]["summary"].startswith("[CRITICAL] c1: ")
    assert {link["text"] for link in page["links"]} == {"Runbook", "Dashboard"}


def test_the_mail_says_the_same(tmp_path: Path) -> None:
    """All parts of the story stand in the mail, and what is over is told with its time."""
    firing = alert(
        "TrainingHeavyStage", "info", RUN, summary="S", description="D", impact="I", cause="C", next_step="N"
    )
    over = {**firing, "status": "resolved", "endsAt": "2026-01-01T10:00:00Z", "startsAt": "2026-01-01T09:30:00Z"}
    data = {
        "status": "firing",
        "alerts": [{**firing, "status": "firing"}, over],
        "groupLabels": RUN,
        "commonLabels": {**RUN, "severity": "info"},
        "commonAnnotations": {},
    }
    file = tmp_path / "data.json"
    file.write_text(json.dumps(data), encoding="utf-8")

    html = amtool(
        "template",
        "render",
        f"--template.glob={TEMPLATES / '*.tmpl'}",
        '--template.text={{ template "straggler.email.html" . }}',
        f"--template.data={file}",
    )
    for said in ("<td>D</td>", "<td>I</td>", "<td>C</td>", "<td>N</td>", ">Runbook</a>", "(09:30 to 10:00 UTC)"):
        assert said in html
