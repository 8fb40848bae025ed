"""The RDMA adapters of a fake node, one beside each GPU: files as below ``/sys``, moving with the training."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from straggler.simulate.board import Cell
from straggler.simulate.faults import Symptoms
from straggler.simulate.infiniband_tree import SimulatedPort, write_infiniband
from straggler.simulate.nccl_log import device_name

_STEP_BYTES: Final = 500_000_000
"""Sent and received by each adapter in a step: what 400 Gb/s carry in the 10 ms of the reference step's exchange."""
_REFRESH_SECONDS: Final = 1.0
_NS: Final = 1e-9


class Fabric:
    """Writes the tree at once, and again each second until ``close``.

    Args:
        sysfs: a directory that stands for ``/sys``; it is made.
        cells: of the ranks on this node; the n-th of them is beside adapter n.
        symptoms: by adapter: what it shows from the moment when its rank is under the fault.
        carries: whether the training goes over these adapters at all.
        clock_ns: of the board's writers.
    """

    def __init__(
        self,
        sysfs: Path,
        cells: Sequence[Cell],
        *,
        symptoms: Mapping[int, Symptoms] = MappingProxyType({}),
        carries: bool = True,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._sysfs = sysfs
        self._cells = cells
        self._symptoms = symptoms
        self._carries = carries
        self._clock_ns = clock_ns
        self._closed = threading.Event()
        self.write()
        self._thread = threading.Thread(target=self._keep_writing, daemon=True)
        self._thread.start()

    def write(self) -> None:
        """Bring the files up to this moment."""
        write_infiniband(self._sysfs, [self._port(number, cell) for number, cell in enumerate(self._cells)])

    def _port(self, number: int, cell: Cell) -> SimulatedPort:
        words = cell.steps * _STEP_BYTES // 4 if self._carries else 0  # the driver counts words of four bytes
        counters = {"counters/port_xmit_data": words, "counters/port_rcv_data": words}
        symptoms = self._symptoms.get(number, Symptoms())
        if cell.onset_ns is None or symptoms.link is None:
            return SimulatedPort(device=device_name(number), counters=counters)
        link = symptoms.link
        seconds = (self._clock_ns() - cell.onset_ns) * _NS
        return SimulatedPort(
            device=device_name(number),
            gigabits_per_second=link.gigabits_per_second,
            lanes=link.lanes,
            counters={
                **counters,
                "counters/symbol_error": round(link.symbol_errors_per_second * seconds),
                "counters/link_error_recovery": link.recoveries,
            },
        )

    def _keep_writing(self) -> None:
        while not self._closed.wait(_REFRESH_SECONDS):
            self.write()

    def close(self) -> None:
        """Stop writing; the files stay."""
        self._closed.set()
        self._thread.join()
