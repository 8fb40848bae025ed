"""CUDA (and ROCm, which torch calls by the same names) behind ``EventDevice``.

Made only after the first ``backward`` on a GPU, so CUDA has long been initialised by the training itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class CudaEvents:
    """Events on the GPU that is current in the training thread.

    Args:
        in_capture: whether some other thread's capture is known to be under way.
    """

    def __init__(self, in_capture: Callable[[], bool]) -> None:
        self._in_capture = in_capture
        self._device = torch.cuda.current_device()
        self._raw_stream = torch._C._cuda_getCurrentRawStream  # noqa: SLF001 - the public way makes an object, for 2 us

    def make(self) -> Any:
        """See ``EventDevice``."""
        return torch.cuda.Event(enable_timing=True)

    def record(self, event: Any) -> None:
        """See ``EventDevice``."""
        event.record()

    def is_done(self, event: Any) -> bool:
        """See ``EventDevice``."""
        return bool(event.query())

    def elapsed_ns(self, earlier: Any, later: Any) -> int:
        """See ``EventDevice``. The driver tells milliseconds, to half a microsecond."""
        return int(earlier.elapsed_time(later) * 1e6)

    def stream(self) -> tuple[int, int]:
        """Device index and stream handle: stream 0 of another GPU is another stream."""
        device = torch.cuda.current_device()
        return device, self._raw_stream(device)

    def is_capturing(self) -> bool:
        """See ``EventDevice``. A query from one thread would end a capture in another, so both are asked."""
        return self._in_capture() or torch.cuda.is_current_stream_capturing()
