"""What one look cannot say: shares of the last minutes, how long a rank is gone, how the run used to do.

Bounded: per rank one entry every ten seconds for five minutes, per run one level a minute for six hours; what is no
longer seen is forgotten after the policy's grace.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

from straggler.detect.lately import Lately
from straggler.detect.policy import Policy
from straggler.detect.ports import PortMemory
from straggler.detect.regression import Level, level, usual
from straggler.detect.sample import RankSample, sample
from straggler.detect.shape import Imbalance, imbalance
from straggler.detect.straggling import assess
from straggler.detect.trail import Trails
from straggler.join.view import RankView
from straggler.model.rank import RankKey, RankState

_SHARE_SECONDS = 300.0
"""As the ``[5m]`` of the rules."""
_SHARE_SPACING = 10.0
_LEVEL_SPACING = 60.0


class _Mark(NamedTuple):
    at: float
    data_seconds: float
    step_seconds: float
    held_back: dict[str, float]


class History:
    """Remembers across looks. Times are monotonic seconds."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._marks: dict[RankKey, deque[_Mark]] = {}
        self._trails = Trails(policy)
        self._ports: dict[str, PortMemory] = {}
        """Of each node."""
        self._gone_since: dict[RankKey, float] = {}
        self._finished: dict[RankKey, float] = {}
        """When each rank was last seen to have finished."""
        self._imbalance: dict[str, deque[tuple[float, Imbalance]]] = {}
        self._levels: dict[str, deque[tuple[float, Level]]] = {}

    def observe(self, now: float, views: Iterable[RankView]) -> list[RankSample]:
        """Turn joined ranks into samples with what this history knows about them."""
        views = list(views)
        finished = self._note_finished(now, views)
        lately = self._trails.look(now, views)
        ports = {view.rank.identity.node: view.ports for view in views if view.ports}
        self._ports = {node: self._ports.get(node) or PortMemory(self._policy) for node in ports}
        faults = {node: memory.look(now, ports[node]) for node, memory in self._ports.items()}
        samples = [
            replace(
                self._sample(now, view, finished[view.rank.identity.run], lately.get(view.rank.key)),
                network_faults=faults[view.rank.identity.node] if view.ports else (),
            )
            for view in views
        ]
        seen = {rank.key for rank in samples}
        self._marks = {key: marks for key, marks in self._marks.items() if key in seen}
        self._gone_since = {key: since for key, since in self._gone_since.items() if key in seen}
        return self._with_imbalance(now, samples)

    def past(self, now: float, samples: Sequence[RankSample]) -> dict[str, Level]:
        """How each run used to do, where it has been seen for long enough; takes in how it does now."""
        policy = self._policy
        runs: dict[str, list[RankSample]] = {}
        for rank in samples:
            runs.setdefault(rank.run, []).append(rank)
        for run, ranks in runs.items():
            levels = self._levels.setdefault(run, deque())
            current = level(ranks, policy)
            if current is not None and (not levels or now - levels[-1][0] >= _LEVEL_SPACING):
                levels.append((now, current))
        self._levels = {
            run: levels
            for run, levels in self._levels.items()
            if run in runs or (levels and now - levels[-1][0] < policy.gone_counters_seconds)
        }
        for levels in self._levels.values():
            while levels and levels[0][0] < now - policy.regression_window_seconds:
                levels.popleft()
        return {run: usual for run in runs if (usual := self._usual(now, run)) is not None}

    def _usual(self, now: float, run: str) -> Level | None:
        old = [entry for at, entry in self._levels[run] if at <= now - self._policy.regression_offset_seconds]
        if not old or now - self._levels[run][0][0] < self._policy.regression_min_history_seconds:
            return None
        return usual(old)

    def _with_imbalance(self, now: float, samples: Sequence[RankSample]) -> list[RankSample]:
        """Tell each rank how much the ranks of its run have waited for each other in the last minutes."""
        runs: dict[str, list[RankSample]] = {}
        for rank in samples:
            runs.setdefault(rank.run, []).append(rank)
        self._imbalance = {run: seen for run, seen in self._imbalance.items() if run in runs}
        mean: dict[str, tuple[float, float] | None] = {}
        for run, ranks in runs.items():
            seen = self._imbalance.setdefault(run, deque())
            slowness = assess(ranks, self._policy)
            if slowness.groups and (not seen or now - seen[-1][0] >= _SHARE_SPACING):
                seen.append((now, imbalance(slowness)))
            while seen and seen[0][0] <= now - _SHARE_SECONDS:
                seen.popleft()
            mean[run] = (
                (fmean(one.waiting for _, one in seen), fmean(one.explained for _, one in seen)) if seen else None
            )
        return [replace(rank, run_imbalance=mean[rank.run]) for rank in samples]

    def _note_finished(self, now: float, views: Iterable[RankView]) -> Counter[str]:
        """By run, how many ranks have finished within the time that the last ones may take to write their results."""
        for view in views:
            if view.rank.state is RankState.FINISHED:
                self._finished[view.rank.key] = now
        oldest = now - self._policy.hang_excluded_seconds
        self._finished = {key: at for key, at in self._finished.items() if at >= oldest}
        return Counter(key.run for key in self._finished)

    def _sample(self, now: float, view: RankView, run_finished: int, lately: Lately | None) -> RankSample:
        key = view.rank.key
        if view.rank.state is RankState.CRASHED:
            return sample(view, gone_seconds=now - self._gone_since.setdefault(key, now), run_finished=run_finished)
        self._gone_since.pop(key, None)
        mark = _mark(now, view)
        if mark is None:
            return sample(view, run_finished=run_finished)
        marks = self._marks.setdefault(key, deque())
        if marks and _restarted(marks[-1], mark):
            marks.clear()
        while len(marks) > 1 and marks[1].at <= now - _SHARE_SECONDS:
            marks.popleft()
        first = marks[0] if marks else mark
        if not marks or now - marks[-1].at >= _SHARE_SPACING:
            marks.append(mark)
        stepped, passed = mark.step_seconds - first.step_seconds, now - first.at
        return sample(
            view,
            run_finished=run_finished,
            lately=lately,
            data_share=(mark.data_seconds - first.data_seconds) / stepped if stepped > 0 else None,
            throttled_share={
                reason: (seconds - first.held_back[reason]) / passed
                for reason, seconds in mark.held_back.items()
                if reason in first.held_back and passed > 0
            },
        )


def _mark(now: float, view: RankView) -> _Mark | None:
    totals = view.rank.totals
    if totals is None:
        return None
    held_back = dict(view.gpu.clocks_event_seconds) if view.gpu else {}
    return _Mark(now, totals.phase_seconds.get("data", 0.0), totals.step_seconds, held_back)


def _restarted(before: _Mark, after: _Mark) -> bool:
    """Whether a total has fallen: another process, or a GPU that was swapped."""
    return (
        after.step_seconds < before.step_seconds
        or after.data_seconds < before.data_seconds
        or any(after.held_back.get(reason, seconds) < seconds for reason, seconds in before.held_back.items())
    )
