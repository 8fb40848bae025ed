"""What a step is, where a loop has more than one optimizer.

An optimizer step ends the step before, and begins the next one. With several optimizers (the two of a GAN, one per
parameter group) a step lasts until an optimizer steps *a second time*, so one round of all of them is one step. An
optimizer that steps again without new gradients in between does not count: a subclass whose ``step`` calls
``super().step`` fires the hooks twice, as does a ``GradScaler`` around it.
"""

from __future__ import annotations

_MOST_OPTIMIZERS = 64
"""A loop that makes a new optimizer for each step would never see one step twice."""


class Rounds:
    """Counts gradients, and knows which optimizers have stepped in this step."""

    def __init__(self) -> None:
        self._gradients = 0
        self._stepped_at: dict[int, int] = {}
        """Optimizers of this step, and what ``_gradients`` was."""

    def gradients_computed(self) -> None:
        """A ``backward`` began, or gradients came some other way: whoever steps on them trains."""
        self._gradients += 1

    def ends_with(self, optimizer: int) -> bool:
        """Whether this optimizer, about to step, ends the step. If not, it is noted as one of the step.

        Args:
            optimizer: its identity.
        """
        stepped = self._stepped_at
        if not self._gradients or stepped.get(optimizer) == self._gradients:
            return False
        if not stepped or optimizer in stepped or len(stepped) >= _MOST_OPTIMIZERS:
            return True
        stepped[optimizer] = self._gradients
        return False

    def begin_with(self, optimizer: int) -> None:
        """A step has begun with this optimizer."""
        self._stepped_at = {optimizer: self._gradients}
