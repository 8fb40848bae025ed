"""Why something about an NCCL log is refused, or cannot be seen: values of the label ``reason``."""

from __future__ import annotations

from typing import Final

NCCL_REASONS: Final = (
    "symlink",  # links are not followed
    "not_regular",  # a pipe, a device, a directory
    "hard_linked",  # the file has a second name: whose it is cannot be told by its place
    "writable_by_others",  # any user may write it, so it proves nothing
    "wrong_owner",  # of a user who may not be believed (rings.owners)
    "unreadable",  # no permission, or an error of the file system
    "too_many_logs",  # more files than are followed
    "no_nccl_lines",  # a log that says nothing of NCCL, for a while: is NCCL_DEBUG=INFO set?
    "skipped",  # written faster than it is read, or long already when it was first seen: its middle was left out
    "long_line",  # a line that never ends
    "crowded_line",  # a line in which more processes speak than can have run together
    "cut_line",  # a line about a channel that ends too early
    "too_many_processes",  # in one log
    "too_many_communicators",  # in one process
)

NCCL_BLIND_REASONS: Final = (
    "rank_without_log",  # ranks of this node about which no log says anything, while logs are asked for
)
