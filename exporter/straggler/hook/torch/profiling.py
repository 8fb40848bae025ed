"""The profilers themselves: torch's, and the switch of nsys. Nothing runs, and nothing is imported, before it is asked.

torch's profiler is started one step before the first one that is marked: the range of an optimizer's step begins before
the hook in which steps begin, so that of the first step would be missing.
"""

from __future__ import annotations

import gzip
import os
import shutil
from typing import Any, Protocol

import torch

from straggler.errors import StragglerError
from straggler.hook.torch.requests import with_new_file

NSYS_VARIABLE = "NSYS_PROFILING_SESSION_ID"
"""nsys sets it for the program it starts."""
_BYTES_PER_EVENT = 600
"""Of the plain trace: 360 to 480 in traces of torch 1.13 to 2.13."""
_MAX_TRACE_BYTES = 1 << 29
_GZIP_LEVEL = 1
"""100 MB a second; the training waits for it."""


class NoProfileError(StragglerError):
    """There is no profile.

    Args:
        reason: one of ``wire.profile.REASONS``.
        detail: for people.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Profiling(Protocol):
    """One profile. All methods are called between two steps, by the training thread."""

    def start(self) -> None:
        """Begin.

        Raises:
            NoProfileError: it cannot.
        """

    def step(self, number: int) -> None:
        """The step of this number begins."""

    def stop(self) -> None:
        """End, and keep what was seen."""

    def save(self, path: str) -> int | None:
        """Write the trace there and forget it; its size, or ``None`` where somebody else has it.

        Raises:
            NoProfileError: it cannot be written.
        """


class TorchProfiling:
    """``torch.profiler``, without shapes and stacks, which cost several times as much."""

    def __init__(self) -> None:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_initialized():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profile: Any = torch.profiler.profile(activities=activities)
        self._mark: Any = None

    def start(self) -> None:
        """See ``Profiling``."""
        if torch.autograd._profiler_enabled():  # noqa: SLF001 - nothing public tells it
            raise NoProfileError("profiler_busy", "the training's own profiler runs")
        self._profile.start()

    def step(self, number: int) -> None:
        """See ``Profiling``."""
        self._leave()
        self._mark = torch.profiler.record_function(f"ProfilerStep#{number}")
        self._mark.__enter__()

    def stop(self) -> None:
        """See ``Profiling``. With a GPU torch synchronizes with it here."""
        self._leave()
        self._profile.stop()

    def _leave(self) -> None:
        if self._mark is not None:
            self._mark.__exit__(None, None, None)
            self._mark = None

    def is_of(self, profiler: Any) -> bool:
        """Whether this is the low-level profiler inside ours."""
        return getattr(self._profile, "profiler", None) is profiler

    def save(self, path: str) -> int:
        """See ``Profiling``."""
        finished, self._profile = self._profile, None
        wanted = len(finished.profiler.kineto_results.events()) * _BYTES_PER_EVENT
        directory = os.path.dirname(path)  # noqa: PTH120 - as everywhere in the hook
        try:
            space = os.statvfs(directory)
            free = space.f_bavail * space.f_frsize
            if wanted > min(free // 2, _MAX_TRACE_BYTES):
                raise NoProfileError(
                    "no_space",
                    f"the trace would have some {wanted >> 20} MB before it is packed, and {directory} has "
                    f"{free >> 20} MB: profile fewer steps, or set STRAGGLER_TRACE_DIR",
                )
            with_new_file(path, lambda descriptor: _pack(finished, path, descriptor))
            return os.stat(path).st_size  # noqa: PTH116 - likewise
        except OSError as error:
            raise NoProfileError("cannot_write", f"{directory}: {error.strerror or error}") from error


def _pack(finished: Any, path: str, descriptor: int) -> None:
    """Have the plain trace written beside its place, by its name, into a file that we made; pack it; remove it."""
    plain = f"{path}.{os.urandom(6).hex()}.json"
    os.close(os.open(plain, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    try:
        finished.export_chrome_trace(plain)
        with (
            open(plain, "rb") as source,  # noqa: PTH123 - as everywhere in the hook
            os.fdopen(os.dup(descriptor), "wb") as target,
            gzip.GzipFile("", "wb", _GZIP_LEVEL, target, mtime=0) as packed,
        ):
            shutil.copyfileobj(source, packed, 1 << 20)
    finally:
        os.unlink(plain)  # noqa: PTH108 - likewise


class NsysProfiling:
    """nsys is around the process (``nsys profile --capture-range=cudaProfilerApi``): tell it when to look."""

    def start(self) -> None:
        """See ``Profiling``."""
        if not torch.cuda.is_initialized():
            raise NoProfileError("no_gpu", "nsys is told through CUDA, which this process does not use")
        torch.cuda.profiler.start()

    def step(self, number: int) -> None:
        """See ``Profiling``. nsys has marks of its own."""

    def stop(self) -> None:
        """See ``Profiling``."""
        torch.cuda.profiler.stop()

    def save(self, path: str) -> None:
        """See ``Profiling``: nsys writes its report where it was told to."""


def make_profiling() -> TorchProfiling | NsysProfiling:
    """The one for this process."""
    return NsysProfiling() if os.environ.get(NSYS_VARIABLE) else TorchProfiling()
