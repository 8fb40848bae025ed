"""The process that looks. One line in, one look, one line out; it ends when nobody asks, and with whoever asked.

A driver call may hang and cannot be interrupted, so it is made here, where the sidecar can leave it behind.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time

from straggler.sources.nvml.binding import LIBRARY_NOT_FOUND, LibNvml, Nvml, NvmlError
from straggler.sources.nvml.page import NvmlPage, encode
from straggler.sources.nvml.reasons import opening_failure
from straggler.sources.nvml.session import Session


def serve(nvml: Nvml, requests: int, answers: int, idle_seconds: float) -> None:
    """Look once for each line.

    Ends, with everything closed, at the end of the requests, after ``idle_seconds`` without one, and after a failure
    of the library as a whole: a new driver needs a new process.

    Args:
        nvml: the library, not yet initialised.
        requests: descriptor to read lines from.
        answers: descriptor to write pages to.
        idle_seconds: how long handles are kept while nobody asks.
    """
    session: Session | None = None
    try:
        while select.select([requests], [], [], idle_seconds)[0] and os.read(requests, 4096):
            try:
                session = session or Session(nvml)
                page = session.look(time.monotonic())
            except NvmlError as error:
                page = _failure(error)
            _write_all(answers, encode(page))
            if page.failure:
                return
    finally:
        if session is not None:
            with contextlib.suppress(NvmlError):  # it is over in any case
                session.close()


def _failure(error: NvmlError) -> NvmlPage:
    if error.code == LIBRARY_NOT_FOUND:
        return NvmlPage(failure="absent", detail=f"{error}: no NVIDIA driver here, or the container has none")
    reason, detail = opening_failure(error)
    return NvmlPage(failure=reason, detail=detail)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def main(idle_seconds: float) -> None:
    """The process."""
    answers = os.dup(1)
    os.dup2(2, 1)  # a library that prints must not print into the answers
    try:
        nvml = LibNvml()
    except NvmlError as error:
        sys.stdin.buffer.readline()
        _write_all(answers, encode(_failure(error)))
        return
    with contextlib.suppress(BrokenPipeError):
        serve(nvml, 0, answers, idle_seconds)
