"""The rings of living ranks, read once: for a command that wants to speak to one of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from straggler.errors import SourceFailedError, WireError
from straggler.sources.rings.discover import RingKey, open_ring, scan
from straggler.sources.rings.lock import lock_held
from straggler.sources.rings.snapshot import Snapshot, snapshot_of
from straggler.wire import layout
from straggler.wire.records import Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class LivingRing:
    """One ring whose writer lives."""

    path: Path
    user: int
    """Who owns it: the user that the rank runs as."""
    identity: Identity
    snapshot: Snapshot


def read_living(root: Path) -> tuple[LivingRing, ...]:
    """All rings of a directory whose rank runs, by its lock or, where that cannot be told, by its own word.

    What cannot be read is left out: the sidecar counts it.

    Raises:
        SourceAbsentError: there is no such directory.
        SourceFailedError: it cannot be read.
    """
    found = []
    for key, status in scan(root, lambda _: True).statuses.items():
        if status is None:
            continue
        try:
            snapshot = _read(root, key, status)
        except (OSError, SourceFailedError, WireError):
            continue
        live, identity = snapshot.live, snapshot.identity
        runs = live is not None and live.status == layout.STATUS_RUNNING and snapshot.locked is not False
        if runs and identity is not None:
            found.append(LivingRing(path=root / key.path, user=status.st_uid, identity=identity, snapshot=snapshot))
    return tuple(found)


def _read(root: Path, key: RingKey, status: os.stat_result) -> Snapshot:
    descriptor = open_ring(root, key, status)
    try:
        return snapshot_of(os.pread(descriptor, status.st_size, 0), locked=lock_held(descriptor))
    finally:
        os.close(descriptor)
