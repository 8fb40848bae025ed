"""What is learnt of the process for good: a second instrument in it knows what the first one saw.

A model that was compiled, wrapped or captured while the first one was in may go on training under the second, and
nothing of that happens again.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet


class Lasting:
    """One for each process."""

    def __init__(self) -> None:
        self.hidden = False
        """Whether collectives were compiled into a graph, where nothing sees them."""
        self.opaque = ""
        """Why the operators of a step cannot be seen, once that is so."""
        self.has_graphs = False
        """Whether a CUDA graph was ever captured."""
        self.whole_steps: WeakSet[Any] = WeakSet()
        """The CUDA graphs that hold an optimizer's step."""
        self.ddp: WeakSet[Any] = WeakSet()
        """The DistributedDataParallel modules."""
        self.optimizers: WeakSet[type] = WeakSet()
        """Classes whose hooks a ``torch.compile`` of torch 2.1 or 2.2 may have stripped."""
        self.stage: int | None = None
        """This rank's place in the pipeline dimension of the newest device mesh that has one. Not the mesh: a loop may
        well keep nothing but the groups that it got from it."""


of_process = Lasting()
