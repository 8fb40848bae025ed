"""NVML while it is open: all GPUs at each look, XID events as they come, what lies between two looks.

Open handles keep a GPU from being reset and a MIG layout from being changed, so a session is closed when nobody asks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from straggler.model.gpu import GpuFacts, GpuKey
from straggler.model.gpu_identity import normal_bus_id, normal_uuid
from straggler.sources.nvml.activity import Activity
from straggler.sources.nvml.binding import TIMEOUT, Nvml, NvmlError
from straggler.sources.nvml.device import Device, GpuLostError
from straggler.sources.nvml.mig import instances
from straggler.sources.nvml.page import NvmlPage, Xid
from straggler.sources.nvml.questions import FIELDS, QUESTIONS, XID_EVENT
from straggler.sources.nvml.reasons import Findings, means_lost, opening_failure

SOURCE: Final = "nvml"

_MOST_EVENTS: Final = 1000
"""In one look: a GPU that reports without end must not keep us from the others."""
_NO_INSTANCE: Final = 0xFFFFFFFF


class Session:
    """An opened library.

    Args:
        nvml: the library, not yet initialised.

    Raises:
        NvmlError: it cannot be initialised.
    """

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        nvml.call("nvmlInit")
        self._activity = Activity(nvml)
        self._known: dict[int, GpuFacts] = {}
        self._uuids: dict[int, str] = {}
        self._watched: set[str] = set()
        self._had: dict[GpuKey, set[str]] = {}
        try:
            self._events: Any = nvml.call("nvmlEventSetCreate")
        except NvmlError:
            self._events = None  # a guest of a virtual GPU has no events

    def close(self) -> None:
        """Let go of all handles."""
        self._activity.keep_only(set())
        if self._events is not None:
            self._nvml.call("nvmlEventSetFree", self._events)
        self._nvml.call("nvmlShutdown")

    def look(self, now: float) -> NvmlPage:
        """Ask all GPUs everything.

        Args:
            now: monotonic seconds.

        Returns:
            A page with ``failure``, and the events, if no GPU could be talked to though the driver counts some.

        Raises:
            NvmlError: not even their number is known.
        """
        problems, blind = Findings(), Findings()
        xids = self._new_xids(problems)
        facts: list[GpuFacts] = []
        failures: list[NvmlError] = []
        for index in range(int(self._nvml.call("nvmlDeviceGetCount"))):
            try:
                facts += self._gpu(index, now, problems, blind)
            except NvmlError as error:  # noqa: PERF203 - one GPU that fails is that GPU, not all
                failures.append(error)
                facts += [self._known[index]] if index in self._known else []
                reason = "gpu_lost" if means_lost(error.code) else "gpu_unreadable"
                blind.add(reason, f"GPU {index}: {error}; see dmesg | grep Xid")
        if failures and not any(gpu.values for gpu in facts):
            reason, detail = opening_failure(failures[0])
            return NvmlPage(failure=reason, detail=detail, xids=xids)
        self._activity.keep_only({name for gpu in facts for name in (gpu.key.uuid, *gpu.mig_uuids)})
        self._tell_holes(facts, blind)
        return NvmlPage(
            facts=tuple(facts),
            problems=tuple(problems),
            blind=tuple(blind),
            xids=xids,
            watched=tuple(gpu.key for gpu in facts if gpu.key.gpu_instance is None and gpu.key.uuid in self._watched),
        )

    def _gpu(self, index: int, now: float, problems: Findings, blind: Findings) -> list[GpuFacts]:
        handle = self._nvml.call("nvmlDeviceGetHandleByIndex", index)
        uuid = normal_uuid(self._nvml.call("nvmlDeviceGetUUID", handle))
        if not uuid:
            raise NvmlError(0, f"UUID of GPU {index} is none")
        device = Device(self._nvml, handle, uuid, problems)
        gpu = GpuFacts(key=GpuKey(uuid), gpu=index, source=SOURCE)
        self._uuids[self._nvml.address(handle)] = uuid
        try:
            gpu = self._known[index] = self._described(device, gpu)
            self._watch(device)
            gpu = replace(
                gpu,
                values=self._values(device, now),
                clocks_event_seconds=device.event_seconds(),
                clocks_event_reasons=device.event_reasons(),
            )
            parts = instances(self._nvml, device, gpu, self._activity, now)
        except GpuLostError as error:
            blind.add("gpu_lost", f"{error}; see dmesg | grep Xid")
            return [gpu]  # who it is stays: its rank is still joined
        if not parts:
            self._tell_activity(device, gpu, blind)
        return [gpu, *parts]

    def _described(self, device: Device, gpu: GpuFacts) -> GpuFacts:
        pci = device.try_call("nvmlDeviceGetPciInfo")
        return replace(
            gpu,
            pci_bus_id=normal_bus_id(_text(pci.busId)) if pci is not None else "",
            model=_text(device.try_call("nvmlDeviceGetName") or ""),
        )

    def _values(self, device: Device, now: float) -> dict[str, float]:
        return {
            **self._activity.rates(device, now),
            **device.ask(QUESTIONS),
            **device.ask_fields(FIELDS),
            **self._activity.gpm(device, now),
        }

    def _tell_activity(self, device: Device, gpu: GpuFacts, blind: Findings) -> None:
        if device.name in self._activity.forbidden:
            advice = "its GPM is for administrators: give the sidecar CAP_SYS_ADMIN, or use dcgm-exporter"
            blind.add("sm_active_absent", f"{device.name}: {advice}")
        elif "sm_active_ratio" not in gpu.values and not self._activity.is_waiting(device.name):
            blind.add("sm_active_absent", f"{device.name} has no GPM, or GPM gave nothing: use dcgm-exporter")

    def _tell_holes(self, facts: list[GpuFacts], blind: Findings) -> None:
        had = self._had
        self._had = {}
        divided = {gpu.key.uuid for gpu in facts if gpu.key.gpu_instance is not None}
        for gpu in facts:
            if gpu.key.gpu_instance is None and gpu.key.uuid in divided:
                continue  # a GPU that is divided loses values by that, and no rank is on the whole of it
            before = had.get(gpu.key, set())
            self._had[gpu.key] = before | gpu.values.keys()
            lost = before - gpu.values.keys() - _MAY_PAUSE if gpu.values else set[str]()
            if lost:
                blind.add("metric_missing", f"{gpu.key.uuid} has lost {', '.join(sorted(lost))}")

    def _watch(self, device: Device) -> None:
        if self._events is None or device.name in self._watched:
            return
        try:
            self._nvml.call("nvmlDeviceRegisterEvents", device.handle, XID_EVENT, self._events)
            self._watched.add(device.name)
        except NvmlError as error:
            device.note(error)

    def _new_xids(self, problems: Findings) -> tuple[Xid, ...]:
        """Take what the driver has queued since the last look."""
        found: list[Xid] = []
        if self._events is None:
            return ()
        try:
            while len(found) < _MOST_EVENTS:
                event = self._nvml.call("nvmlEventSetWait", self._events, 0)
                if not int(event.eventType) & XID_EVENT:
                    continue
                # By what was known before: a GPU that is off the bus (79) cannot be asked who it is any more.
                uuid = self._uuids.get(self._nvml.address(event.device))
                if uuid is None:
                    problems.add("value_failed", f"XID {event.eventData} of a GPU that is not known")
                else:
                    found.append(_xid(uuid, event))
        except NvmlError as error:
            if error.code != TIMEOUT:  # which says that there are no more
                problems.add("value_failed", f"XID events: {error}")
        return tuple(found)


_MAY_PAUSE: Final = frozenset(
    (
        "sm_active_ratio",  # has a reason of its own
        "sm_occupancy_ratio",
        "tensor_active_ratio",
        "dram_active_ratio",
        "graphics_engine_active_ratio",
        "pcie_transmit_bytes_per_second",
        "pcie_receive_bytes_per_second",
        "nvlink_transmit_bytes_per_second",
        "nvlink_receive_bytes_per_second",
        # unsupported once MIG is switched on
        "utilization_ratio",
        "memory_copy_utilization_ratio",
    )
)
"""What may be absent for a look without anything being lost: it needs two looks, or it depends on the MIG mode."""


def _xid(uuid: str, event: Any) -> Xid:
    instance = int(event.gpuInstanceId)
    return Xid(GpuKey(uuid, None if instance == _NO_INSTANCE else instance), int(event.eventData))


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
