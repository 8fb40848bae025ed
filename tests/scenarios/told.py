"""What was told about a run: the alerts, as rules or the embedded policy gave them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_ABOUT = {
    "straggling_rank": "rank",
    "straggling_node": "rank_node",
    "heavy_stage": "peer_group",
    "throttled_gpu": "rank",
    "degraded_gpu": "rank",
    "blind": "reason",
}
"""The label that tells what a verdict is about."""


class Told(NamedTuple):
    """One alert that fired."""

    verdict: str
    severity: str
    about: str
    """The rank's number, the node, the peer group or the reason; ``""`` for the run as a whole."""
    first: float
    """When it fired for the first time, seconds since the scenario's beginning."""
    last: float
    """When it fired for the last time."""

    @property
    def what(self) -> tuple[str, str, str]:
        """Without the times."""
        return self.verdict, self.severity, self.about


def about(verdict: str, labels: Mapping[str, str]) -> str:
    """What a verdict with these labels is about."""
    return labels.get(_ABOUT.get(verdict, ""), "")
