"""What lies between two looks: GPM's activity on Hopper and later, and rates out of byte counters.

A GPM metric is the mean between two samples, so the sample of the last look is the baseline of this one: the page
shows the mean since it was last asked, and nobody has to wait the 100 ms that NVIDIA wants between the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from straggler.sources.nvml.binding import NO_PERMISSION, Nvml, NvmlError
from straggler.sources.nvml.device import Device
from straggler.sources.nvml.questions import BYTE_FIELDS, GPM, OVERSHOOT, Out
from straggler.sources.nvml.reasons import means_absent

LEAST_SECONDS: Final = 0.1
"""nvml.h: two samples "should be greater than 100ms" apart."""
MOST_SECONDS: Final = 120.0
"""A mean over more is about what was, not what is."""


@dataclass(slots=True)
class _Past:
    """What one GPU or instance was at the last look."""

    sample: Any = None
    spare: Any = None
    sampled_at: float = 0.0
    is_baseline: bool = False
    """Whether the sample is the first one, with which nothing could be compared yet."""
    values: dict[str, float] = field(default_factory=dict)
    counted: dict[str, float] = field(default_factory=dict)
    counted_at: float | None = None


class Activity:
    """Remembers the last look at each GPU.

    Args:
        nvml: the library.
    """

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._pasts: dict[str, _Past] = {}
        self.forbidden: set[str] = set()
        """UUIDs whose GPM exists and may not be used."""

    def gpm(self, device: Device, now: float, *, parent: Any = None, instance: int | None = None) -> dict[str, float]:
        """Activity since the last look; empty at the first one, and where there is no GPM.

        Args:
            device: the GPU, or the MIG instance that the values are of.
            now: monotonic seconds.
            parent: handle of the divided GPU, for an instance.
            instance: its GPU instance id.
        """
        past = self._pasts.setdefault(device.name, _Past())
        elapsed = now - past.sampled_at
        if past.sample is not None and elapsed < LEAST_SECONDS:
            return past.values
        support = device.try_call("nvmlGpmQueryDeviceSupport") if instance is None else None
        if instance is None and (support is None or not support.isSupportedDevice):
            return {}
        try:
            fresh = past.spare if past.spare is not None else self._nvml.call("nvmlGpmSampleAlloc")
            past.spare = fresh
            if instance is None:
                self._nvml.call("nvmlGpmSampleGet", device.handle, fresh)
            else:
                self._nvml.call("nvmlGpmMigSampleGet", parent, instance, fresh)
            earlier, past.sample, past.spare, past.sampled_at = past.sample, fresh, past.sample, now
            past.values = {}
            self.forbidden.discard(device.name)
            past.is_baseline = earlier is None or elapsed > MOST_SECONDS
            if not past.is_baseline:
                answers = self._nvml.gpm(earlier, fresh, list(GPM))
                past.values = device.accept(
                    (out, (code, _capped(out, raw))) for out, (code, raw) in zip(GPM.values(), answers, strict=True)
                )
        except NvmlError as error:
            past.values, past.is_baseline = {}, False
            if error.code == NO_PERMISSION:
                self.forbidden.add(device.name)
            device.note(error)
        return past.values

    def rates(self, device: Device, now: float) -> dict[str, float]:
        """Bytes per second since the last look. A counter that went back, since it wrapped or was reset, gives none."""
        past = self._pasts.setdefault(device.name, _Past())
        counted, since = device.ask_fields(BYTE_FIELDS), past.counted_at
        before, past.counted, past.counted_at = past.counted, counted, now
        if since is None or not 0 < now - since <= MOST_SECONDS:
            return {}
        return {
            name: (total - before[name]) / (now - since)
            for name, total in counted.items()
            if name in before and total >= before[name]
        }

    def is_waiting(self, name: str) -> bool:
        """Whether a GPU's activity is absent only because there was one sample until now."""
        past = self._pasts.get(name)
        return past is not None and past.is_baseline

    def keep_only(self, names: set[str]) -> None:
        """Forget GPUs that are gone, and give their samples back."""
        for name in [name for name in self._pasts if name not in names]:
            past = self._pasts.pop(name)
            self.forbidden.discard(name)
            for sample in (past.sample, past.spare):
                if sample is not None:
                    self._free(sample)

    def _free(self, sample: Any) -> None:
        try:
            self._nvml.call("nvmlGpmSampleFree", sample)
        except NvmlError as error:
            if not means_absent(error.code):
                raise


def _capped(out: Out, raw: float) -> float:
    return out.high if out.per == out.high and out.high < raw <= out.high * OVERSHOOT else raw
