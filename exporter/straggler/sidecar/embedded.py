"""The policy without a Prometheus: for runs whose ranks are all on this node, judged from the joined ranks themselves.

A run that reaches beyond the node is left to Prometheus and its rules: here only some of its ranks are seen, a slow one
may be elsewhere, and two sidecars would each tell half of the story. A run counts as wholly here once as many different
ranks of it have been seen as it was started with, or when the launcher says that all of them are local; it stays so
until its last rank is forgotten or it grows, so that a rank that dies is missed and not taken for one elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from straggler.detect.history import History
from straggler.detect.persistence import Persistence, Stage, Standing
from straggler.detect.policy import Policy
from straggler.detect.verdicts import judge
from straggler.join.view import RankView
from straggler.model.clock import Clock
from straggler.sidecar.alerts import Alert, build


class Notifier(Protocol):
    """Where alerts go."""

    def notify(self, alerts: Sequence[Alert]) -> None:
        """Take over what fires now and what has just been resolved; returns at once."""


class EmbeddedPolicy:
    """Judges the node's own runs. One thread calls ``observe`` every few seconds."""

    def __init__(
        self,
        policy: Policy,
        clock: Clock,
        notifier: Notifier,
        *,
        labels: Mapping[str, str] | None = None,
        links: Mapping[str, str] | None = None,
    ) -> None:
        """Make one per sidecar.

        Args:
            policy: the thresholds.
            clock: the machine's.
            notifier: told after each look.
            labels: put on every alert, e.g. ``cluster``.
            links: ``runbook``, the address under which the runbooks lie, and ``dashboard``, Grafana's.
        """
        self._policy = policy
        self._clock = clock
        self._notifier = notifier
        self._labels = dict(labels or {})
        self._links = dict(links or {})
        self._history = History(policy)
        self._persistence = Persistence(policy, clock)
        self._whole: dict[str, int] = {}
        """World size of each run that is wholly here."""
        self.elsewhere: dict[str, str] = {}
        """Runs that are not judged here, each with the reason in one line."""
        self.standings: tuple[Standing, ...] = ()
        """All verdicts after the last look, pending ones too."""

    def observe(self, views: Sequence[RankView]) -> tuple[Alert, ...]:
        """Judge the ranks as they are now, and tell the notifier.

        Args:
            views: all ranks of the node, living and recently gone.

        Returns:
            The alerts that fire, and those that this look resolved.
        """
        local = self._local(views)
        now = self._clock.monotonic()
        samples = self._history.observe(now, local)
        past = self._history.past(now, samples)
        self.standings = self._persistence.update(judge(samples, self._policy, past))
        by_key = {view.rank.key: view for view in local}
        alerts = tuple(
            build(standing, by_key, self._labels, self._links)
            for standing in self.standings
            if standing.stage is not Stage.PENDING
        )
        self._notifier.notify(alerts)
        return alerts

    def _local(self, views: Sequence[RankView]) -> list[RankView]:
        runs: dict[str, list[RankView]] = {}
        for view in views:
            runs.setdefault(view.rank.identity.run, []).append(view)
        self._whole = {run: world for run, world in self._whole.items() if run in runs}
        self.elsewhere = {}
        for run, ranks in runs.items():
            world = max((view.rank.identity.world_size or 0 for view in ranks), default=0)
            if run in self._whole and world <= self._whole[run]:
                continue
            self._whole.pop(run, None)
            reason = _why_not_whole(ranks, world)
            if reason:
                self.elsewhere[run] = reason
            else:
                self._whole[run] = world
        return [view for run in runs if run in self._whole for view in runs[run]]


def _why_not_whole(views: Sequence[RankView], world: int) -> str:
    """Why a run cannot be judged on this node; ``""`` if it can."""
    if world == 0:
        return "its world size is unknown"
    identities = [view.rank.identity for view in views]
    seen = len({identity.rank for identity in identities})
    if seen >= world or all(identity.local_world_size == world for identity in identities):
        return ""
    return f"{seen} of its {world} ranks are on this node"
