"""A recording played back: at each step the ranks look as they would have looked to a living sidecar.

The recorded steps go through the same window into the same ``RankView`` that a ring gives, so whatever reads views
(history, verdicts, metric families) cannot tell the difference. What a recording cannot know stays unknown: no GPU, no
world size, no arrivals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from straggler.detect.window import Window
from straggler.join.view import RankView
from straggler.model.rank import RankFacts, RankState, Totals
from straggler.model.recorded import RecordedStep
from straggler.wire.recent import WINDOW_STEPS, Sample
from straggler.wire.records import Identity

_NS = 1e-9


@dataclass(frozen=True, slots=True)
class Timeline:
    """The steps of a recording in order, and when each ended."""

    steps: tuple[int, ...]
    """Step numbers, ascending."""
    rows: tuple[Mapping[int, RecordedStep], ...]
    """By rank, for each step."""
    ends: tuple[float, ...]
    """Seconds, not falling: since the epoch if the recording has times, else since its first step began."""
    dated: bool
    """Whether ``ends`` are times of day."""


def timeline(recorded: Sequence[RecordedStep]) -> Timeline:
    """Order rows by step, and find out when each step ended.

    Where a step has no time, it ends its own wall time after the one before: the slowest rank's, since all wait for it.
    Steps that the recording skips take no time then.
    """
    by_step: dict[int, dict[int, RecordedStep]] = {}
    for row in recorded:
        by_step.setdefault(row.step, {})[row.rank] = row
    steps = tuple(sorted(by_step))
    dated = any(row.end is not None for row in recorded)
    ends: list[float] = []
    for step in steps:
        rows = by_step[step].values()
        wall = max(row.wall_ns for row in rows) * _NS
        times = [row.end for row in rows if row.end is not None]
        before = ends[-1] if ends else None
        end = max(times, default=wall if before is None else before + wall)
        ends.append(end if before is None else max(end, before))
    return Timeline(steps, tuple(by_step[step] for step in steps), tuple(ends), dated)


@dataclass(slots=True)
class PlaybackClock:
    """Both clocks of the recording."""

    now: float = 0.0

    def time(self) -> float:
        """When the step ended that was played last."""
        return self.now

    def monotonic(self) -> float:
        """The same: a recording's clock never jumps."""
        return self.now


@dataclass(slots=True)
class _Rank:
    """One rank while it is played."""

    last: RecordedStep
    identity: Identity
    window: Window = field(default_factory=Window)
    index: int = -1
    steps: int = 0
    wall_ns: int = 0
    own_ns: int = 0
    wait_ns: int = 0
    unmeasured: int = 0
    phase_ns: dict[str, int] = field(default_factory=dict)

    def add(self, index: int, end: float, row: RecordedStep) -> None:
        self.last, self.index = row, index
        self.steps += 1
        self.wall_ns += row.wall_ns
        if row.own_ns is None:
            self.unmeasured += 1
        else:
            self.own_ns += row.own_ns
            self.wait_ns += row.wait_ns
        for name, value in row.phase_ns.items():
            self.phase_ns[name] = self.phase_ns.get(name, 0) + value
        self.window.add(Sample(int(end * 1e9), row.wall_ns, row.own_ns, row.wait_ns))

    def totals(self) -> Totals:
        measured = self.steps > self.unmeasured
        return Totals(
            steps=self.steps,
            step_seconds=self.wall_ns * _NS,
            own_seconds=self.own_ns * _NS if measured else None,
            wait_seconds=self.wait_ns * _NS if measured else None,
            phase_seconds={name: value * _NS for name, value in self.phase_ns.items()},
            arrivals=0,
            unmeasured_steps=self.unmeasured,
        )


class Playback:
    """Plays a timeline step by step."""

    def __init__(self, line: Timeline, run: str) -> None:
        self._line = line
        self._run = run
        self._ranks: dict[int, _Rank] = {}
        self._index = -1
        self.clock = PlaybackClock()

    def play(self) -> Iterator[int]:
        """Play one step after the other; gives the index of each once it is over."""
        for index, rows in enumerate(self._line.rows):
            end = self._line.ends[index]
            for number, row in rows.items():
                rank = self._ranks.get(number)
                if rank is None:
                    rank = self._ranks[number] = _Rank(row, self._identity(row))
                elif (row.peer_group, row.node) != (rank.last.peer_group, rank.last.node):
                    rank.identity = self._identity(row)
                rank.add(index, end, row)
            self._index, self.clock.now = index, end
            yield index

    def views(self) -> list[RankView]:
        """The ranks as a sidecar would see them now; a rank without a row in the last 32 steps is gone."""
        newest = self._index - WINDOW_STEPS
        return [self._view(rank) for _, rank in sorted(self._ranks.items()) if rank.index > newest]

    def _identity(self, row: RecordedStep) -> Identity:
        return Identity(run=self._run, rank=row.rank, peer_group=row.peer_group, node=row.node)

    def _view(self, rank: _Rank) -> RankView:
        recent = rank.window.recent()
        measured = recent is not None and recent.own_mean_seconds is not None
        return RankView(
            rank=RankFacts(
                identity=rank.identity,
                state=RankState.RUNNING,
                totals=rank.totals(),
                recent=recent,
                step=rank.last.step,
                last_step_timestamp_seconds=self._line.ends[rank.index] if self._line.dated else None,
                excluded_phase=None,
                own_reason="measured" if measured else "no_wait_phase",
                source="recording",
                since_progress_seconds=self.clock.now - self._line.ends[rank.index],
            ),
            gpu=None,
            evidence="",
            unmatched_reason="no_evidence",
        )
