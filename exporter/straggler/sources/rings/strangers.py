"""Whose rings are believed, and for which run.

Whoever may create files in the ring directory may write a ring that claims any run and rank. So on one node a run
belongs to one claimant: the user whose ring of it was seen first (under Kubernetes, where everybody may be root: the
user and the namespace's directory, which the kubelet made). Rings of others that claim it are refused and change
nothing. A claim ends when all its rings have said goodbye, or are gone as long as their counters stay: a crash cannot
be hidden behind a forged survivor. If the reader starts when two users claim one run already, it cannot know who was
first, and believes neither.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

from straggler.errors import SourceFailedError
from straggler.model.reading import Problem
from straggler.sources.rings.discover import RingKey
from straggler.sources.rings.ring import Ring


@dataclass(frozen=True, slots=True, kw_only=True)
class RingPolicy:
    """What the administrator demands of rings, beyond what is always demanded (``discover.check_status``)."""

    owners: tuple[range, ...] = ()
    """Users that may write rings, by number; none: everybody."""
    namespaced_runs: bool = False
    """Whether a ring at ``NAMESPACE/POD/`` may only be of a run called ``NAMESPACE/…``."""

    def check_owner(self, status: os.stat_result) -> None:
        """Refuse a file of somebody who may not write rings.

        Raises:
            SourceFailedError: ``wrong_owner``.
        """
        if self.owners and not any(status.st_uid in allowed for allowed in self.owners):
            raise SourceFailedError("wrong_owner", f"of user {status.st_uid}, who is not in rings.owners")

    def allows(self, key: RingKey, ring: Ring) -> bool:
        """Whether the ring may speak for its run, by where it is."""
        namespace = _namespace_of(key)
        if not self.namespaced_runs or not namespace:
            return True
        in_run = ring.identity.run.startswith(f"{namespace}/")
        return in_run and ring.identity.namespace in ("", namespace)


class Claimant(NamedTuple):
    """Who claims a run."""

    uid: int
    namespace: str
    """Directory of the namespace; ``""`` where there are none."""

    def __str__(self) -> str:
        return f"user {self.uid}{f' in {self.namespace!r}' if self.namespace else ''}"


class Sorted(NamedTuple):
    """The rings of one look."""

    believed: list[Ring]
    problems: dict[tuple[object, str], Problem]
    """By what they are about and reason."""


class Claims:
    """Remembers to whom each run belongs."""

    def __init__(self, policy: RingPolicy) -> None:
        self._policy = policy
        self._holders: dict[str, Claimant] = {}

    def sort(self, rings: Mapping[RingKey, Ring]) -> Sorted:
        """Tell the rings that are believed from those that are not."""
        problems: dict[tuple[object, str], Problem] = {}
        by_run: dict[str, dict[Claimant, list[Ring]]] = defaultdict(lambda: defaultdict(list))
        for key, ring in rings.items():
            if self._policy.allows(key, ring):
                by_run[ring.key.run][Claimant(ring.uid, _namespace_of(key))].append(ring)
            else:
                problems[key, "wrong_namespace"] = Problem(
                    reason="wrong_namespace",
                    detail=f"{key.path!r} claims the run {ring.key.run!r} (rings.namespaced_runs)",
                )
        believed = []
        holders = {}
        for run, claims in by_run.items():
            holder = self._holder(run, claims)
            if holder is not None:
                holders[run] = holder
                believed += claims[holder]
            for claimant, claimed in claims.items():
                if claimant != holder and any(map(_stands, claimed)):
                    problems[(run, claimant), "foreign_run"] = _foreign(run, claimant, holder, len(claimed))
        self._holders = holders
        return Sorted(believed, problems)

    def _holder(self, run: str, claims: Mapping[Claimant, list[Ring]]) -> Claimant | None:
        """To whom the run belongs; ``None`` if that cannot be told."""
        before = self._holders.get(run)
        if before is not None and before in claims and (len(claims) == 1 or any(map(_stands, claims[before]))):
            return before
        for is_claim in (_lives, _stands, _is_there):
            claimants = [claimant for claimant, rings in claims.items() if any(map(is_claim, rings))]
            if claimants:
                return claimants[0] if len(claimants) == 1 else None
        return None


def _lives(ring: Ring) -> bool:
    return ring.alive


def _stands(ring: Ring) -> bool:
    """Whether the ring upholds the claim: its process lives, or died without a goodbye."""
    return ring.alive or not ring.said_goodbye


def _is_there(_: Ring) -> bool:
    return True


def _namespace_of(key: RingKey) -> str:
    """The directory of the namespace of ``NAMESPACE/POD/FILE``."""
    parts = PurePosixPath(key.path).parts
    return parts[0] if len(parts) == 3 else ""


def _foreign(run: str, claimant: Claimant, holder: Claimant | None, count: int) -> Problem:
    whose = f"{holder}'s on this node" if holder else "claimed by several users, and nobody knows who was first"
    return Problem(
        reason="foreign_run",
        detail=f"run {run!r} is {whose}; {claimant} claims it too: give each job a run of its own (STRAGGLER_RUN)",
        count=count,
    )
