"""Whether what the page says is still true: frozen values, profiling stuck at zero, what vanished. Pure.

The page has no timestamps. DCGM samples every 30 s (the default), so a faster scrape sees each value several times, and
it was seen 40 s late. But pages also freeze for good, with every health check green, and profiling counters stick at
zero for weeks while the GPU is busy. Both look like a healthy, idle GPU, which is why they must not be shown as one.

*Frozen*: all values of a GPU that must move, equal to the last digit, over at least three looks and
``stale_after_seconds``, while ranks step on the node. An energy counter must move even when the GPU idles; power and
profiling when it works, except that 0 and 1 are where a ratio may stay. If all GPUs of which something must move stand
still, the source is ``stale``; if only some do, each is ``gpu_frozen``. Either way the values are withheld, and who the
GPU is stays, so that ranks are still joined.

*Stuck at zero*: an SM activity of exactly 0 while the GPU is reported busy. The zero is withheld at once, since the two
are sampled at different moments and the first of a new job means nothing; it is called stuck when it lasts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from straggler.model.clock import Clock
from straggler.model.gpu import GpuFacts, GpuKey
from straggler.model.reading import Problem, SourceState
from straggler.sources.dcgm.eras import WANTED, Era, csv_lines_to_enable
from straggler.sources.dcgm.reasons import Tally

STALE_AFTER_SECONDS: Final = 90.0
"""DCGM's default interval of 30 s, and the 40 s by which samples were seen to be late, and a scrape."""

LOOKS: Final = 3
"""Fewer equal looks prove nothing: Prometheus may have been away for an hour."""

BUSY: Final = 0.5

_PROFILING = (
    "sm_active_ratio",
    "sm_occupancy_ratio",
    "tensor_active_ratio",
    "dram_active_ratio",
    "graphics_engine_active_ratio",
    "pcie_transmit_bytes_per_second",
    "pcie_receive_bytes_per_second",
    "nvlink_transmit_bytes_per_second",
    "nvlink_receive_bytes_per_second",
)
_WORK = ("utilization_ratio", "sm_active_ratio", "graphics_engine_active_ratio")
_MOVING = ("energy_joules_total", "power_watts", *_PROFILING)

MAX_REMEMBERED: Final = 1024
"""GPUs that one page can make us remember."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Facts that may be shown, and what may not."""

    state: SourceState
    """``ok`` or ``stale``."""
    facts: tuple[GpuFacts, ...]
    blind: tuple[Problem, ...]


@dataclass(slots=True)
class _Constant:
    """Something that has been the same for a while."""

    what: object = None
    since: float = 0.0
    looks: int = 0

    def see(self, what: object, now: float) -> None:
        if what != self.what:
            self.what, self.since, self.looks = what, now, 0
        self.looks += 1


@dataclass(slots=True)
class _History:
    """What one GPU said until now."""

    moving: _Constant = field(default_factory=_Constant)
    stuck: _Constant = field(default_factory=_Constant)
    had: set[str] = field(default_factory=set)
    sm_active_at: float | None = None


class Freshness:
    """Judges one page after the other.

    Args:
        clock: its monotonic side is used.
        stale_after_seconds: how long values may stand still; more than DCGM's interval.
    """

    def __init__(self, clock: Clock, *, stale_after_seconds: float = STALE_AFTER_SECONDS) -> None:
        self._clock = clock
        self._stale_after = stale_after_seconds
        self._histories: dict[GpuKey, _History] = {}
        self._uuids: dict[str, None] = {}
        self._stepping_since: float | None = None

    def judge(self, facts: Sequence[GpuFacts], *, stepping: bool, complete: bool = True, seen: Era = Era.ANY) -> Judged:
        """Decide what of a page may be shown.

        Args:
            facts: of the whole page.
            stepping: whether ranks of this node step now.
            complete: ``False`` if a part of the page is missing: then nothing is concluded from what is not there.
            seen: what the page's names tell, for the advice in ``sm_active_absent``.
        """
        now = self._clock.monotonic()
        if not stepping:
            self._stepping_since = None
        elif self._stepping_since is None:
            self._stepping_since = now
        self._remember(facts, now)
        tally = Tally()
        if complete:
            self._tell_missing(facts, seen, now, tally)
        shown = tuple(self._without_stuck(gpu, now, tally) for gpu in facts)
        frozen = dict.fromkeys(gpu.key for gpu in facts if self._is_frozen(gpu, now))
        if frozen and frozen.keys() == {key for key, history in self._histories.items() if history.moving.what}:
            tally.add("values_frozen", f"no value has moved for {self._stale_after:g} s, while ranks step", len(frozen))
            return Judged(state=SourceState.STALE, facts=tuple(map(_withheld, facts)), blind=tally.problems())
        for key in frozen:
            tally.add("gpu_frozen", f"{key.uuid}: no value has moved for {self._stale_after:g} s, while ranks step")
        shown = tuple(_withheld(gpu) if gpu.key in frozen else gpu for gpu in shown)
        return Judged(state=SourceState.OK, facts=shown, blind=tally.problems())

    def _remember(self, facts: Sequence[GpuFacts], now: float) -> None:
        histories: dict[GpuKey, _History] = {}
        for gpu in facts[:MAX_REMEMBERED]:
            history = histories[gpu.key] = self._histories.get(gpu.key) or _History()
            history.moving.see(_signature(gpu.values), now)
            history.stuck.see(_is_stuck(gpu.values), now)
            if "sm_active_ratio" in gpu.values:
                history.sm_active_at = now
            if len(self._uuids) < MAX_REMEMBERED:
                self._uuids[gpu.key.uuid] = None
        self._histories = histories

    def _is_frozen(self, gpu: GpuFacts, now: float) -> bool:
        history = self._histories.get(gpu.key)
        if history is None or not history.moving.what or self._stepping_since is None:
            return False
        since = max(history.moving.since, self._stepping_since)
        return history.moving.looks >= LOOKS and now - since > self._stale_after

    def _without_stuck(self, gpu: GpuFacts, now: float, tally: Tally) -> GpuFacts:
        if not _is_stuck(gpu.values):
            return gpu
        history = self._histories.get(gpu.key)
        if history and history.stuck.looks >= LOOKS and now - history.stuck.since > self._stale_after:
            detail = f"{gpu.key.uuid}: profiling says 0 while the GPU is busy: restart dcgm-exporter, and see who else "
            tally.add("prof_stuck_zero", detail + "profiles (nsys, ncu, dcgmi profile --pause)")
        believed = {name: value for name, value in gpu.values.items() if value != 0 or name not in _PROFILING}
        return replace(gpu, values=believed)

    def _tell_missing(self, facts: Sequence[GpuFacts], seen: Era, now: float, tally: Tally) -> None:
        here = {gpu.key.uuid for gpu in facts}
        for uuid in self._uuids:
            if uuid not in here:
                tally.add("gpu_missing", f"{uuid} was on the page and is gone: off the bus, or the exporter lost it")
        known_to_page = {name for gpu in facts for name in gpu.values}
        divided = {gpu.key.uuid for gpu in facts if gpu.key.gpu_instance is not None}
        for gpu in facts:
            history = self._histories.get(gpu.key)
            if history is None:
                continue
            if "sm_active_ratio" not in gpu.values and (
                gpu.key.gpu_instance is not None or gpu.key.uuid not in divided
            ):
                tally.add("sm_active_absent", _advice(history, known_to_page, seen, now))
            lost = (history.had & known_to_page) - gpu.values.keys() - {"sm_active_ratio"}
            if lost:
                tally.add(
                    "metric_missing", f"{gpu.key.uuid} has lost {', '.join(sorted(lost))}; other GPUs still have it"
                )
            history.had.update(gpu.values)


def _advice(history: _History, known_to_page: Iterable[str], seen: Era, now: float) -> str:
    if history.sm_active_at is not None:
        return f"SM activity was there until {now - history.sm_active_at:.0f} s ago: restart dcgm-exporter"
    known = set(known_to_page)
    lines = csv_lines_to_enable([name for name in WANTED if name not in known], seen)
    if "sm_active_ratio" in known or not lines:
        return "other GPUs of the page have SM activity, this one has not"
    return f"add to the csv file of dcgm-exporter: {' | '.join(lines)}"


def _signature(values: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """What must move; blank where nothing must."""
    works = any(values.get(name, 0.0) > 0 for name in _WORK)
    if not works and "energy_joules_total" not in values:
        return ()
    return tuple((name, values[name]) for name in _MOVING if values.get(name, 0.0) not in (0.0, 1.0))


def _is_stuck(values: Mapping[str, float]) -> bool:
    """Whether profiling says 0 and something else says busy."""
    utilization = values.get("utilization_ratio", 0.0)
    engine = values.get("graphics_engine_active_ratio")
    says_zero = values.get("sm_active_ratio") == 0 or (engine == 0 and "sm_active_ratio" not in values)
    return says_zero and (utilization >= BUSY or (engine or 0.0) >= BUSY)


def _withheld(gpu: GpuFacts) -> GpuFacts:
    """Who the GPU is, without any value."""
    return replace(gpu, values={}, clocks_event_seconds={}, clocks_event_reasons={})
