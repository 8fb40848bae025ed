"""One GPU, or a MIG instance of one, asked everything. Each value may be missing on its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from straggler.model.gpu import CLOCKS_EVENT_BITS
from straggler.sources.nvml.binding import FieldId, Nvml, NvmlError
from straggler.sources.nvml.questions import (
    EVENT_FIELDS,
    EVENT_REASONS_NOW,
    EVENT_REASONS_SUPPORTED,
    OLD_THERMAL,
    OLD_THERMAL_FIELD,
    Out,
    Question,
)
from straggler.sources.nvml.reasons import Findings, means_absent, means_lost

_EVERY_DRIVERS_REASONS = 0x1FF
"""Where the driver does not say which reasons it knows: all but board limit and reliability, which few do."""


class GpuLostError(NvmlError):
    """The GPU does not answer any more: nothing else of it will come."""


class Device:
    """A handle with a name for the log.

    Args:
        nvml: the library.
        handle: of the GPU or instance.
        name: its UUID.
        problems: where what fails is noted.
    """

    def __init__(self, nvml: Nvml, handle: Any, name: str, problems: Findings) -> None:
        self._nvml = nvml
        self.handle = handle
        self.name = name
        self.problems = problems

    def try_call(self, function: str, *arguments: Any) -> Any:
        """Call a function on the handle; ``None`` where there is no answer.

        Raises:
            GpuLostError: the GPU is gone.
        """
        try:
            return self._nvml.call(function, self.handle, *arguments)
        except NvmlError as error:
            self.note(error)
            return None

    def first_of(self, functions: Sequence[str]) -> Any:
        """The answer of the first of several functions that gives one."""
        return next((answer for name in functions if (answer := self.try_call(name)) is not None), None)

    def ask(self, questions: Iterable[Question]) -> dict[str, float]:
        """The answers by attribute."""
        values: dict[str, float] = {}
        for question in questions:
            for function, arguments in question.forms:
                answer = self.try_call(function, *arguments)
                if answer is not None:
                    self._take(question.outs, answer, values)
                    break
        return values

    def ask_fields(self, fields: Mapping[FieldId, Out]) -> dict[str, float]:
        """The fields' values by attribute."""
        try:
            answers = self._nvml.fields(self.handle, list(fields))
        except NvmlError as error:
            self.note(error)
            return {}
        return self.accept(zip(fields.values(), answers, strict=True))

    def event_seconds(self) -> dict[str, float]:
        """Time in each clocks event reason, by reason, since the driver was loaded."""
        seconds = self.ask_fields({**EVENT_FIELDS, OLD_THERMAL_FIELD: OLD_THERMAL})
        if "sw_thermal" in seconds or "hw_thermal" in seconds:
            seconds.pop(OLD_THERMAL.attribute, None)
        return seconds

    def event_reasons(self) -> dict[str, float]:
        """1 or 0 for each reason that this GPU can have."""
        now = self.first_of(EVENT_REASONS_NOW)
        if now is None:
            return {}
        supported = self.first_of(EVENT_REASONS_SUPPORTED)
        known = (_EVERY_DRIVERS_REASONS if supported is None else int(supported)) | int(now)
        return {reason: float(bool(int(now) & bit)) for bit, reason in CLOCKS_EVENT_BITS.items() if known & bit}

    def accept(self, answers: Iterable[tuple[Out, tuple[int, float]]]) -> dict[str, float]:
        """Values out of return codes and raw numbers.

        Raises:
            GpuLostError: the GPU is gone.
        """
        values: dict[str, float] = {}
        for out, (code, raw) in answers:
            if code:
                self.note(NvmlError(code, out.attribute))
            elif not (out.zero_is_absent and raw == 0):
                self._put(out, raw, values)
        return values

    def _take(self, outs: Sequence[Out], answer: Any, values: dict[str, float]) -> None:
        for out in outs:
            raw = getattr(answer, out.member, None) if out.member else answer
            if raw is not None:
                self._put(out, float(raw), values)

    def _put(self, out: Out, raw: float, values: dict[str, float]) -> None:
        value = out.convert(raw)
        if value is not None:
            values[out.attribute] = value
        elif raw == raw:  # noqa: PLR0124 - NaN is how GPM says that it has nothing
            self.problems.add("impossible_value", f"{out.attribute} of {self.name}: {raw!r}")

    def note(self, error: NvmlError) -> None:
        """Take note of a failure: absence is none.

        Raises:
            GpuLostError: it says that the GPU is gone.
        """
        if means_lost(error.code):
            raise GpuLostError(error.code, f"{self.name}: {error}") from error
        if not means_absent(error.code):
            self.problems.add("value_failed", f"{self.name}: {error}")
