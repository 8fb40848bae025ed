"""The variants of the rules: made from the plain files, and accepted where they are for."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from rulebook import FILES, RULES
from servers import crew_logs
from straggler.simulate.local_http import LocalHandler, LocalServer, read_local
from straggler.simulate.processes import Crew
from straggler.simulate.quick_rules import write_quick_rules
from straggler.simulate.servers import free_port, wait_until_ready

BUILD = runpy.run_path(str(RULES / "build.py"))
MADE = dict(BUILD["variants"]())


def find(name: str) -> str:
    """Path of a program of VictoriaMetrics; skips the test where it is absent."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed; on Debian and Ubuntu: apt-get install victoria-metrics")
    return path


@pytest.mark.parametrize("path", sorted(MADE))
def test_a_variant_is_what_its_source_makes_of_it(path: str) -> None:
    """Nobody edits a variant, and nobody forgets to make it again: ``python rules/build.py``."""
    assert (RULES / path).read_text("utf-8") == MADE[path]


def test_no_variant_is_left_over() -> None:
    """A source that is gone takes its variants with it."""
    found = {
        f"{file.parent.name}/{file.name}" for kind in ("vmalert", "kubernetes") for file in (RULES / kind).iterdir()
    }

    assert found == set(MADE)


@pytest.mark.parametrize("path", sorted(path for path in MADE if path.startswith("vmalert/")))
def test_the_variant_for_vmalert_differs_by_one_key(path: str) -> None:
    """Without ``keep_firing_for``, which came with vmalert 1.92; all else is the same."""
    source = RULES / path.removeprefix("vmalert/").replace("-", "/", 1)
    groups = yaml.safe_load(source.read_text("utf-8"))["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        rule.pop("keep_firing_for", None)

    assert yaml.safe_load(MADE[path])["groups"] == groups


@pytest.mark.parametrize("path", sorted(path for path in MADE if path.startswith("kubernetes/")))
def test_the_objects_hold_all_groups(path: str) -> None:
    """One object per file, with its groups word by word, under a name that a cluster accepts."""
    objects = list(yaml.safe_load_all(MADE[path]))

    assert [one["spec"] for one in objects] == [yaml.safe_load(file.read_text("utf-8")) for file in FILES]
    assert len({one["metadata"]["name"] for one in objects}) == len(FILES)
    assert all(one["metadata"]["name"].replace("-", "").isalnum() for one in objects)
    assert {(one["apiVersion"], one["kind"]) for one in objects} == {BUILD["KINDS"][Path(path).name]}


def test_own_addresses_reach_every_link(tmp_path: Path) -> None:
    """With ``--output`` the plain files and all variants carry the given addresses, and no placeholder is left."""
    BUILD["main"](["--output", str(tmp_path), "--grafana-url", "https://g.corp/", "--runbook-url", "https://w.corp/r"])
    texts = [file.read_text("utf-8") for file in tmp_path.rglob("*.yaml")]

    assert len(texts) == len(MADE) + len(FILES)
    assert any("https://g.corp/d/straggler-rank?" in text for text in texts)
    assert any("https://w.corp/r/TrainingStraggler" in text for text in texts)
    assert not any(".example" in text for text in texts)


def test_vmalert_accepts_its_variant() -> None:
    """The distribution's vmalert reads the files, expressions and templates."""
    command = [find("vmalert"), f"-rule={RULES / 'vmalert' / '*.yaml'}", "-dryRun"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr


def identity(run: str, rank: int, group: int = 0) -> str:
    """The labels of a rank; nodes hold four of them."""
    return f'run="{run}",rank="{rank}",peer_group="{group}",rank_node="{run}-{"abcd"[rank // 4]}"'


def rank_lines(run: str, rank: int, own: float, *, step: float = 0.057, group: int = 0, **more: object) -> list[str]:
    """The series that verdicts compare, of one rank."""
    labels = identity(run, rank, group)
    values = {
        "training_recent_own_seconds": own,
        "training_recent_own_median_seconds": own,
        "training_recent_wait_seconds": step - own,
        "training_recent_min_wait_seconds": step - own,
        "training_recent_step_seconds": step,
        "training_recent_steps": 175,
        **more,
    }
    return [f"{name}{{{labels}}} {value}" for name, value in values.items()] + [
        f'training_rank_info{{{labels},gpu="{rank % 4}",UUID="GPU-{rank}",rank_pod="{run}-0"}} 1'
    ]


def states(run: str, rank: int, state: str) -> str:
    """The rank is in this state."""
    return f'training_rank_state{{{identity(run, rank)},state="{state}"}} 1'


def port_lines(node: str) -> list[str]:
    """Three RDMA ports of a node: one as it should be, one lost, one at a quarter of its speed."""
    lines = []
    for index, (up, share) in enumerate(((1, 1.0), (0, None), (1, 0.25))):
        labels = f'rank_node="{node}",device="mlx5_{index}",port="1"'
        lines += [f"network_port_up{{{labels}}} {up}", f"network_port_lost{{{labels}}} {1 - up}"]
        if share is not None:
            lines.append(f"network_rate_bytes_per_second{{{labels}}} {50e9 * share}")
            lines.append(f"network_expected_rate_bytes_per_second{{{labels}}} {50e9}")
    return lines


def page(now: float) -> str:
    """Nine runs, each with its trouble; no cluster label anywhere."""
    lines = [
        'straggler_exporter_blind{source="dcgm",reason="values_frozen"} 2',
        'straggler_exporter_source_state{source="nvml",state="failed"} 1',
        'straggler_exporter_ranks_without_own_time{run="graphs",reason="cuda_graph"} 4',
    ]
    lines += port_lines("half-a")
    for rank in range(8):
        lines += rank_lines("slow", rank, 0.047 if rank == 2 else 0.034)
        lines.append(states("slow", rank, "running"))
        lines += rank_lines("node", rank, 0.047 if rank < 4 else 0.034)
        lines += rank_lines("many", rank, 0.047 if rank in (1, 2, 6) else 0.034)
        lines += rank_lines("stage", rank, 0.047 if rank < 4 else 0.034, group=rank // 4)
        lines += rank_lines("wire", rank, 0.034, step=0.099)
        arrivals = 99 if rank == 5 else 100
        lines += rank_lines("stuck", rank, 0.034, training_rank_arrivals_total=arrivals, training_world_size=9)
        lines.append(states("stuck", rank, "hung"))
        lines += rank_lines("dead", rank, 0.034, training_rank_arrivals_total=arrivals)
        lines.append(states("dead", rank, "crashed" if rank in (4, 5) else "running"))
        lines += rank_lines("busy", rank, 0.034, training_gpu_utilization_ratio=0.99, training_gpu_sm_active_ratio=0.2)
        lines += rank_lines(
            "turns", rank, 0.034, training_recent_wait_seconds=0.023, training_recent_min_wait_seconds=0
        )
        lines += rank_lines("half", rank, 0.034, training_world_size=16, training_step=int(now * 10))
        lines.append(states("half", rank, "running"))
        labels = identity("fed", rank)
        lines.append(f'training_phase_seconds_total{{{labels},phase="data"}} {now % 1e6 * 0.4}')
        lines.append(f"training_step_seconds_sum{{{labels}}} {now % 1e6}")
    return "\n".join(lines) + "\n"


class Exporter(LocalHandler):
    """A page with all kinds of trouble."""

    def do_GET(self) -> None:  # noqa: N802 - http.server calls it so
        """Any path."""
        self.answer(200, page(time.time()))


@contextmanager
def vmalert(directory: Path) -> Iterator[str]:
    """VictoriaMetrics scraping the page and vmalert judging it with the impatient variant; gives vmalert's address."""
    exporter = LocalServer(Exporter)
    with ExitStack() as stack:
        stack.callback(exporter.close)
        crew = Crew(directory)
        stack.callback(crew.stop)
        scrape = directory / "scrape.yml"
        target = exporter.url.removeprefix("http://")
        targets = [target, f"127.0.0.1:{free_port()}"]  # nobody answers at the second
        jobs = [{"job_name": "straggler", "scrape_interval": "1s", "static_configs": [{"targets": targets}]}]
        scrape.write_text(yaml.safe_dump({"scrape_configs": jobs}), encoding="utf-8")
        shipped, quick = directory / "vmalert", directory / "quick"
        for folder in ("recording", "alerts"):
            (shipped / folder).mkdir(parents=True)
        for path, text in MADE.items():
            if path.startswith("vmalert/"):
                (shipped / path.removeprefix("vmalert/").replace("-", "/", 1)).write_text(text, encoding="utf-8")
        quick.mkdir()
        write_quick_rules(shipped, quick, divide_by=60)
        store, judge = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        with crew_logs(crew):
            database = crew.start(
                "victoria-metrics",
                [
                    find("victoria-metrics"),
                    f"-httpListenAddr={store.removeprefix('http://')}",
                    f"-storageDataPath={directory / 'data'}",
                    f"-promscrape.config={scrape}",
                    "-search.latencyOffset=0s",
                ],
            )
            wait_until_ready(f"{store}/health", database)
            judging = crew.start(
                "vmalert",
                [
                    find("vmalert"),
                    f"-httpListenAddr={judge.removeprefix('http://')}",
                    f"-rule={quick / '*.yaml'}",
                    f"-datasource.url={store}",
                    f"-remoteWrite.url={store}",
                    "-notifier.url=http://127.0.0.1:9",  # the discard port: nobody is told
                    "-evaluationInterval=1s",
                    "-datasource.queryStep=1m",  # else it looks back one evaluation only, and finds no recorded series
                    "-remoteWrite.flushInterval=100ms",
                ],
            )
            wait_until_ready(f"{judge}/health", judging)
            yield judge


WANTED = {
    "StragglerExporterBlind-graphs",
    "StragglerExporterBlind-half",
    "StragglerExporterBlind-",
    "StragglerExporterDown-",
    "TrainingHeavyStage-stage",
    "TrainingHung-stuck",
    "TrainingInputStall-fed",
    "TrainingLinkDegraded-half",
    "TrainingManyRanksSlow-many",
    "TrainingNodeStraggling-node",
    "TrainingRankCrashed-dead",
    "TrainingRankMissing-half",
    "TrainingRotatingImbalance-turns",
    "TrainingSlowNetwork-wire",
    "TrainingStraggler-slow",
    "TrainingUtilizationDivergence-busy",
}
"""Each alert and the run it should be about. ``TrainingSlowEverywhere`` needs half an hour of past."""


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_vmalert_comes_to_the_same_verdicts(tmp_path: Path) -> None:
    """Each kind of trouble is found, nothing else, and every text is whole.

    vmalert drops an alert when one of its texts fails; a label that is missing is no empty string to it.
    """
    find("victoria-metrics")
    find("vmalert")
    firing: dict[str, dict[str, Any]] = {}
    with vmalert(tmp_path) as url:
        deadline = time.monotonic() + 500
        while not set(firing) >= WANTED and time.monotonic() < deadline:
            time.sleep(1)
            found = json.loads(read_local(f"{url}/api/v1/alerts"))["data"]["alerts"] or []
            firing = {f"{one['name']}-{one['labels'].get('run', '')}": one for one in found if one["state"] == "firing"}
        log = (tmp_path / "vmalert.log").read_text("utf-8")

    assert set(firing) == WANTED
    assert "failed to execute" not in log
    for alert in firing.values():
        for text in alert["annotations"].values():
            assert text.strip()
            assert not [hole for hole in ("%!", "<nil>", "<no value>", "  ", " .", " ,") if hole in text], text
    texts = firing["TrainingStraggler-slow"]["annotations"]
    assert texts["summary"] == "slow waits for rank 2: 1.38x its peers' own time"
    assert texts["description"].startswith("Rank 2 on node slow-a, GPU 2 (GPU-2), pod slow-0 needs 47ms of own time")
    assert texts["impact"] == (
        "7 other GPUs wait for it. 23 % of each step is lost (a step takes 57ms). The run loses 1.8 GPU-hours an hour."
    )
    assert "Suspect: rank 5 on node stuck-b, GPU 1" in firing["TrainingHung-stuck"]["annotations"]["description"]
    assert firing["TrainingRankCrashed-dead"]["annotations"]["summary"].startswith("Training dead lost rank 5")
