"""Makes the ring in the first directory that takes it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection

from straggler.errors import RingError
from straggler.hook.directory import SHARED_MEMORY, candidates, is_not_here, own_directory
from straggler.hook.guard import attempt
from straggler.hook.options import Options
from straggler.hook.ring_writer import RingWriter, create_ring
from straggler.hook.sweep import remove_old_rings
from straggler.wire.records import Identity

_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})


def open_ring(
    options: Options,
    identity: Identity,
    live: bytes,
    times_ns: tuple[int, int],
    *,
    keep: Collection[str],
    warn: Callable[[str, str], None],
) -> RingWriter:
    """Choose the directory and make the ring.

    Args:
        options: the user's choice of directory.
        identity: first version of the identity block.
        live: first live block.
        times_ns: now, on the wall clock and on the monotonic clock.
        keep: rings that this process has open already.
        warn: told if the directory that is made for it is there and may not be used.

    Raises:
        RingError: no directory takes it; the text says why not.
    """
    reason = refused = ""
    for directory in candidates(options.directory, allow_any_filesystem=options.allow_any_filesystem):
        is_last_resort = directory == SHARED_MEMORY and not options.directory
        try:
            path = own_directory(directory) if is_last_resort else directory
            if is_last_resort:
                attempt(remove_old_rings, path, times_ns[0] * 1e-9, keep)
            ring = create_ring(path, identity, live, times_ns)
        except OSError as error:
            reason = f"{directory}: {error.strerror or error}"
            if not is_not_here(error):
                break
            refused = refused or (reason if error.errno not in _MISSING else "")
        else:
            if refused:
                warn("directory", f"{refused}. The step ring is in {path}, which only this user and root can read")
            return ring
    raise RingError(reason)
