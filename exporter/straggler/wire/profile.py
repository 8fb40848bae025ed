"""A profile on demand: the request beside a ring, and the rank's answer. Names and bytes; no I/O.

Beside the ring ``NAME.ring``, all in its directory:

==========================  =====================================================================================
``NAME.profile``            the request, written by who wants a profile; its rank looks for it once a second
``NAME.profiled``           the answer, written by the rank
``NAME.trace.json.gz``      the trace; elsewhere if ``STRAGGLER_TRACE_DIR`` says so
==========================  =====================================================================================

A request is for one process: whoever starts anew has another ring. Both texts are one JSON object, of a version; an
unknown key is ignored, a wrong value refused.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from straggler.errors import WireError
from straggler.wire import layout

VERSION: Final = 1
REQUEST_SUFFIX, ANSWER_SUFFIX, TRACE_SUFFIX = layout.PROFILE_SUFFIXES
MAX_BYTES: Final = 8192
"""Of a request and of an answer, which holds a path."""
MAX_STEPS: Final = 20
"""A profiler keeps every operator of every step in memory."""

RUNNING, DONE, REFUSED = "running", "done", "refused"
STATES: Final = (RUNNING, DONE, REFUSED)
REASONS: Final = (
    "",
    "too_soon",  # the last profile of this process was a minute ago at most
    "profiler_busy",  # the training's own profiler runs, or began to
    "no_space",  # where the trace would go
    "cannot_write",  # there either
    "cuda_graph",  # the process replays CUDA graphs, which a profiler may crash
    "no_gpu",  # nsys is around the process, which uses no GPU
    "failed",  # the profiler itself
)
"""Why there is no profile."""
_TEXTS: Final = frozenset({"id", "state", "reason", "detail", "trace"})
"""Fields that are texts; all others are whole numbers."""
_ID_CHARACTERS = frozenset("0123456789abcdef")


class Request(NamedTuple):
    """What somebody asks of one rank."""

    id: str
    """1 to 32 hexadecimal digits; an answer repeats it."""
    steps: int
    """1 to ``MAX_STEPS``."""
    first_step: int
    """Number of the first step that may be profiled, so that two ranks profile the same ones; 0: any."""
    expires_realtime_ns: int
    """A rank that sees it later does nothing."""


class Answer(NamedTuple):
    """What became of it."""

    id: str
    state: str
    """One of ``STATES``."""
    reason: str = ""
    """One of ``REASONS``."""
    detail: str = ""
    """For people."""
    trace: str = ""
    """Name of the trace beside the ring, or a path; ``""`` where there is none: nsys has it."""
    first_step: int = 0
    steps: int = 0
    trace_bytes: int = 0


def encode(value: Request | Answer) -> bytes:
    """At most ``MAX_BYTES``; a detail that is too long is cut."""
    fields = value._asdict()
    if "detail" in fields:
        fields["detail"] = fields["detail"][:200]
    return json.dumps({"version": VERSION, **fields}, ensure_ascii=False).encode("utf-8", "replace")


def decode_request(data: bytes) -> Request:
    """Read a request.

    Raises:
        WireError: ``unknown_version`` or ``bad_value``.
    """
    request = Request(**_fields(data, Request))
    _check_id(request.id)
    if not (1 <= request.steps <= MAX_STEPS and request.first_step >= 0 and request.expires_realtime_ns >= 0):
        raise WireError("bad_value", f"steps {request.steps}, first step {request.first_step}")
    return request


def decode_answer(data: bytes) -> Answer:
    """Read an answer.

    Raises:
        WireError: ``unknown_version`` or ``bad_value``.
    """
    answer = Answer(**_fields(data, Answer))
    _check_id(answer.id)
    if answer.state not in STATES or answer.reason not in REASONS:
        raise WireError("bad_value", f"state {answer.state!r}, reason {answer.reason!r}")
    return answer


def _fields(data: bytes, kind: Any) -> dict[str, Any]:
    try:
        told = json.loads(data) if len(data) <= MAX_BYTES else None
    except (ValueError, RecursionError) as error:
        raise WireError("bad_value", "not JSON") from error
    if not isinstance(told, dict):
        raise WireError("bad_value", "no JSON object, or too long")
    if told.get("version") != VERSION:
        raise WireError("unknown_version", repr(told.get("version"))[:40])
    fields = {}
    for name in kind._fields:
        value = told.get(name, kind._field_defaults.get(name))
        if type(value) is not (str if name in _TEXTS else int):  # no bool for an int either
            raise WireError("bad_value", f"{name} is {value!r:.60}")
        fields[name] = value
    return fields


def _check_id(text: str) -> None:
    if not (1 <= len(text) <= 32 and set(text) <= _ID_CHARACTERS):
        raise WireError("bad_value", f"id {text!r:.40}")
