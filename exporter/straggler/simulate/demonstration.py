"""A straggler from the training step to the alert, on one machine: what ``straggler demo`` does, without its screen."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from straggler.simulate.faults import Hits
from straggler.simulate.measure import Pace, measure, read_records
from straggler.simulate.outcome import Outcome, decide
from straggler.simulate.processes import Process
from straggler.simulate.quick_rules import write_quick_rules
from straggler.simulate.rehearsal import Rehearsal
from straggler.simulate.scenario import Scenario
from straggler.simulate.servers import Alertmanager, Prometheus, wait_until_ready
from straggler.simulate.stage import node_name
from straggler.simulate.webhook import Notice, Webhook

_LOOK_SECONDS = 0.25
_TABLE_SECONDS = 1.0
_START_SECONDS = 60.0
_NS = 1_000_000_000
HURRY = 30.0
"""What a demonstration's times are divided by, unless somebody wants another."""
EVALUATION_SECONDS = 0.5
"""What an alert tells is recorded by a chain of three groups of rules, each of which may wait for an evaluation. All
must have passed within the shortest ``for``, which is divided down to 2 s."""
HURRY_FLAGS = ("--dcgm-stale-after-seconds", "6")
"""The GPUs' page is made anew every 2 s instead of 30, so it is stale after 6 s instead of 90."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to show."""

    scenario: Scenario
    rules: Path | None
    """The shipped rules, for Prometheus; ``None``: the sidecar judges by itself."""
    timeout_seconds: float = 60.0
    """How long after the onset of the fault the alert may come."""
    duration_seconds: float = 0.0
    """How long the run lasts at least; a healthy run lasts as long as this."""
    scrape_seconds: float = 1.0
    """Between two scrapes."""
    evaluation_seconds: float = EVALUATION_SECONDS
    """Between two evaluations of the rules."""
    hurry: float = HURRY
    """What the times of rules and policy are divided by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of it."""

    plan: Plan
    outcome: Outcome
    notices: tuple[Notice, ...]
    onset_ns: int | None
    pace: Pace
    steps: tuple[int, ...]
    """Finished steps by rank."""
    duration_seconds: float
    logs: str = ""
    """The last words of all processes, if something went wrong."""

    @property
    def seconds_to_alert(self) -> float | None:
        """From the start of the first step under the fault to the webhook."""
        if self.outcome.notice is None or self.onset_ns is None:
            return None
        return (self.outcome.notice.received_ns - self.onset_ns) / _NS


class Audience(Protocol):
    """Who watches."""

    def say(self, text: str) -> None:
        """Something happened."""

    def look(self, seconds: float, ranks: Any) -> None:
        """The ranks as the sidecar sees them (``/api/v1/ranks``), so many seconds after the first step."""

    def alert(self, notice: Notice, seconds_after: float | None) -> None:
        """An alert came, so long after the onset of the fault; ``None``: there was no fault yet."""


class Demonstration:
    """One run of a plan. Everything is ended when ``run`` returns or raises."""

    def __init__(self, plan: Plan, directory: Path, audience: Audience) -> None:
        self._plan = plan
        self._scenario = plan.scenario
        self._directory = directory
        self._audience = audience
        self._told = 0
        self._next_look = 0.0

    def run(self) -> Report:
        """Do it.

        Raises:
            SourceFailedError: a program does not come up; with the end of its log.
        """
        with ExitStack() as stack:
            webhook = Webhook()
            stack.callback(webhook.close)
            rehearsal = self._set_up(stack, webhook)
            began = self._begin(rehearsal)
            outcome = began if isinstance(began, Outcome) else self._watch(rehearsal, webhook, began)
            duration = 0.0 if isinstance(began, Outcome) else time.monotonic() - began
            logs = rehearsal.crew.logs() if outcome.problem else ""
            if not rehearsal.end_ranks() and outcome.problem is None:
                outcome = Outcome(problem="the ranks did not end when they were asked to", notice=outcome.notice)
                logs = rehearsal.crew.logs()
            return Report(
                plan=self._plan,
                outcome=outcome,
                notices=tuple(webhook.notices()),
                onset_ns=rehearsal.onset_ns,
                pace=measure(self._scenario, read_records(rehearsal.rings)),
                steps=tuple(rehearsal.steps),
                duration_seconds=duration,
                logs=logs,
            )

    def _set_up(self, stack: ExitStack, webhook: Webhook) -> Rehearsal:
        rules = self._plan.rules
        flags = [*HURRY_FLAGS, *(() if rules else _judge_yourself(webhook.url, self._plan))]
        rehearsal = Rehearsal(self._scenario, self._directory, sidecar_flags=flags)
        stack.callback(rehearsal.close)
        servers = self._start_servers(rehearsal, webhook, rules) if rules else {}
        rehearsal.start_sidecars()
        for node in rehearsal.nodes:
            self._audience.say(f"sidecar at http://{node.address}/ (open it in a browser while this runs)")
        for url, process in servers.items():
            wait_until_ready(f"{url}/-/ready", process)
            self._audience.say(f"{process.name} at {url}")
        rehearsal.start_ranks()
        return rehearsal

    def _start_servers(self, rehearsal: Rehearsal, webhook: Webhook, rules: Path) -> dict[str, Process]:
        """Start both; first of all, since Prometheus takes 5 s to its first scrape."""
        copies = self._directory / "rules"
        copies.mkdir()
        alertmanager = Alertmanager(rehearsal.crew, webhook.url)
        prometheus = Prometheus(
            rehearsal.crew,
            {"straggler": [node.address for node in rehearsal.nodes]},
            write_quick_rules(rules, copies, divide_by=self._plan.hurry, windows=True),
            alertmanager_url=alertmanager.url,
            scrape_seconds=self._plan.scrape_seconds,
            evaluation_seconds=self._plan.evaluation_seconds,
        )
        return {prometheus.url: prometheus.process, alertmanager.url: alertmanager.process}

    def _begin(self, rehearsal: Rehearsal) -> float | Outcome:
        """Wait for the first step of all ranks; gives its time, or why there is none."""
        deadline = time.monotonic() + _START_SECONDS
        while min(rehearsal.steps) < 1:
            if rehearsal.tend() or time.monotonic() > deadline:
                return Outcome(problem="the ranks did not begin to train")
            time.sleep(_LOOK_SECONDS)
        self._audience.say(f"{self._scenario.ranks} ranks train")
        return time.monotonic()

    def _watch(self, rehearsal: Rehearsal, webhook: Webhook, began: float) -> Outcome:
        """Wait until it is clear how the run ends."""
        scenario, plan = self._scenario, self._plan
        latest_onset = (
            0.0 if scenario.healthy else 30 + 3 * scenario.fault.begins_step * scenario.expected_step_seconds(1)
        )
        said = False
        while True:
            elapsed = time.monotonic() - began
            notices, onset = webhook.notices(), rehearsal.onset_ns
            if onset is not None and not said:
                self._audience.say(
                    f"{elapsed:5.0f} s  {who_is_hit(scenario)} {scenario.fault.kind.says(scenario.fault.factor)}"
                )
                said = True
            self._tell(notices, onset)
            self._look(rehearsal, elapsed)
            ended = [process.name for process in rehearsal.crew.members if process.returncode is not None]
            rehearsal.tend()
            if ended:
                return Outcome(problem=f"{', '.join(ended)} ended in the middle of the run")
            outcome = decide(
                scenario,
                notices,
                onset_ns=onset,
                now_ns=time.monotonic_ns(),
                patience_ns=round(plan.timeout_seconds * _NS),
            )
            if outcome and (outcome.problem or elapsed >= plan.duration_seconds):
                return outcome
            if scenario.healthy and elapsed >= plan.duration_seconds:
                return Outcome(problem=None)
            if onset is None and not scenario.healthy and elapsed > latest_onset:
                return Outcome(problem="the run did not get to the onset of the fault: this machine is too busy")
            time.sleep(_LOOK_SECONDS)

    def _tell(self, notices: Sequence[Notice], onset_ns: int | None) -> None:
        for notice in notices[self._told :]:
            after = None if onset_ns is None else (notice.received_ns - onset_ns) / _NS
            self._audience.alert(notice, after)
        self._told = len(notices)

    def _look(self, rehearsal: Rehearsal, elapsed: float) -> None:
        if elapsed >= self._next_look:
            self._next_look = elapsed + _TABLE_SECONDS
            with contextlib.suppress(OSError):  # it is looked at again in a second; that it ended is noticed elsewhere
                self._audience.look(elapsed, rehearsal.rank_table())


def who_is_hit(scenario: Scenario) -> str:
    """The afflicted rank, node, run or source."""
    fault = scenario.fault
    if fault.kind.hits is Hits.RANK:
        return f"rank {fault.rank}"
    if fault.kind.hits is Hits.NOBODY:
        return "source dcgm"
    if fault.kind.symptoms.over_sockets:
        return f"run {scenario.run}"
    return f"node {node_name(scenario, scenario.node_of(fault.rank))}"


def _judge_yourself(webhook_url: str, plan: Plan) -> tuple[str, ...]:
    """Flags of the sidecar for its embedded policy."""
    return (
        *("--alerts-webhook-url", webhook_url),
        *("--alerts-patience", str(1 / plan.hurry)),
        *("--poll-seconds", str(plan.scrape_seconds)),
        *("--alerts-runbook-url", "https://runbooks.example/straggler"),
    )
