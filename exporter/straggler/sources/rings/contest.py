"""Which ring speaks for a rank, when several claim it.

A restart leaves the dead ring of the last attempt beside the new one: the newest living ring counts, the dead one is
passed over in silence. Two rings that both get ahead are two processes with one name, often two jobs on one node whose
run is the hash of the same ``localhost:29500``. Their counters would alternate, so neither is published.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from straggler.sources.rings.ring import Ring


class Settled(NamedTuple):
    """The outcome for all ranks."""

    published: list[Ring]
    """One for each rank, ordered by run and rank."""
    duplicates: list[list[Ring]]
    """For each rank that is refused, the rings that contend for it."""
    superseded: list[Ring]
    """Rings of attempts that are over and have a successor: nobody will ask for them again."""


def settle(rings: Iterable[Ring]) -> Settled:
    """Choose one ring for each rank, or none.

    An older ring that lives but has not moved since the newest one appeared is being torn down, or is a timer that was
    left open in the same process: it does not contend.
    """
    by_rank: dict[tuple[str, int], list[Ring]] = defaultdict(list)
    for ring in rings:
        by_rank[ring.key].append(ring)
    published = []
    duplicates = []
    superseded = []
    for _, group in sorted(by_rank.items()):
        living = [ring for ring in group if ring.alive]
        newest = max(living or group, key=_age)
        rivals = [ring for ring in living if ring is not newest and ring.last_progress > newest.first_seen]
        if rivals:
            duplicates.append([*rivals, newest])
        else:
            published.append(newest)
        superseded += [ring for ring in group if ring is not newest and not ring.alive]
    return Settled(published, duplicates, superseded)


def _age(ring: Ring) -> tuple[int, int, float]:
    return ring.preamble.created_realtime_ns, ring.preamble.created_monotonic_ns, ring.first_seen
