"""A fake node: one made-up GPU per rank, and the dcgm-exporter page about them, moving with what the ranks do.

What the numbers are made of is stated in the table of constants; it is the arithmetic of a straggler: waiting in a
collective keeps a kernel running, so it counts as ``GPU_UTIL``, but it occupies few multiprocessors. What a fault shows
of itself is in ``faults.py``: a clock that is held down, with its reason, or a link with few lanes.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from straggler.simulate.board import BACKWARD, DATA, FORWARD, IDLE, OPTIMIZER, PHASES, WAIT, Cell
from straggler.simulate.dcgm_text import HELD_COUNTERS, Generation, Row, gpu_labels, render
from straggler.simulate.faults import FULL_CLOCK_MHZ, Symptoms
from straggler.simulate.local_http import LocalHandler, LocalServer

_MEMORY_CLOCK_MHZ: Final = 2619
_MEMORY_MIB: Final = 81_104
_MEMORY_USED_MIB: Final = 69_829
_KERNEL_EFFICIENCY: Final = 0.80
"""SM activity while a rank computes: no kernel fills every multiprocessor in every cycle."""
_EXCHANGE_SM: Final = 0.08
"""SM activity of a collective's kernel: NCCL takes a few of the 132 multiprocessors."""
_OPTIMIZER_SM: Final = 0.50
_TENSOR: Final = 0.45
_OCCUPANCY: Final = 0.40
_DRAM: Final = 0.35
_IDLE_WATTS, _COMPUTE_WATTS, _WAIT_WATTS = 110.0, 560.0, 130.0
_IDLE_CELSIUS, _CELSIUS_PER_WATT = 32.0, 0.06
_LANES, _GENERATION = 16, 5


def gpu_uuid(hostname: str, gpu: int) -> str:
    """A made-up UUID, the same each time."""
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'gpu{gpu}.{hostname}')}"


class FakeNode:
    """The GPUs of one node.

    Args:
        cells: of the ranks on this node; the n-th of them is on GPU n.
        symptoms: by GPU: what it shows from the moment when its rank, or any on the node, is under the fault.
        refresh_seconds: the page repeats itself for so long, as the real one does (30 s by default there).
        clock_ns: of the board's writers.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        hostname: str,
        *,
        symptoms: Mapping[int, Symptoms] = MappingProxyType({}),
        generation: Generation = Generation.TEMPLATE,
        refresh_seconds: float = 2.0,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.hostname = hostname
        self._generation = generation
        self._refresh_ns = round(refresh_seconds * 1e9)
        self._clock_ns = clock_ns
        self._watched_ns = clock_ns()
        self._cells = cells
        self._gpus = [_FakeGpu(cell, symptoms.get(gpu, Symptoms()), self._watched_ns) for gpu, cell in enumerate(cells)]
        self._may_freeze = any(shown.frozen for shown in symptoms.values())
        self._page = ""
        self._lock = threading.Lock()

    def page(self) -> str:
        """The text at this moment."""
        with self._lock:
            now = self._clock_ns()
            if not self._page or (now - self._watched_ns >= self._refresh_ns and not self._is_frozen()):
                self._page = render([self._row(index, now) for index in range(len(self._gpus))], self._generation)
                self._watched_ns = now
            return self._page

    def _is_frozen(self) -> bool:
        return self._may_freeze and any(cell.onset_ns for cell in self._cells)

    def _row(self, gpu: int, now_ns: int) -> Row:
        labels = gpu_labels(gpu, gpu_uuid(self.hostname, gpu), self.hostname, self._generation)
        return labels, self._gpus[gpu].watch(now_ns)

    def serve(self) -> LocalServer:
        """Answer ``/metrics`` on a free loopback port, from a thread."""
        node = self

        class Handler(LocalHandler):
            def do_GET(self) -> None:  # noqa: N802 - http.server calls it so
                if self.path == "/metrics":
                    self.answer(200, node.page())
                else:
                    self.answer(404, "404 page not found\n")

        return LocalServer(Handler)


class _FakeGpu:
    """One GPU, and what was seen of it before."""

    def __init__(self, cell: Cell, symptoms: Symptoms, now_ns: int) -> None:
        self._cell = cell
        self._symptoms = symptoms
        self._seen_ns = now_ns
        self._spent_ns = cell.spent_ns(now_ns)
        self._energy_mj = 0
        self._held_ns = 0

    def watch(self, now_ns: int) -> Mapping[str, int | float]:
        """Values by field name, over the time since the last look."""
        elapsed = max(1, now_ns - self._seen_ns)
        spent = self._cell.spent_ns(now_ns)
        share = [min(1.0, max(0.0, (new - old) / elapsed)) for new, old in zip(spent, self._spent_ns, strict=True)]
        self._seen_ns, self._spent_ns = now_ns, spent
        compute = min(1.0, share[FORWARD] + share[BACKWARD])
        busy = min(1.0, sum(share[phase] for phase in range(len(PHASES)) if phase not in (IDLE, DATA)))
        sm_active = min(
            1.0, compute * _KERNEL_EFFICIENCY + share[WAIT] * _EXCHANGE_SM + share[OPTIMIZER] * _OPTIMIZER_SM
        )
        speed = self._cell.speed_ratio if busy else 1.0
        watts = _IDLE_WATTS + compute * speed * _COMPUTE_WATTS + share[WAIT] * _WAIT_WATTS
        self._energy_mj += round(watts * elapsed / 1e6)
        symptoms = self._symptoms if self._cell.onset_ns else Symptoms()
        held = speed < 1.0
        self._held_ns += elapsed if held else 0
        celsius = symptoms.celsius if held else None
        return {
            "DCGM_FI_DEV_SM_CLOCK": round(FULL_CLOCK_MHZ * min(1.0, speed)),
            "DCGM_FI_DEV_MEM_CLOCK": _MEMORY_CLOCK_MHZ,
            "DCGM_FI_DEV_GPU_TEMP": celsius or round(_IDLE_CELSIUS + watts * _CELSIUS_PER_WATT),
            "DCGM_FI_DEV_POWER_USAGE": round(watts, 3),
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": self._energy_mj,
            "DCGM_FI_DEV_GPU_UTIL": round(100 * busy),
            "DCGM_FI_DEV_XID_ERRORS": 0,
            "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": symptoms.reason_bits if held else 0,
            **{field: self._held_ns if field in self._symptoms.counters else 0 for field in HELD_COUNTERS},
            "DCGM_FI_DEV_PCIE_LINK_GEN": _GENERATION,
            "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": _GENERATION,
            "DCGM_FI_DEV_PCIE_LINK_WIDTH": symptoms.pcie_lanes or _LANES,
            "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": _LANES,
            "DCGM_FI_DEV_FB_FREE": _MEMORY_MIB - (_MEMORY_USED_MIB if self._cell.alive else 0),
            "DCGM_FI_DEV_FB_USED": _MEMORY_USED_MIB if self._cell.alive else 0,
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE": round(busy, 6),
            "DCGM_FI_PROF_SM_ACTIVE": round(sm_active, 6),
            "DCGM_FI_PROF_SM_OCCUPANCY": round(sm_active * _OCCUPANCY, 6),
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": round(compute * _TENSOR, 6),
            "DCGM_FI_PROF_DRAM_ACTIVE": round(compute * _DRAM, 6),
        }
