"""Why a step's own time may not be derived: what is known of the whole job, and what happened in the step."""

from __future__ import annotations

from straggler.hook.torch.meter import MEASURED

HIDDEN = "hidden_collectives"


class Doubts:
    """Each reason is one of ``layout.OWN_REASONS``.

    Args:
        hidden: whether collectives run from the beginning where nothing sees them.
    """

    def __init__(self, *, hidden: bool) -> None:
        self.always = MEASURED
        """A reason that holds for all steps."""
        self.step = MEASURED
        """A reason that holds for the step that runs."""
        self.hidden = hidden
        """Whether collectives run from now on where nothing sees them."""
        self.waited = False
        """Whether a wait was ever seen: without one own time would be the whole step."""
        self.alone = True
        """Whether there are no peers to wait for."""

    def of_the_step(self) -> str:
        """Why the step that ends has no own time; else ``measured``. The next one begins without a doubt of its own."""
        step, self.step = self.step, MEASURED
        if self.always != MEASURED:
            return self.always
        if step != MEASURED:
            return step
        if self.hidden:
            return HIDDEN
        return MEASURED if self.alone or self.waited else "no_wait_phase"
