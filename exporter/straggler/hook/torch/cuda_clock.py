"""Phases on the GPU's own clock: events on the compute stream instead of readings of the host's clock.

The host launches kernels and runs ahead, so its clock tells when work was *ordered*. An event is ordered like a kernel
and takes the time when the GPU gets to it. Each change of phase records one; a step's phases are the times between
consecutive events, so they add up to the step and a moment counts once, as on the host's clock.

What must never happen, and how it is kept from happening:

- *Waiting for the GPU.* Nothing here synchronizes. The events of a step are read when ``query()`` of its last one says
  that the GPU has passed it, which is asked once per step; so steps are published late, by as many steps as the host
  runs ahead, ``MAX_LATE`` at the most.
- *Growing.* Events come from a pool of ``POOL_EVENTS``, made when first needed and used again. A step takes at most
  ``STEP_EVENTS`` of them. A step that needs more, or finds no event, or ends while ``MAX_LATE`` others are still under
  way, is published without phases and own time, for the reason ``too_many_brackets``.
- *Disturbing a capture.* While a CUDA graph is captured nothing is recorded and nothing queried, since either ends the
  capture.
- *Timing the wrong stream.* Only what happens on the stream that the step began on is marked. A loader that prefetches
  on a stream of its own is not the training waiting. If a *collective* is waited for on another stream, the compute
  stream will wait for that stream at some place unknown to us, so the step has no own time (``hidden_collectives``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic_ns
from typing import Any, NamedTuple, Protocol

from straggler.hook.torch.meter import MEASURED, Meter, Publish, TimedStep
from straggler.wire import layout

POOL_EVENTS = 4096
"""An event is a few dozen bytes of the driver's, and 4,096 is two FSDP steps of a very deep model."""
STEP_EVENTS = 2048
MAX_LATE = 8
_DATA = layout.PHASE_INDEX["data"]


class EventDevice(Protocol):
    """What the clock needs of a GPU. ``cuda_device.CudaEvents`` is the real one."""

    def make(self) -> Any:
        """A new event that can be timed."""

    def record(self, event: Any) -> None:
        """Order the event on the calling thread's current stream."""

    def is_done(self, event: Any) -> bool:
        """Whether the GPU has passed the event. Never waits."""

    def elapsed_ns(self, earlier: Any, later: Any) -> int:
        """Time between two events that are both done."""

    def stream(self) -> Any:
        """Which stream is current in the calling thread; equal for the same one."""

    def is_capturing(self) -> bool:
        """Whether a graph is being captured anywhere in this process."""


class _Step(NamedTuple):
    """A step whose last event is under way."""

    begin: Any
    """Its first event; ``None`` if there is none: then nothing is timed by events."""
    trail: list[tuple[Any, int]]
    """Event and the phase that it ended; in order, the step's end last."""
    host_wall_ns: int
    own_reason: str
    end_ns: int
    host_data_ns: int
    amounts: Mapping[str, Any]


class EventMeter(Meter):
    """Phases on the clock of one GPU.

    Args:
        publish: called with each step, in order, once the GPU has finished it.
        device: where events are recorded.
        now: the host's monotonic clock, in nanoseconds.
    """

    clock = "cuda"

    def __init__(self, publish: Publish, device: EventDevice, now: Callable[[], int] = monotonic_ns) -> None:
        super().__init__(publish, now)
        self._device = device
        self._stream: Any = None
        self._free: list[Any] = []
        self._made = 0
        self._begin_event: Any = None
        self._trail: list[tuple[Any, int]] = []
        self._lost = MEASURED
        """Why this step cannot be timed, once that is so."""
        self._under_way: deque[_Step] = deque()
        self._began = 0
        self._host_data = self._data_since = 0
        self._data_token: int | None = None

    # What Meter calls

    def enter(self, phase: int, borrowed: bool = False) -> int | None:  # noqa: FBT001, FBT002 - as ``Meter`` has it
        """See ``Meter.enter``. The host's own waiting for a batch is summed up apart."""
        token = super().enter(phase, borrowed)
        if phase == _DATA and self._data_token is None and token is not None:
            self._data_token, self._data_since = token, self._now()
        return token

    def leave(self, token: int | None) -> bool:
        """See ``Meter.leave``."""
        if token is not None and token == self._data_token:
            self._data_token = None
            self._host_data += self._now() - self._data_since
        return super().leave(token)

    def _may_switch(self, _phase: int) -> bool:
        return not self._device.is_capturing() and self._device.stream() == self._stream

    def _switch(self, ended: int) -> None:
        if self._lost != MEASURED:
            return
        if self._device.is_capturing():
            self._lost = "cuda_graph"
        elif self._device.stream() != self._stream:
            self._lost = "hidden_collectives"  # left on another stream than it was entered: the order is unknown
        elif len(self._trail) >= STEP_EVENTS - 1 or (event := self._take()) is None:
            self._lost = "too_many_brackets"
        else:
            self._device.record(event)
            self._trail.append((event, ended))

    def _begin(self) -> None:
        self._stream = self._device.stream()
        self._began = self._now()
        self._begin_event = self._take()
        if self._begin_event is not None:
            self._device.record(self._begin_event)

    def _end(self, own_reason: str, amounts: Mapping[str, Any]) -> None:
        now = self._now()
        begin, trail, lost = self._begin_event, self._trail, self._lost
        event = self._take() if len(self._under_way) < MAX_LATE else None
        if event is not None:
            self._device.record(event)
            trail.append((event, self._phases[-1]))
        if event is None or begin is None or lost == "too_many_brackets":
            self._give_back(begin, *(used for used, _ in trail if used is not event))
            begin, trail, lost = None, [], "too_many_brackets"
        reason = own_reason if own_reason != MEASURED else lost
        self._under_way.append(_Step(begin, trail, now - self._began, reason, now, self._host_data, amounts))
        self._begin_event, self._trail, self._lost = event, [], MEASURED
        self._stream = self._device.stream()
        self._began, self._host_data = now, 0
        self.flush()

    # Events

    def flush(self) -> None:
        """Publish what the GPU has finished: in order, and without waiting."""
        steps = self._under_way
        if self._device.is_capturing():
            return
        while steps and (steps[0].begin is None or self._device.is_done(steps[0].trail[-1][0])):
            self._publish(self._resolve(steps.popleft()))

    def _resolve(self, step: _Step) -> TimedStep:
        sums = [0] * layout.PHASE_COUNT
        earlier = step.begin
        for event, ended in step.trail:
            sums[ended] += max(self._device.elapsed_ns(earlier, event), 0)
            earlier = event
        if step.begin is None:
            sums[layout.OTHER] = step.host_wall_ns
        else:
            # The last event is the next step's first.
            self._give_back(step.begin, *(event for event, _ in step.trail[:-1]))
        return TimedStep(sum(sums), sums, step.own_reason, step.end_ns, step.host_data_ns, step.amounts)

    def _take(self) -> Any:
        if self._free:
            return self._free.pop()
        if self._made >= POOL_EVENTS:
            return None
        self._made += 1
        return self._device.make()

    def _give_back(self, *events: Any) -> None:
        self._free += [event for event in events if event is not None]
