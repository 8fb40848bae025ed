"""What the process as a whole does to the hook: it forks, and it ends.

A fork leaves a child that looks like the rank: same memory, same descriptors. There all timers die at once, without a
word, since a DataLoader worker must neither write into its parent's ring nor say goodbye for it.

At the end each timer says how the rank ended. Only a normal end is heard here: after SIGKILL, ``os._exit`` or a signal
without a handler nothing is said, and the lock on the ring, which the kernel drops, tells that the rank crashed.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from typing import Protocol

from straggler.hook.guard import attempt
from straggler.wire import layout

WANTED_ENDS = (SystemExit, KeyboardInterrupt, GeneratorExit)
"""``sys.exit`` and Ctrl-C are ends that somebody wanted, not crashes."""


class Member(Protocol):
    """What this module needs of a timer's session."""

    def close(self, status: int) -> None:
        """Say goodbye and end; again is harmless."""

    def orphan(self) -> None:
        """This is a forked child: never do anything again."""


_members: list[Member] = []
"""All timers of this process that are not closed."""
_last_words: list[Callable[[], None]] = []
"""What is still to be written before the goodbyes."""
_watched_pid = 0


def join(member: Member) -> None:
    """Take a timer in. The first one in a process registers for its fork and its end."""
    global _watched_pid  # noqa: PLW0603 - one process, one registration
    _members.append(member)
    if _watched_pid == 0 and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)
    if _watched_pid == os.getpid():
        return
    _watched_pid = os.getpid()
    atexit.register(_goodbye)
    # A forked child of multiprocessing ends by os._exit and runs no atexit functions. One that makes a timer of its
    # own is a rank, so it hears of its end in multiprocessing's own way.
    util = sys.modules.get("multiprocessing.util")
    process = sys.modules.get("multiprocessing.process")
    if util is not None and process is not None and process.parent_process() is not None:
        util.Finalize(None, _goodbye, exitpriority=0)


def leave(member: Member) -> None:
    """Forget a timer that is closed."""
    if member in _members:
        _members.remove(member)


def before_goodbye(write: Callable[[], None]) -> None:
    """Call this at the end of the process before any timer says goodbye, however the end is heard of."""
    _last_words.append(write)


def forget(write: Callable[[], None]) -> None:
    """Call it no more."""
    if write in _last_words:
        _last_words.remove(write)


def members() -> tuple[Member, ...]:
    """All timers of this process that are not closed."""
    return tuple(_members)


def _after_fork() -> None:
    for member in _members:
        attempt(member.orphan)
    _members.clear()
    _last_words.clear()


def _goodbye() -> None:
    if _watched_pid != os.getpid():
        return  # inherited by a child that the fork handler did not see: it is not ours to say
    for write in tuple(_last_words):
        attempt(write)
    status = layout.STATUS_EXCEPTION if _ends_by_exception() else layout.STATUS_FINISHED
    for member in members():
        attempt(member.close, status)


def _ends_by_exception() -> bool:
    """Whether the interpreter ends because of an uncaught exception, as far as one can know inside of it.

    At a prompt ``sys.last_value`` says nothing about the end.
    """
    current = sys.exc_info()[1]  # multiprocessing runs its finalizers while the exception is on its way
    last = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if hasattr(sys, "ps1"):
        last = None
    return any(error is not None and not isinstance(error, WANTED_ENDS) for error in (current, last))
