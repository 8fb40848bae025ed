"""How long a verdict must hold before anybody is told, and how long it stays told: Prometheus' alert states.

::

    holds ──► pending ──(held without a break for `for`)──► firing ──(absent for `keep`)──► resolved
                 └──(absent once)──► forgotten              └──(back in time)──► firing, since unchanged

``for`` keeps chance out; ``keep`` (``keep_firing_for``) keeps one missed look, or a straggler that comes and goes, from
resolving and paging again. Durations are taken on the monotonic clock, times of day only told.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from straggler.detect.policy import Policy
from straggler.detect.verdict import CRITICAL, Verdict
from straggler.model.clock import Clock


class Stage(str, Enum):
    """Where a verdict stands."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class Patience(NamedTuple):
    """Seconds."""

    hold: float
    """It must hold this long without a break: ``for`` in the rules."""
    keep: float
    """It stays firing this long after it last held: ``keep_firing_for``."""


def patience(verdict: Verdict, policy: Policy) -> Patience:
    """How patient the policy is with a verdict."""
    keep = policy.keep_firing_seconds
    if verdict.verdict in {"straggling_rank", "straggling_node"}:
        critical = verdict.severity == CRITICAL
        return Patience(policy.critical_for_seconds if critical else policy.warning_for_seconds, keep)
    holds = {
        "hang": 0.0,  # the state itself has waited already
        "crash": policy.crash_for_seconds,
        "missing_rank": policy.missing_seconds,
        "blind": policy.blind_seconds,
        "degraded_gpu": policy.warning_for_seconds,
        "utilization_divergence": policy.divergence_seconds,
    }
    if verdict.verdict in holds:
        return Patience(holds[verdict.verdict], keep)
    return Patience(policy.job_for_seconds, keep)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One verdict over time."""

    verdict: Verdict
    """As it last held, with ``since`` set."""
    stage: Stage
    holds: bool
    """Whether the condition holds at this moment; firing without it is ``keep``."""
    since: float
    """When it began to hold; epoch seconds."""
    fired: float | None = None
    """When ``for`` was over; epoch seconds."""
    ended: float | None = None
    """When it was resolved; epoch seconds."""


@dataclass(slots=True)
class _Track:
    verdict: Verdict
    since: float
    began: float
    last_held: float
    fired: float | None = None


class Persistence:
    """The states of all verdicts; ``update`` once per evaluation."""

    def __init__(self, policy: Policy, clock: Clock) -> None:
        self._policy = policy
        self._clock = clock
        self._tracks: dict[tuple[object, ...], _Track] = {}

    def update(self, verdicts: Iterable[Verdict]) -> tuple[Standing, ...]:
        """Take in what holds now.

        Args:
            verdicts: from ``judge``; of two with the same subject the first counts.

        Returns:
            Every verdict that is pending or firing, and once each that has just been resolved.
        """
        now, today = self._clock.monotonic(), self._clock.time()
        held: dict[tuple[object, ...], Verdict] = {}
        for verdict in verdicts:
            held.setdefault(verdict.subject, verdict)
        for subject, verdict in held.items():
            track = self._tracks.setdefault(subject, _Track(verdict, today, now, now))
            track.verdict, track.last_held = verdict, now
            if track.fired is None and now - track.began >= patience(verdict, self._policy).hold:
                track.fired = today
        return tuple(self._standings(held.keys(), now, today))

    def _standings(self, held: Iterable[tuple[object, ...]], now: float, today: float) -> Iterable[Standing]:
        present = set(held)
        for subject, track in list(self._tracks.items()):
            over = subject not in present and (
                track.fired is None or now - track.last_held >= patience(track.verdict, self._policy).keep
            )
            if over:
                del self._tracks[subject]
                if track.fired is None:
                    continue
            stage = Stage.RESOLVED if over else Stage.PENDING if track.fired is None else Stage.FIRING
            yield Standing(
                verdict=replace(track.verdict, since=track.since),
                stage=stage,
                holds=subject in present,
                since=track.since,
                fired=track.fired,
                ended=today if over else None,
            )
