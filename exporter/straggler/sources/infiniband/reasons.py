"""Why something was refused, or cannot be seen; each is a label."""

from __future__ import annotations

from typing import Final

from straggler.model.reading import Problem

INFINIBAND_REASONS: Final = (
    "bad_format",  # not in the form that the kernel documents: no number, a negative one, another text
    "unreadable",  # no permission, or the driver fails
    "odd_file",  # a link, a directory or a device where a file should be
    "outside",  # an adapter that leads out of sysfs
    "bad_name",  # no name of an adapter
    "too_many_ports",  # more than any server has
    "gone",  # there were ports, and there is none left
)

INFINIBAND_BLIND_REASONS: Final = (
    "counter_saturated",  # a small error counter stands at its maximum: it counts no more until it is reset
    "counters_hidden",  # ports are here and their counters are not: another network namespace than the host's
    "port_gone",  # a port that was here is not any more
    "node_names_differ",  # ranks of this node name it differently, so its ports are joined with some of them only
)


class Refusals:
    """Problems of one look, one for each reason, told by the first."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def add(self, reason: str, detail: str) -> None:
        """Count one.

        Args:
            reason: of ``INFINIBAND_REASONS``.
            detail: for the log, if it is the first.
        """
        self._first.setdefault(reason, detail)
        self._counts[reason] = self._counts.get(reason, 0) + 1

    def problems(self) -> tuple[Problem, ...]:
        """What was counted."""
        return tuple(
            Problem(reason=reason, detail=detail, count=self._counts[reason]) for reason, detail in self._first.items()
        )
