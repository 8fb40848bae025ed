"""The fakes, type-checked against the same protocols as the real things."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from straggler.model.clock import Clock
from straggler.sources.nvml.binding import NOT_SUPPORTED, Answer, FieldId, Nvml, NvmlError


@dataclass
class FakeClock:
    """Both clocks, moved by hand."""

    now: float = 1_700_000_000.0
    ticks: float = 1_000.0

    def time(self) -> float:
        """Seconds since the epoch."""
        return self.now

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return self.ticks

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        self.now += seconds
        self.ticks += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock alone, as NTP or an administrator does."""
        self.now += seconds


_: Clock = FakeClock()


class FakeNvml:
    """A driver library whose answers are set by hand. A function that has none is not supported, as in the real one."""

    def __init__(self, gpus: int = 1) -> None:
        self.answers: dict[str, Any] = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlDeviceGetCount": gpus,
        }
        """By function; a callable is called with the arguments, an ``NvmlError`` is raised."""
        self.field_values: dict[FieldId, Answer] = {}
        self.gpm_values: dict[int, Answer] = {}
        self.called: list[str] = []

    def call(self, name: str, *arguments: Any) -> Any:
        """Handles are the indices."""
        self.called.append(name)
        if name == "nvmlDeviceGetHandleByIndex" and name not in self.answers:
            return arguments[0]
        if name == "nvmlDeviceGetUUID" and name not in self.answers:
            return f"GPU-00000000-0000-0000-0000-00000000000{arguments[0]}"
        answer = self.answers.get(name, NvmlError(NOT_SUPPORTED, name))
        if callable(answer):
            answer = answer(*arguments)
        if isinstance(answer, NvmlError):
            raise answer
        return answer

    def fields(self, device: Any, ids: Sequence[FieldId]) -> Sequence[Answer]:  # noqa: ARG002 - as in the protocol
        """The same for all devices."""
        return [self.field_values.get(number, (NOT_SUPPORTED, 0.0)) for number in ids]

    def gpm(self, earlier: Any, later: Any, ids: Sequence[int]) -> Sequence[Answer]:  # noqa: ARG002 - as in the protocol
        """The same for all devices."""
        return [self.gpm_values.get(number, (NOT_SUPPORTED, 0.0)) for number in ids]

    def address(self, handle: Any) -> int:
        """The index."""
        return int(handle)


_nvml: Nvml = FakeNvml()
