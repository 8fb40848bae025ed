"""The instances of a GPU that is divided.

NVML's MIG device is a compute instance; DCGM and metrics count GPU instances. Several compute instances of one GPU
instance are one GPU here, with several MIG UUIDs.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from straggler.model.gpu import GpuFacts, GpuKey
from straggler.sources.nvml.activity import Activity
from straggler.sources.nvml.binding import Nvml
from straggler.sources.nvml.device import Device
from straggler.sources.nvml.questions import MEMORY, SHARED_WITH_INSTANCES

# NVIDIA H100 80GB HBM3 MIG 1g.10gb          (nvmlDeviceGetName of a MIG device, R550); also 1c.3g.40gb, 1g.10gb+me
_PROFILE = re.compile(r" MIG (?:\d+c\.)?(\d+g\.\d+gb\S*)")

_MIG_ENABLED = 1


def instances(nvml: Nvml, device: Device, whole: GpuFacts, activity: Activity, now: float) -> list[GpuFacts]:
    """The GPU instances of a divided GPU, in the driver's order; none if it is not divided.

    Args:
        nvml: the library.
        device: the GPU.
        whole: its facts; what holds for each instance is copied.
        activity: what lies between two looks.
        now: monotonic seconds.

    Raises:
        GpuLostError: the GPU is gone.
    """
    mode = device.try_call("nvmlDeviceGetMigMode")
    if not mode or mode[0] != _MIG_ENABLED:
        return []
    found: dict[int, GpuFacts] = {}
    for place in range(int(device.try_call("nvmlDeviceGetMaxMigDeviceCount") or 0)):
        handle = device.try_call("nvmlDeviceGetMigDeviceHandleByIndex", place)
        if handle is None:
            continue
        part = Device(nvml, handle, f"{device.name} MIG {place}", device.problems)
        number, uuid = part.try_call("nvmlDeviceGetGpuInstanceId"), part.try_call("nvmlDeviceGetUUID")
        if number is None or uuid is None:
            continue
        known = found.get(int(number))
        if known is not None:
            found[int(number)] = replace(known, mig_uuids=(*known.mig_uuids, _mig_uuid(uuid)))
            continue
        part.name = _mig_uuid(uuid)
        found[int(number)] = _instance(part, int(number), device, whole=whole, activity=activity, now=now)
    return list(found.values())


def _instance(
    part: Device, number: int, device: Device, *, whole: GpuFacts, activity: Activity, now: float
) -> GpuFacts:
    shared = {name: value for name, value in whole.values.items() if name in SHARED_WITH_INSTANCES}
    profile = _PROFILE.search(str(part.try_call("nvmlDeviceGetName") or ""))
    return replace(
        whole,
        key=GpuKey(whole.key.uuid, number),
        values={
            **shared,
            **part.ask([MEMORY]),
            **activity.gpm(part, now, parent=device.handle, instance=number),
        },
        mig_profile=profile[1] if profile else "",
        mig_uuids=(part.name,),
    )


def _mig_uuid(uuid: Any) -> str:
    text = uuid.decode("ascii", "replace") if isinstance(uuid, bytes) else str(uuid)
    return f"MIG-{text.removeprefix('MIG-').lower()}"
