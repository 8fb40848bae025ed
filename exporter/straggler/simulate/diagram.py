"""The reference diagram: one step of data-parallel training, rank by rank.

::

    rank 0..6  data | forward | backward | wait for the slow one ... all-reduce | optimizer
    slow rank  data | forward ...... | backward ......... |          all-reduce | optimizer

All ranks end the step together. The slow one's forward and backward take a factor longer; the others spend the
difference waiting in the all-reduce, where a GPU counts as busy.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDiagram:
    """Seconds that each part of a step takes on a healthy rank."""

    data: float
    forward: float
    backward: float
    all_reduce: float
    optimizer: float

    @property
    def compute(self) -> float:
        """Forward and backward: what a slow GPU stretches, and what is useful."""
        return self.forward + self.backward

    @property
    def step(self) -> float:
        """The whole step when nobody is slow."""
        return self.data + self.compute + self.all_reduce + self.optimizer

    def step_with(self, slow_factor: float) -> float:
        """The whole step, of every rank, when one rank's compute takes ``slow_factor`` times as long."""
        return self.step + (slow_factor - 1) * self.compute


REFERENCE = StepDiagram(data=0.006, forward=0.010, backward=0.016, all_reduce=0.010, optimizer=0.002)
"""44 ms."""
REFERENCE_RANKS = 8

_MARKS = {"data": "d", "forward": "f", "backward": "b", "wait": ".", "all_reduce": "a", "optimizer": "o"}


def lanes(diagram: StepDiagram, slow_factor: float, characters_per_second: float = 1000.0) -> dict[str, str]:
    """Draw one step of a usual and of the slow rank, a character per millisecond.

    Returns:
        Two lines of equal length under ``usual`` and ``slow``: d data, f forward, b backward, ``.`` waiting for the
        slow rank, a all-reduce, o optimizer.
    """
    wait = diagram.step_with(slow_factor) - diagram.step
    parts = {
        "usual": [
            ("data", diagram.data),
            ("forward", diagram.forward),
            ("backward", diagram.backward),
            ("wait", wait),
            ("all_reduce", diagram.all_reduce),
            ("optimizer", diagram.optimizer),
        ],
        "slow": [
            ("data", diagram.data),
            ("forward", diagram.forward * slow_factor),
            ("backward", diagram.backward * slow_factor),
            ("all_reduce", diagram.all_reduce),
            ("optimizer", diagram.optimizer),
        ],
    }
    return {name: _lane(lane, characters_per_second) for name, lane in parts.items()}


def _lane(parts: list[tuple[str, float]], scale: float) -> str:
    """Round the ends and not the lengths, so that equal sums give equal lines."""
    text, now = "", 0.0
    for name, seconds in parts:
        now += seconds
        text += _MARKS[name] * (round(now * scale) - len(text))
    return text
