"""Remembers what causes are reckoned from, for one rank: totals and values of the last five minutes.

Bounded: thirty marks over those minutes, and one of errors every five minutes for an hour. A source may come later than
the rank, as the process of a rank is asked for only when its ring was read: each total counts from the first mark that
has it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from straggler.detect.lately import HELD_BY, PCIE_BYTES_PER_LANE, SET_LOW_FLAG, Lately
from straggler.detect.policy import Policy
from straggler.join.view import RankView
from straggler.model.gpu import GpuFacts
from straggler.model.rank import RankKey

_MARKS = 30
_ERROR_SPACING = 300.0
_MOST_GENERATION = 16
"""Of PCIe; there are seven. What a page says beyond it is no generation."""

PROGRAM_XIDS = frozenset({13, 31, 43, 45})
"""XIDs that a program causes: a bad access, an exception in a kernel, a context that was ended. NVIDIA's XID list."""

_VALUES = ("sm_clock_hertz", "power_watts", "power_limit_watts", "temperature_celsius")


class _Mark(NamedTuple):
    at: float
    totals: Mapping[str, float]
    values: Mapping[str, float]


class Trail:
    """One rank on one GPU. Times are monotonic seconds."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._marks: deque[_Mark] = deque()
        self._errors: deque[tuple[float, Mapping[str, float]]] = deque()
        self._gpu = ""

    def look(self, now: float, view: RankView) -> Lately | None:
        """Take note of how the rank is now; ``None`` until it has made a step between two looks."""
        totals = _totals(view)
        mark = _Mark(now, totals, _values(view.gpu))
        marks = self._marks
        gpu = view.gpu.key.uuid if view.gpu else ""
        if gpu != self._gpu or any(
            totals.get(name, value) < value for mark in list(marks)[-1:] for name, value in mark.totals.items()
        ):
            marks.clear()  # another GPU, or another process: a total has fallen
            self._errors.clear()
            self._gpu = gpu
        seconds = self._policy.cause_seconds
        while len(marks) > 1 and marks[1].at <= now - seconds:
            marks.popleft()
        if not marks or now - marks[-1].at >= seconds / _MARKS:
            marks.append(mark)
        errors = self._note_errors(now, view.gpu)
        recent = [kept for kept in marks if kept.at >= now - self._policy.cause_now_seconds]
        return _lately(view, list(marks), mark, recent, errors)

    def _note_errors(self, now: float, gpu: GpuFacts | None) -> tuple[str, ...]:
        if gpu is None:
            return ()
        counts = _error_counts(gpu)
        while len(self._errors) > 1 and self._errors[1][0] <= now - self._policy.gpu_errors_seconds:
            self._errors.popleft()
        if not self._errors or now - self._errors[-1][0] >= _ERROR_SPACING:
            self._errors.append((now, counts))
        before = self._errors[0][1]
        new = [
            name
            for name, count in counts.items()
            # an XID that was never seen is not listed at all; an ECC count that was not known is no news
            if count > before.get(name, 0.0 if name.startswith("XID") else count)
        ]
        standing = {"row_remap_pending": "row remap pending", "row_remap_failed": "row remap failed"}
        return (*new, *(text for name, text in standing.items() if gpu.values.get(name)))


class Trails:
    """All ranks of a node."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._trails: dict[RankKey, Trail] = {}

    def look(self, now: float, views: Iterable[RankView]) -> dict[RankKey, Lately]:
        """What is known of each living rank; whoever is not among them is forgotten."""
        kept: dict[RankKey, Trail] = {}
        found: dict[RankKey, Lately] = {}
        for view in views:
            key = view.rank.key
            if view.rank.alive:
                kept[key] = self._trails.get(key) or Trail(self._policy)
                lately = kept[key].look(now, view)
                if lately is not None:
                    found[key] = lately
        self._trails = kept
        return found


def _totals(view: RankView) -> dict[str, float]:
    totals, host, gpu = view.rank.totals, view.host, view.gpu
    found: dict[str, float | None] = {}
    if totals is not None:
        found |= {
            "steps": totals.steps,
            "step": totals.step_seconds,
            "own": totals.own_seconds,
            "unmeasured": totals.unmeasured_steps,
            "data": totals.phase_seconds.get("data", 0.0),
            "h2d": totals.phase_seconds.get("h2d", 0.0),
            "tokens": totals.tokens,
        }
    if host is not None:
        found["run_delay"] = host.values.get("run_delay_seconds_total")
        found["memory"] = host.pressure.get(("memory", "some"))
    if gpu is not None:
        found |= {f"held/{reason}": seconds for reason, seconds in gpu.clocks_event_seconds.items()}
    return {name: value for name, value in found.items() if value is not None}


def _values(gpu: GpuFacts | None) -> dict[str, float]:
    if gpu is None:
        return {}
    values = gpu.values
    found = {name: values.get(name) for name in _VALUES}
    clock, tensor = values.get("sm_clock_hertz"), values.get("tensor_active_ratio")
    found["tensor_hertz"] = clock * tensor if clock is not None and tensor is not None else None
    found["received"] = values.get("pcie_receive_bytes_per_second")
    return {name: value for name, value in found.items() if value is not None}


def _error_counts(gpu: GpuFacts) -> dict[str, float]:
    counts = {f"XID {number}": count for number, count in gpu.xid_events.items() if number not in PROGRAM_XIDS}
    if "ecc_double_bit_errors_total" in gpu.values:
        counts["uncorrected ECC error"] = gpu.values["ecc_double_bit_errors_total"]
    return counts


def _gained(first: _Mark, last: _Mark) -> dict[str, float]:
    return {name: value - first.totals[name] for name, value in last.totals.items() if name in first.totals}


def _per_step(marks: list[_Mark], last: _Mark) -> dict[str, float]:
    """What each total has gained in a step, since the first mark that has both."""
    found: dict[str, float] = {}
    for name, value in last.totals.items():
        first = next((mark.totals for mark in marks if name in mark.totals and "steps" in mark.totals), last.totals)
        steps = last.totals.get("steps", 0.0) - first.get("steps", 0.0)
        if steps > 0:
            found[name] = (value - first[name]) / steps
    return found


def _lately(
    view: RankView, marks: list[_Mark], last: _Mark, recent: list[_Mark], errors: tuple[str, ...]
) -> Lately | None:
    """From the oldest mark to the last, and of the GPU over the recent ones."""
    per_step = _per_step(marks, last)
    if "own" not in per_step and "step" not in per_step:
        return None
    measured = 1.0 - per_step.get("unmeasured", 0.0)
    seen = [mark.values for mark in recent] or [last.values]
    mean = {name: _mean([values[name] for values in seen if name in values]) for name in seen[-1]}
    gpu = view.gpu
    return Lately(
        step_seconds=view.rank.recent.step_mean_seconds if view.rank.recent else per_step["step"],
        own_seconds=per_step["own"] / measured if "own" in per_step and measured > 0 else None,
        now_seconds=view.rank.recent.own_mean_seconds if view.rank.recent else None,
        data_seconds=per_step["data"],
        h2d_seconds=per_step["h2d"],
        tokens=per_step.get("tokens"),
        run_delay_seconds=per_step.get("run_delay"),
        memory_stall_seconds=per_step.get("memory"),
        sm_clock_hertz=mean.get("sm_clock_hertz"),
        tensor_hertz=mean.get("tensor_hertz"),
        held=_held(recent[0], last, gpu) if recent else {},
        set_low=gpu is not None and gpu.clocks_event_reasons.get(SET_LOW_FLAG, 0.0) > 0,
        pcie_bytes_per_second=_pcie(gpu),
        pcie_received_bytes_per_second=mean.get("received"),
        errors=errors,
        power_watts=mean.get("power_watts"),
        power_limit_watts=mean.get("power_limit_watts"),
        temperature_celsius=mean.get("temperature_celsius"),
    )


def _mean(values: list[float]) -> float:
    """Of at least one; of absurd ones infinity, where ``fmean`` raises."""
    return sum(values) / len(values)


def _held(first: _Mark, last: _Mark, gpu: GpuFacts | None) -> dict[str, float]:
    """Counted where the driver counts, else as flagged now."""
    gained, passed = _gained(first, last), last.at - first.at
    if passed <= 0:
        return {}
    flags = gpu.clocks_event_reasons if gpu else {}
    held: dict[str, float] = {}
    for name, reasons in HELD_BY.items():
        counted = [gained[f"held/{reason}"] / passed for reason in reasons if f"held/{reason}" in gained]
        flagged = [flags[reason] for reason in reasons if reason in flags]
        if counted or flagged:
            held[name] = min(1.0, max(counted or flagged))  # counters may move later than our clock
    return held


def _pcie(gpu: GpuFacts | None) -> float | None:
    if gpu is None:
        return None
    width, generation = gpu.values.get("pcie_link_width", 0.0), gpu.values.get("pcie_link_generation", 0.0)
    if width <= 0 or not 0 < generation <= _MOST_GENERATION:
        return None
    return float(PCIE_BYTES_PER_LANE * width * 2**generation)
