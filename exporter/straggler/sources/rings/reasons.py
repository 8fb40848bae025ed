"""Why a ring, or a file that claims to be one, is not published."""

from __future__ import annotations

from typing import Final

from straggler.wire.layout import WIRE_REASONS

FILE_REASONS: Final = (
    "symlink",  # never followed: the target is not the writer's to choose
    "not_regular",  # a pipe, socket or device, never opened
    "hard_linked",  # may be somebody else's file under a second name
    "too_large",
    "writable_by_others",  # whoever may write it may forge it; the hook makes rings that only their owner writes
    "wrong_owner",  # of a user who may not write rings, by the administrator's policy
    "wrong_namespace",  # claims a run of another namespace than its directory's
    "foreign_run",  # claims a run that belongs to another user of this node
    "unreadable",  # permissions, or an I/O error
    "not_ready",  # no preamble after the grace for start-up: its writer died, or never was one
    "truncated",  # smaller than its preamble says
    "replaced",  # the preamble changed under the reader
    "duplicate_rank",  # two living ranks claim one (run, rank)
    "too_many_ranks",
    "too_many_files",
    "too_many_directories",
    "remove_failed",
)

RECORD_REASONS: Final = ("torn",)  # its writer died in the middle of it, or it was spoilt: later ones are whole

RING_REASONS: Final = (*FILE_REASONS, *RECORD_REASONS, *WIRE_REASONS)
"""All values of ``reason`` that this source counts under."""

RING_BLIND_REASONS: Final = ("hook_off",)  # the hook has switched itself off: the log of the training says why
