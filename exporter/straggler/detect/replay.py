"""A recording judged: what the living service would have said, once per trouble, with the steps of its begin and end.

Same windows, same verdicts, same patience as live. On top of that, hindsight: onset and end from single steps
(``onset``), the slowdown over the whole slow time, and the cost step by step.

A recording shorter than a verdict's patience could never confirm it. There, what held without a break over the last
half of what could be judged counts, marked as not confirmed; else what holds at the end is listed as pending.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from straggler.detect.cost import lost_gpu_seconds, lost_share, own_excess
from straggler.detect.history import History
from straggler.detect.onset import first_slow, last_slow
from straggler.detect.persistence import Persistence, Stage, Standing, patience
from straggler.detect.policy import Policy
from straggler.detect.recorded import Playback, Timeline, timeline
from straggler.detect.slowdown import MEDIAN, quantile, reference
from straggler.detect.straggling import assess
from straggler.detect.verdict import CRITICAL, Verdict
from straggler.detect.verdicts import judge
from straggler.model.recorded import RecordedStep
from straggler.wire.recent import WINDOW_SECONDS, WINDOW_STEPS

EVALUATION_SECONDS = 0.25
"""Of the recording's own time. Every step is judged unless steps are shorter than this; the last one always is."""
_NS = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One trouble over time."""

    verdict: Verdict
    """As it last held; its ratio and share are over the slow time, its severity the worst that was reached."""
    since_step: int
    """The likeliest first slow step; about the whole job, the first step of the window that showed it first."""
    until_step: int | None
    """The likeliest last slow step; ``None`` if it still held at the end of the recording."""
    confirmed: bool
    """Whether it held for as long as the live alert waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a recording says."""

    findings: tuple[Finding, ...]
    pending: tuple[Finding, ...]
    """What held at the end, but not yet for long enough."""
    lost_gpu_seconds: float | None
    """Over all recorded ranks and steps whose own time is known; ``None`` if there are none."""
    gpu_seconds: float
    """The base of the lost ones."""
    is_upper_bound: bool
    """With more than one peer group, pipeline bubbles count as waiting."""
    line: Timeline
    ranks: tuple[int, ...]
    missing_rows: int
    """Rows that are not there although their rank has earlier and later ones."""
    enough_steps: bool
    """Whether any rank has as many steps as a verdict needs."""
    has_peers: bool
    """Whether any two ranks are of one peer group."""

    @property
    def lost_share(self) -> float | None:
        """The lost part of the ranks' time, 0 to 1."""
        if self.lost_gpu_seconds is None:
            return None
        return lost_share(self.lost_gpu_seconds, 1, self.gpu_seconds)


def replay(recorded: Sequence[RecordedStep], policy: Policy, run: str) -> Replay:
    """Judge a recording.

    Args:
        recorded: at least one row, at most one per step and rank, any order.
        policy: the thresholds.
        run: the run's name in the verdicts.
    """
    line = timeline(recorded)
    counts: dict[int, list[int]] = {}
    for index, rows in enumerate(line.rows):
        for rank in rows:
            counts.setdefault(rank, []).append(index)
    findings, pending, slow = _findings(line, policy, run)
    lost, total = _cost(line, slow)
    return Replay(
        findings=tuple(findings),
        pending=tuple(pending),
        lost_gpu_seconds=lost if total > 0 else None,
        gpu_seconds=total,
        is_upper_bound=len({row.peer_group for row in recorded}) > 1,
        line=line,
        ranks=tuple(sorted(counts)),
        missing_rows=sum(indexes[-1] - indexes[0] + 1 - len(indexes) for indexes in counts.values()),
        enough_steps=any(len(indexes) >= policy.min_steps for indexes in counts.values()),
        has_peers=len({(row.peer_group, row.rank) for row in recorded}) > len({row.peer_group for row in recorded}),
    )


@dataclass(slots=True)
class _Episode:
    """A trouble while it lasts. Warning and critical of one subject are one trouble."""

    standing: Standing
    first: int
    last: int
    fired: bool = False
    critical: bool = False


def _findings(
    line: Timeline, policy: Policy, run: str
) -> tuple[list[Finding], list[Finding], dict[int, frozenset[int]]]:
    """The findings, what is pending, and the slow ranks of each evaluation, by the index of its step."""
    playback = Playback(line, run)
    history = History(policy)
    persistence = Persistence(policy, playback.clock)
    running: dict[tuple[object, ...], _Episode] = {}
    over: list[_Episode] = []
    first_evaluated = last_evaluated = None
    final = len(line.steps) - 1
    slow: dict[int, frozenset[int]] = {}
    for index in playback.play():
        now = playback.clock.now
        if last_evaluated is not None and now - last_evaluated < EVALUATION_SECONDS and index != final:
            continue
        if index + 1 < policy.min_steps:
            continue
        first_evaluated = now if first_evaluated is None else first_evaluated
        last_evaluated = now
        samples = history.observe(now, playback.views())
        slow[index] = frozenset(found.sample.rank for found in assess(samples, policy).slow)
        standings = persistence.update(judge(samples, policy, history.past(now, samples)))
        over += _follow(running, standings, index)
    span = (last_evaluated or 0.0) - (first_evaluated or 0.0)
    findings = [_finding(episode, line, policy, still=False) for episode in over]
    pending: list[Finding] = []
    for episode in running.values():
        finding = _finding(episode, line, policy, still=episode.last == final)
        held = line.ends[episode.last] - line.ends[episode.first]
        short = span < patience(episode.standing.verdict, policy).hold
        if episode.fired or (episode.last == final and short and held >= span / 2):
            findings.append(finding)
        elif episode.last == final:
            pending.append(finding)
    findings.sort(key=lambda finding: (finding.since_step, finding.verdict.verdict, finding.verdict.rank or 0))
    return findings, pending, slow


def _follow(running: dict[tuple[object, ...], _Episode], standings: Sequence[Standing], index: int) -> list[_Episode]:
    """Carry the episodes on; gives those that are over and were told."""
    present: set[tuple[object, ...]] = set()
    for standing in standings:
        if standing.stage is Stage.RESOLVED:
            continue
        subject = replace(standing.verdict, severity="").subject
        present.add(subject)
        episode = running.get(subject)
        if episode is None:
            episode = running[subject] = _Episode(standing, index, index)
        if standing.holds:
            episode.standing, episode.last = standing, index
        fires = standing.stage is Stage.FIRING
        episode.fired = episode.fired or fires
        episode.critical = episode.critical or (fires and standing.verdict.severity == CRITICAL)
    gone = [subject for subject in running if subject not in present]
    return [episode for subject in gone if (episode := running.pop(subject)).fired]


def _finding(episode: _Episode, line: Timeline, policy: Policy, *, still: bool) -> Finding:
    verdict = episode.standing.verdict
    since, until = _window_start(line, episode.first, 1), episode.last
    members = _slow_ranks(verdict, line, episode.last)
    if members:
        start = _window_start(line, episode.first, 2)
        ratios = [_ratio_at(line, index, members) for index in range(start, episode.last + 1)]
        known = [ratio for ratio in ratios[since - start :] if ratio is not None]
        level = max(quantile(MEDIAN, known), policy.warning_ratio) if known else policy.warning_ratio
        filled = [1.0 if ratio is None else ratio for ratio in ratios]
        first = episode.first - start
        since = start + first_slow(filled[: first + 1], level)
        if not still:
            until = episode.first + last_slow(filled[first:], level)
        ratio, share = _over(line, since, until, members)
        verdict = replace(verdict, slowdown_ratio=ratio or verdict.slowdown_ratio, lost_share=share)
    if episode.critical:
        verdict = replace(verdict, severity=CRITICAL)
    return Finding(
        verdict=verdict,
        since_step=line.steps[since],
        until_step=None if still else line.steps[until],
        confirmed=episode.fired,
    )


def _window_start(line: Timeline, index: int, windows: int) -> int:
    """Index of the first step of the last window, or last two windows, that end with a step."""
    begun = bisect_right(line.ends, line.ends[index] - windows * WINDOW_SECONDS)
    return max(0, min(begun, index + 1 - windows * WINDOW_STEPS))


def _slow_ranks(verdict: Verdict, line: Timeline, index: int) -> frozenset[int]:
    """The ranks that a verdict about a rank or a node is about; none for one about the job."""
    if verdict.verdict == "straggling_rank" and verdict.rank is not None:
        return frozenset({verdict.rank})
    if verdict.verdict == "straggling_node":
        return frozenset(rank for rank, row in line.rows[index].items() if row.node == verdict.node)
    return frozenset()


def _ratio_at(line: Timeline, index: int, members: frozenset[int]) -> float | None:
    """The members' mean slowdown in one step; ``None`` if they or their peers have no row in it."""
    rows = line.rows[index]
    ratios: list[float] = []
    for group in {rows[rank].peer_group for rank in members if rank in rows}:
        own = {rank: row.own_ns for rank, row in rows.items() if row.peer_group == group and row.own_ns is not None}
        peers = reference([float(value) for value in own.values()])
        if peers:
            ratios += [own[rank] / peers for rank in members if rank in own]
    return fmean(ratios) if ratios else None


def _over(line: Timeline, since: int, until: int, members: frozenset[int]) -> tuple[float | None, float | None]:
    """Slowdown of the members over a stretch of steps, from each rank's mean, and the share of the step it makes."""
    own: dict[int, list[int]] = {}
    walls: list[int] = []
    groups: dict[int, str] = {}
    for rows in line.rows[since : until + 1]:
        walls.append(max(row.wall_ns for row in rows.values()))
        for rank, row in rows.items():
            groups[rank] = row.peer_group
            if row.own_ns is not None:
                own.setdefault(rank, []).append(row.own_ns)
    means = {rank: fmean(values) for rank, values in own.items()}
    ratios: list[float] = []
    excesses: list[float] = []
    for rank in members & means.keys():
        peers = reference([mean for other, mean in means.items() if groups[other] == groups[rank]])
        if peers:
            ratios.append(means[rank] / peers)
            excesses.append(means[rank] - peers)
    step = fmean(walls)
    return (fmean(ratios) if ratios else None, max(excesses) / step if excesses and step > 0 else None)


def _cost(line: Timeline, slow: Mapping[int, frozenset[int]]) -> tuple[float, float]:
    """GPU-seconds lost, and of how many: step by step, over the rows whose own time is known.

    Before the first evaluation those are taken as slow who were so in it: its window reaches back to there.
    """
    lost = total = 0.0
    slow_ranks = next(iter(slow.values()), frozenset[int]())
    for index, rows in enumerate(line.rows):
        slow_ranks = slow.get(index, slow_ranks)
        waits: list[float] = []
        groups: dict[str, dict[int, float]] = {}
        for rank, row in rows.items():
            if row.own_ns is not None:
                waits.append(row.wait_ns * _NS)
                groups.setdefault(row.peer_group, {})[rank] = row.own_ns * _NS
                total += row.wall_ns * _NS
        excesses: list[float] = []
        for own in groups.values():
            peers = reference(list(own.values()))
            if peers is not None:
                excesses += [own[rank] - peers for rank in sorted(slow_ranks & own.keys())]
        lost += lost_gpu_seconds(waits, own_excess(excesses, [list(own.values()) for own in groups.values()]))
    return lost, total
