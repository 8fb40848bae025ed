"""How often the verdicts were right, wrong and late.

What is counted are findings: a verdict about a run and, where it names one, about a rank, node, stage or reason. A
straggler told with the wrong rank is one finding missed and one invented. Severity is counted apart, as pages.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scenarios.onset import moment_of
from scenarios.told import Told
from scenarios.vocabulary import Scenario

if TYPE_CHECKING:
    from scenarios.suite import Outcome

JUDGES = ("rules", "policy")
BLIND_SOURCES = ("stale", "failed", "prof_stuck_zero")
"""What the embedded policy leaves to the sidecar's own page: how the sources of GPU facts are."""


@dataclass
class Tally:
    """Findings of one verdict."""

    right: int = 0
    invented: int = 0
    missed: int = 0
    delays: list[float] = field(default_factory=list)
    """Seconds from the trouble's beginning to the first alert."""
    minima: list[float] = field(default_factory=list)
    """What the policy's own patience makes of it at least."""

    @property
    def precision(self) -> float:
        """Of what was told, the share that was right; 1 if nothing was."""
        told = self.right + self.invented
        return self.right / told if told else 1.0

    @property
    def recall(self) -> float:
        """Of what should have been told, the share that was; 1 if nothing should."""
        deserved = self.right + self.missed
        return self.right / deserved if deserved else 1.0


@dataclass
class Score:
    """All of it."""

    runs: int = 0
    tallies: dict[str, dict[str, Tally]] = field(default_factory=dict)
    """By judge (``rules``, ``policy``) and verdict."""
    matrix: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Findings of the rules: (deserved, told); ``nothing`` stands for silence."""
    pages: dict[str, Counter[str]] = field(default_factory=dict)
    """By judge: critical alerts that were ``right``, ``missed``, ``wrong``."""
    disagreements: list[str] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)


def score(outcomes: Sequence[Outcome]) -> Score:
    """Judge the judges."""
    result = Score(runs=len(outcomes))
    for judge in JUDGES:
        result.tallies[judge] = defaultdict(Tally)
        result.pages[judge] = Counter()
    for outcome in outcomes:
        scenario = outcome.scenario
        name = f"{scenario.name} / {outcome.seed}"
        for judge in JUDGES:
            told: tuple[Told, ...] = getattr(outcome, judge)
            _count(result, judge, outcome, told)
            wanted = {tuple(expect) for expect in _expected(scenario, judge)}
            got = {alert.what for alert in told}
            missed = sorted(wanted - got)
            wrong = sorted(what for what in got - wanted if not _is_allowed(scenario, what))
            if missed or wrong:
                result.mistakes.append(f"{judge:7}{name}: missed {missed}, wrong {wrong}")
        difference = _comparable(outcome.rules) ^ _comparable(outcome.policy)
        if difference:
            result.disagreements.append(f"{name}: {sorted(difference)}")
    return result


def _comparable(told: Sequence[Told]) -> set[tuple[str, str, str]]:
    return {alert.what for alert in told if alert.about not in BLIND_SOURCES}


def _expected(scenario: Scenario, judge: str) -> list[tuple[str, str, str]]:
    return [
        (expect.verdict, expect.severity, expect.about)
        for expect in scenario.expect
        if judge == "rules" or expect.about not in BLIND_SOURCES
    ]


def _is_allowed(scenario: Scenario, what: tuple[str, str, str]) -> bool:
    """Whether an alert that is not demanded is right all the same: a true verdict, in a severity that may be."""
    verdict, severity, about = what
    if verdict in scenario.also:
        return True
    known = {(expect.verdict, expect.about) for expect in scenario.expect}
    return (verdict, about) in known and not (severity == "critical" and scenario.paged is False)


def _count(result: Score, judge: str, outcome: Outcome, told: Sequence[Told]) -> None:
    scenario = outcome.scenario
    expected = _expected(scenario, judge)
    deserved = {(verdict, about) for verdict, _, about in expected}
    first: dict[tuple[str, str], float] = {}
    for alert in told:
        key = alert.verdict, alert.about
        first[key] = min(first.get(key, alert.first), alert.first)
    tallies = result.tallies[judge]
    for key in sorted(deserved):
        tally = tallies[key[0]]
        begins, least = moment_of(scenario, key)
        if key in first and first[key] >= outcome.begin + begins:
            tally.right += 1
            tally.delays.append(first[key] - outcome.begin - begins)
            tally.minima.append(least)
        else:
            tally.missed += 1
    wrong = [key for key in first if key not in deserved and key[0] not in scenario.also]
    for key in wrong:
        tallies[key[0]].invented += 1
    if judge == "rules":
        for row in sorted({verdict for verdict, _ in deserved} or {"nothing"}):
            hit = any(key in first for key in deserved if key[0] == row) if deserved else not wrong
            result.matrix[row, row if hit else "nothing"] += 1
            for key in wrong:
                result.matrix[row, key[0]] += 1
    wanted = {(verdict, about) for verdict, severity, about in expected if severity == "critical"}
    paged = {(alert.verdict, alert.about) for alert in told if alert.severity == "critical"}
    pages = result.pages[judge]
    pages["right"] += len(wanted & paged)
    pages["missed"] += len(wanted - paged)
    pages["wrong"] += sum(not _is_allowed(scenario, (key[0], "critical", key[1])) for key in paged - wanted)


def share_of(outcomes: Sequence[Outcome], told: Callable[[Outcome], Sequence[Told]], severity: str) -> float:
    """In which share of the runs the afflicted rank was told with this severity."""
    found = sum(
        any(alert.verdict == "straggling_rank" and alert.severity == severity for alert in told(outcome))
        for outcome in outcomes
    )
    return found / len(outcomes)
