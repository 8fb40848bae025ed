"""A GPU without a GPU: streams that run behind the host, and events that are passed when a stream gets to them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class ModelEvent:
    """An event; ``at_ns`` is when its stream passes it."""

    at_ns: int | None = None
    recorded: int = 0


@dataclass
class ModelGpu:
    """One device with any number of streams. ``straggler.hook.torch.cuda_clock.EventDevice`` is its interface.

    The host's time moves by ``host``, a stream's by ``launch``: a kernel begins when the host has launched it and the
    stream is free. So a stream that is behind stays behind, and one that was idle begins at once.
    """

    now_ns: int = 0
    free_at_ns: dict[int, int] = field(default_factory=dict)
    current: int = 0
    capturing: bool = False
    made: int = 0
    queries: int = 0

    def host(self, nanoseconds: int) -> None:
        """The host does something else."""
        self.now_ns += nanoseconds

    def launch(self, nanoseconds: int) -> None:
        """Order a kernel of this length on the current stream."""
        self.free_at_ns[self.current] = self._reached() + nanoseconds

    def wait_for(self, stream: int) -> None:
        """Make the current stream wait for what is ordered on another one so far."""
        self.free_at_ns[self.current] = max(self._reached(), self.free_at_ns.get(stream, 0))

    def _reached(self) -> int:
        return max(self.free_at_ns.get(self.current, 0), self.now_ns)

    # EventDevice

    def make(self) -> ModelEvent:
        """See ``EventDevice``."""
        self.made += 1
        return ModelEvent()

    def record(self, event: ModelEvent) -> None:
        """See ``EventDevice``. In a capture it would end the capture."""
        assert not self.capturing
        event.at_ns = self._reached()
        event.recorded += 1

    def is_done(self, event: ModelEvent) -> bool:
        """See ``EventDevice``. In a capture it would end the capture."""
        assert not self.capturing
        self.queries += 1
        return event.at_ns is not None and event.at_ns <= self.now_ns

    def elapsed_ns(self, earlier: ModelEvent, later: ModelEvent) -> int:
        """See ``EventDevice``. Events that are not done raise, as CUDA's do."""
        assert earlier.at_ns is not None
        assert later.at_ns is not None
        assert max(earlier.at_ns, later.at_ns) <= self.now_ns
        return later.at_ns - earlier.at_ns

    def stream(self) -> int:
        """See ``EventDevice``."""
        return self.current

    def is_capturing(self) -> bool:
        """See ``EventDevice``."""
        return self.capturing
