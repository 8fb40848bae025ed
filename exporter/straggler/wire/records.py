"""What the ring's parts say, as plain tuples. Times in nanoseconds."""

from __future__ import annotations

from typing import NamedTuple

from straggler.wire import layout


class Preamble(NamedTuple):
    """The first 64 bytes of a ring file."""

    version: int
    record_bytes: int
    """Distance from one slot to the next; at least ``layout.RECORD_BYTES``."""
    capacity: int
    """Number of slots."""
    pid: int
    """Process id in the writer's own PID namespace: a hint for people, never a key."""
    created_realtime_ns: int
    created_monotonic_ns: int


class Live(NamedTuple):
    """What the host thread knows at once, without waiting for a GPU. Liveness and hangs are judged by this."""

    arrivals: int
    """How often the rank reached a blocking point (gradients ready, a collective entered)."""
    records: int
    """Serial of the newest record at the time of writing; the ring itself may be further."""
    updated_monotonic_ns: int
    updated_realtime_ns: int
    status: int
    """``layout.STATUS_*``."""
    excluded_phase: int | None
    """Index into ``layout.PHASES`` of ``checkpoint`` or ``eval`` while the rank is in it, else ``None``."""


class Identity(NamedTuple):
    """Who the rank is. ``""`` and ``None`` mean unknown, never zero."""

    run: str
    rank: int
    peer_group: str = "0"
    """The ranks that do the same work, e.g. one pipeline stage."""
    node: str = ""
    """Host name; the label ``rank_node``."""
    world_size: int | None = None
    local_rank: int | None = None
    local_world_size: int | None = None
    attempt: int | None = None
    """As the launcher on this node counts; differs between nodes, so information only."""
    gpu_uuid: str = ""
    """``GPU-…``; under MIG the parent's, with ``gpu_instance`` set; or a ``MIG-…`` form."""
    gpu: int | None = None
    """Index of the GPU on the node (NVML order), if the process knows it."""
    pci_bus_id: str = ""
    gpu_instance: int | None = None
    """GPU instance id under MIG."""
    visible_devices: str = ""
    """``CUDA_VISIBLE_DEVICES`` as found: indices, UUIDs, abbreviated UUIDs or MIG forms."""
    pod: str = ""
    namespace: str = ""
    container: str = ""
    slurm_job: str = ""
    slurm_step: str = ""
    user: str = ""
    framework: str = ""
    """E.g. ``torch 2.13.0``."""
    clock: str = "host"
    """``host`` or ``cuda``: which clock timed the phases."""
    own_reason: str = "measured"
    """One of ``layout.OWN_REASONS``: how own time stands for the whole run."""
    hook_version: str = ""


class StepRecord(NamedTuple):
    """One step, and the totals up to its end.

    The phases add up to the wall time. ``wait`` is the time blocked on peers; own time is the wall time without
    ``wait``, ``checkpoint`` and ``eval``.
    """

    serial: int
    """1 for the first record of the file, then one more each; the slot follows from it."""
    step: int
    """The step as the training loop counts it (an optimizer step)."""
    end_monotonic_ns: int
    end_realtime_ns: int
    flags: int
    """``layout.FLAG_*``, or-ed."""
    own_reason: int
    """Index into ``layout.OWN_REASONS``; 0 if own time is measured."""
    wall_ns: int
    phase_ns: tuple[int, ...]
    """Length ``layout.PHASE_COUNT``, in the order of ``layout.PHASES``."""
    host_data_ns: int
    """Time the host waited for a batch, where the phases are on the CUDA clock; else 0."""
    total_steps: int
    total_wall_ns: int
    total_own_ns: int
    """Sum over the steps whose own time was measured."""
    total_wait_ns: int
    """Sum over the steps whose own time was measured: own and wait have the same base."""
    total_unmeasured_steps: int
    """Steps whose own time is absent."""
    arrivals: int
    total_phase_ns: tuple[int, ...]
    """As ``phase_ns``, summed over all steps."""
    total_tokens: int
    total_allreduce_bytes: int
    total_flops: float
    total_samples: int
    total_profiled_steps: int
    total_host_data_ns: int = 0
    """As ``host_data_ns``, summed over all steps."""

    @property
    def own_ns(self) -> int | None:
        """The step's own time; ``None`` where it was not measured."""
        if not self.flags & layout.FLAG_OWN:
            return None
        return self.wall_ns - self.wait_ns - self.excluded_ns

    @property
    def wait_ns(self) -> int:
        """Time blocked on peers. Means something only where own time is measured."""
        return self.phase_ns[layout.WAIT]

    @property
    def excluded_ns(self) -> int:
        """Time in ``checkpoint`` and ``eval``."""
        return sum(self.phase_ns[index] for index in layout.EXCLUDED)
