"""What one rank does in one step. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one rank does in one step, in seconds: all parts but the waiting for others."""

    data_seconds: float = 0.006
    h2d_seconds: float = 0.0
    """Copying the batch to the GPU over PCIe; by default hidden behind the loading."""
    host_seconds: float = 0.0
    """Processor time before the GPU can go on, half in the phase ``forward`` and half in ``backward``. By default it is
    not worth naming; where it is given, a rank really computes for so long instead of sleeping."""
    forward_seconds: float = 0.010
    backward_seconds: float = 0.016
    all_reduce_seconds: float = 0.010
    """The exchange itself, from the arrival of the last rank; the same for all ranks."""
    optimizer_seconds: float = 0.002

    @property
    def compute_seconds(self) -> float:
        """Forward and backward: the part that needs the GPU's multiprocessors."""
        return self.forward_seconds + self.backward_seconds

    @property
    def until_arrival_seconds(self) -> float:
        """From the start of the step to the barrier."""
        return self.data_seconds + self.h2d_seconds + self.host_seconds + self.compute_seconds

    @property
    def own_seconds(self) -> float:
        """The step without waiting and without the exchange."""
        return self.until_arrival_seconds + self.optimizer_seconds
