"""What a timer knows of its loop besides time: amounts, arrivals' meaning, and who wants the records."""

from __future__ import annotations

from collections import deque
from typing import Any

from straggler.wire import layout

_QUEUE_RECORDS = 4096
"""Records that wait for the push thread or for a scrape: 40 s at 100 steps a second. The oldest goes first."""

MEASURED = 0
NO_WAIT = layout.OWN_REASONS.index("no_wait_phase")
BAD_CLOCK = layout.OWN_REASONS.index("bad_clock")
AS_BOOKED = -1
"""Instead of an own reason: the one in the book."""

MOST = 1 << 50
"""Of anything in one step: what is more is a mistake."""
MOST_FLOPS = 1e30
Amounts = tuple[Any, Any, Any, Any, Any, Any]
"""What the loop says about one step, as it said it, or ``None``: number, tokens, samples, flops, allreduce_bytes,
profiled. Plain, since it is made anew each time."""


def is_count(value: Any, most: float = MOST) -> bool:
    """Whether a value is a plain number (of Python's or numpy's) of 0 to ``most``.

    Nothing is asked of anything else: a tensor on a GPU would wait for the GPU.
    """
    if not isinstance(value, int | float):
        is_scalar = type(value).__module__ == "numpy" and not getattr(value, "ndim", 1)
        if not is_scalar or isinstance(value, str | bytes):
            return False
    return bool(0 <= value <= most)


class Book:
    """What changes rarely, or is changed from outside too."""

    __slots__ = (
        "allreduce_bytes",
        "excluded",
        "flags",
        "flops",
        "host_data_ns",
        "own_reason",
        "profiled_steps",
        "queues",
        "samples",
    )

    def __init__(self, own_reason: int) -> None:
        self.own_reason = own_reason
        """Index into ``layout.OWN_REASONS``; ``NO_WAIT`` until the loop marks its first wait."""
        self.excluded = 0
        """1 + index of the excluded phase that the rank is in, else 0: as the live block says it."""
        self.samples = self.allreduce_bytes = self.profiled_steps = self.host_data_ns = 0
        self.flops = 0.0
        self.flags = 0
        """Which amounts are known: set for good by the first one that the loop gives."""
        self.queues: list[deque[bytes]] = []

    def new_queue(self) -> deque[bytes]:
        """A queue that gets each record from now on, for another thread to empty."""
        queue: deque[bytes] = deque(maxlen=_QUEUE_RECORDS)
        self.queues.append(queue)
        return queue
