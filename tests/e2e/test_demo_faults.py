"""Each fault that the demonstration knows: the alert that comes names who has it and why."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pytest

from demo_command import judged_demo
from servers import crew_logs, monitoring, program
from straggler.simulate.demonstration import EVALUATION_SECONDS, HURRY, HURRY_FLAGS
from straggler.simulate.faults import KINDS
from straggler.simulate.outcome import BLAMING, Outcome, decide, named_cause
from straggler.simulate.quick_rules import find_rules, write_quick_rules
from straggler.simulate.rehearsal import Rehearsal
from straggler.simulate.scenario import Fault, Scenario
from straggler.simulate.webhook import Notice
from straggler.simulate.workspace import Workspace

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(300)]

OF_ONE_RANK = ("thermal", "power-brake", "pcie", "slow-loader")
OF_NETWORK_AND_MONITORING = ("bad-cable", "socket-fallback", "dcgm-frozen")
PATIENCE_SECONDS = 200
"""No claim about speed: a guard against waiting for ever. How long things take is printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One run, and how it ended."""

    outcome: Outcome
    seconds: float | None
    """From the onset to the alert."""
    fired: tuple[str, ...]


def scenario_of(name: str) -> Scenario:
    """A small run with this fault after some seconds of health, named after it."""
    kind = KINDS[name]
    healthy = Scenario(run=name, ranks=4, nodes=kind.nodes, work=kind.work)
    rank = healthy.ranks_on(healthy.nodes - 1)[-1]
    begins = 1 if kind.from_start else healthy.step_after(6)
    return replace(healthy, fault=Fault(name=name, rank=rank, factor=kind.factor, begins_step=begins))


def act_out(names: Sequence[str]) -> dict[str, Act]:
    """Let several runs, each with its own fault, train side by side under the eyes of the same servers."""
    with ExitStack() as stack:
        workspace = Workspace()
        stack.callback(workspace.close)
        servers = workspace.directory / "servers"
        servers.mkdir()
        runs: dict[str, Rehearsal] = {}
        for name in names:
            directory = workspace.directory / name
            directory.mkdir()
            runs[name] = Rehearsal(scenario_of(name), directory, sidecar_flags=HURRY_FLAGS)
            stack.callback(runs[name].close)
            stack.enter_context(crew_logs(runs[name].crew))
        rules = write_quick_rules(find_rules(), servers, divide_by=HURRY, windows=True)
        targets = [node.address for run in runs.values() for node in run.nodes]
        watch = stack.enter_context(
            monitoring(servers, {"straggler": targets}, rules, evaluation_seconds=EVALUATION_SECONDS)
        )
        for run in runs.values():
            run.start_sidecars()
        for run in runs.values():
            run.start_ranks()
        acts: dict[str, Act] = {}
        while len(acts) < len(runs):
            notices = watch.webhook.notices()
            for name in runs.keys() - acts.keys():
                if act := _ended(runs[name], [notice for notice in notices if _is_about(notice, name)]):
                    acts[name] = act
            time.sleep(0.25)
        return acts


def _is_about(notice: Notice, run: str) -> bool:
    """Whether an alert is of this run. One about a source of facts is of no run: here only one of them can be meant."""
    return notice.labels.get("run", "dcgm-frozen" if "source" in notice.labels else "") == run


def _ended(run: Rehearsal, notices: Sequence[Notice]) -> Act | None:
    assert not run.tend(), run.crew.logs()
    onset = run.onset_ns
    outcome = decide(
        run.scenario,
        notices,
        onset_ns=onset,
        now_ns=time.monotonic_ns(),
        patience_ns=PATIENCE_SECONDS * 1_000_000_000,
    )
    if outcome is None:
        return None
    notice = outcome.notice
    return Act(
        outcome=outcome,
        seconds=None if notice is None or onset is None else (notice.received_ns - onset) / 1e9,
        fired=tuple(notice.name for notice in notices if notice.status == "firing"),
    )


@pytest.fixture(scope="module")
def acts_of_ranks() -> dict[str, Act]:
    """One rank of each run is afflicted."""
    program("prometheus"), program("alertmanager")
    return act_out(OF_ONE_RANK)


@pytest.fixture(scope="module")
def other_acts() -> dict[str, Act]:
    """No rank is slower than the others."""
    program("prometheus"), program("alertmanager")
    return act_out(OF_NETWORK_AND_MONITORING)


def check(name: str, act: Act, record: Callable[[str, object], None]) -> Notice:
    """The right alert has come, with the right cause and for the right one."""
    assert act.outcome.problem is None, act
    notice = act.outcome.notice
    assert notice is not None
    record(f"demo_{name}", f"{notice.name}, cause {named_cause(notice) or '-'}, {act.seconds:.1f} s after the onset")
    return notice


@pytest.mark.parametrize("name", OF_ONE_RANK)
def test_rank_is_named_with_its_cause(
    name: str, acts_of_ranks: dict[str, Act], record_property: Callable[[str, object], None]
) -> None:
    """A fault of one rank makes it a straggler, and the alert says why."""
    notice = check(name, acts_of_ranks[name], record_property)

    assert notice.name == "TrainingStraggler"
    assert named_cause(notice) == KINDS[name].cause


def test_bad_cable(other_acts: dict[str, Act], record_property: Callable[[str, object], None]) -> None:
    """A cable that has lost lanes slows all ranks alike: the alert names node and port, and no rank is blamed."""
    notice = check("bad-cable", other_acts["bad-cable"], record_property)

    assert notice.labels["run"] == "bad-cable"
    assert notice.labels["rank_node"] == "bad-cable-node-b"
    assert "mlx5_1 port 1" in notice.annotations["description"]
    assert not BLAMING & set(other_acts["bad-cable"].fired)


def test_socket_fallback(other_acts: dict[str, Act], record_property: Callable[[str, object], None]) -> None:
    """All ranks of a job take one network: the alert is about the run and the adapters that lie idle, not of a rank."""
    notice = check("socket-fallback", other_acts["socket-fallback"], record_property)

    assert notice.labels["run"] == "socket-fallback"
    for node in ("socket-fallback-node-a", "socket-fallback-node-b"):
        assert f"{node} although mlx5_0 port 1" in notice.annotations["description"]
    assert not BLAMING & set(other_acts["socket-fallback"].fired)


def test_frozen_page_blinds_and_blames_nobody(
    other_acts: dict[str, Act], record_property: Callable[[str, object], None]
) -> None:
    """A page about GPUs that has frozen is told with its reason."""
    notice = check("dcgm-frozen", other_acts["dcgm-frozen"], record_property)

    assert notice.name == "StragglerExporterBlind"
    assert notice.labels["reason"] in {"stale", "values_frozen"}
    assert not BLAMING & set(other_acts["dcgm-frozen"].fired)


@pytest.mark.timeout(900)
def test_shared_core(record_property: Callable[[str, object], None]) -> None:
    """Threads that really compete for a rank's core make it a straggler for want of a processor.

    If others take the processors from all ranks, no rank is slower than its peers for that: then nothing can be told.
    """
    done = judged_demo("--fault", "host-cpu", "--slow-after", "6", "--timeout", "90")

    assert done.code == 0, str(done)
    record_property(
        "demo_host-cpu",
        f"{done.result['alert']['name']}, cause {done.result['cause']}, "
        f"{done.result['seconds_to_alert']:.1f} s after the onset",
    )
    assert done.result["cause"] == done.result["expected_cause"] == "host_cpu"
    assert done.result["alert"]["rank"] == done.result["slow_rank"]
