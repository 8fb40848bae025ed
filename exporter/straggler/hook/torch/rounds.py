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
        self.gradients = 0
        """How often a ``backward`` began, or gradients came some other way: whoever steps on them trains."""
        self._stepped_at: dict[int, int] = {}
        """Optimizers of this step, and what ``gradients`` was."""

    def ends_with(self, optimizer: int) -> bool:
        """Whether this optimizer, about to step, ends the step. It is noted as one of this step, or of the next.

        Args:
            optimizer: its identity.
        """
        stepped, gradients = self._stepped_at, self.gradients
        if not gradients or stepped.get(optimizer) == gradients:
            return False
        ends = not stepped or optimizer in stepped or len(stepped) >= _MOST_OPTIMIZERS
        if ends:
            stepped.clear()
        stepped[optimizer] = gradients
        return ends
