"""The named cause is right, and the same by the rules: a part of ``make causes``, which is the whole of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scenarios.attribution.faults import FAULTS, HELD_OUT_SEEDS, NETWORK_FAULTS, TUNING_SEEDS
from scenarios.attribution.judged import judged, texts_by_rules
from scenarios.attribution.machine import Case
from scenarios.attribution.table import hidden, shares, whole
from scenarios.attribution.through_victoriametrics import causes


def some(cases: list[Case], every: int) -> list[Case]:
    """A part of them."""
    return cases[::every]


@pytest.mark.slow
def test_right_cause_is_named() -> None:
    """On seeds that nothing was tuned on, alone and mixed: right in 95 % at least, wrong in 1 % at most."""
    found = judged(some(whole(HELD_OUT_SEEDS), 8))
    share = shares(found)

    assert len([one for one in found if one.outcome != "silent"]) > 100
    assert share["right"] >= 0.95
    assert share["wrong"] <= 0.01


@pytest.mark.slow
def test_a_missing_source_makes_no_wrong_cause() -> None:
    """What cannot be seen becomes unknown, and nothing else is named instead."""
    found = judged(some(hidden(HELD_OUT_SEEDS), 2))

    assert [one.case.run for one in found if one.outcome == "wrong"] == []


@pytest.mark.servers
@pytest.mark.slow
def test_rules_name_the_same_cause(tmp_path: Path) -> None:
    """One cause of each slow rank, and it is the policy's: two ranks or sixteen, and where a source is missing."""
    cases = [Case(faults=(name,), jitter=0.02, seed=TUNING_SEEDS[0]) for name in FAULTS]
    cases += [Case(faults=("thermal",), jitter=0.02, seed=TUNING_SEEDS[1], ranks=ranks) for ranks in (2, 16)]
    cases += [Case(faults=("thermal",), jitter=0.02, seed=TUNING_SEEDS[2], hidden=source) for source in ("gpu", "host")]
    found = judged(cases, tmp_path)

    assert {one.case.run: one.rules for one in found} == {
        one.case.run: (one.policy,) if one.policy else () for one in found
    }


def test_every_fault_is_played() -> None:
    """No cause has a table without a case; no seed of the figures was tuned on."""
    played = {name for case in whole(HELD_OUT_SEEDS) for name in case.faults}

    assert played == {*FAULTS, *NETWORK_FAULTS}
    assert not {*HELD_OUT_SEEDS} & {*TUNING_SEEDS}


@pytest.mark.servers
@pytest.mark.slow
def test_victoriametrics_names_the_same_cause(tmp_path: Path) -> None:
    """VictoriaMetrics' own query language gives the policy's causes too."""
    cases = [Case(faults=(name,), jitter=0.02, seed=TUNING_SEEDS[0]) for name in FAULTS]
    found = causes(cases, tmp_path)

    assert found == {one.case.run: [one.policy] for one in judged(cases)}


CLOCKS = r"SM clock \d+ MHz, peers \d+ MHz"
HELD = rf"{CLOCKS}, held down \d+ % of the time"
EXPLAINS = r"; explains \d+ % of the gap\."
TEXTS = {
    "thermal": rf"Heat: {HELD}{EXPLAINS}",
    "power_brake": rf"Power brake: {HELD}{EXPLAINS}",
    "power_cap": rf"Power cap: {HELD}{EXPLAINS}",
    "clocks_set_low": rf"Clocks set low: {CLOCKS}, and no heat, brake or power cap holds it down{EXPLAINS}",
    "pcie_degraded": rf"Degraded PCIe link: [\d.]+ GB/s, peers 64\.0 GB/s{EXPLAINS}",
    "gpu_errors": rf"GPU errors in the last hour .* computes .+ a step longer than its peers' .+, {CLOCKS}{EXPLAINS}",
    "host_cpu": rf"Host CPU: ready but without a CPU .+ a step, peers .+{EXPLAINS}",
    "data_loading": rf"Data loading: waits for its next batch .+ a step, peers .+{EXPLAINS}",
    "memory": rf"Host memory: stalled for want of memory .+ a step, peers .+{EXPLAINS}",
    "work": rf"More work than its peers, no slower hardware: {CLOCKS}.*, [\d.]+x the tensor arithmetic{EXPLAINS}",
    "unknown": rf"Unknown.*; \d+ % of the gap is computing or host code; {CLOCKS}\.",
}


@pytest.mark.servers
@pytest.mark.slow
def test_alert_says_each_cause(tmp_path: Path) -> None:
    """The text of the alert, as Prometheus renders it, has the numbers of each cause and of its peers."""
    cases = {name: Case(faults=(name,), jitter=0.02, seed=TUNING_SEEDS[0]) for name in FAULTS}
    told = texts_by_rules(cases.values(), tmp_path)
    found = {name: told.get(case.run, "") for name, case in cases.items()}

    assert {name: text for name, text in found.items() if not re.fullmatch(TEXTS[name], text)} == {}
