"""What one look at NVML gives, and its form on the pipe between the process that looks and the sidecar."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from straggler.errors import ParseError
from straggler.model.gpu import GpuFacts, GpuKey
from straggler.model.reading import Problem


class Xid(NamedTuple):
    """One XID event: the driver's report of an error."""

    key: GpuKey
    number: int
    """As in the kernel log's ``Xid``, e.g. 79."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlPage:
    """All GPUs, once."""

    facts: tuple[GpuFacts, ...] = ()
    problems: tuple[Problem, ...] = ()
    blind: tuple[Problem, ...] = ()
    xids: tuple[Xid, ...] = ()
    """Since the last look, in order, repeats included."""
    watched: tuple[GpuKey, ...] = ()
    """GPUs whose XID events are delivered."""
    failure: str = ""
    """Why there is no page: one of ``reasons.FAILURES``, or ``absent`` where there is no library."""
    detail: str = ""


def encode(page: NvmlPage) -> bytes:
    """One line of JSON."""
    return json.dumps(asdict(page), separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> NvmlPage:
    """The page of a line.

    Raises:
        ParseError: it is none: something else wrote to the pipe.
    """
    try:
        content: dict[str, Any] = json.loads(line)
        return NvmlPage(
            facts=tuple(_gpu(gpu) for gpu in content["facts"]),
            problems=tuple(Problem(**problem) for problem in content["problems"]),
            blind=tuple(Problem(**problem) for problem in content["blind"]),
            xids=tuple(Xid(GpuKey(*key), int(number)) for key, number in content["xids"]),
            watched=tuple(GpuKey(*key) for key in content["watched"]),
            failure=content["failure"],
            detail=content["detail"],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ParseError("answer of the NVML process", line.decode("utf-8", "replace")) from error


def _gpu(content: dict[str, Any]) -> GpuFacts:
    named = {**content, "key": GpuKey(*content["key"]), "mig_uuids": tuple(content["mig_uuids"])}
    named["xid_events"] = {int(number): count for number, count in content["xid_events"].items()}
    return GpuFacts(**named)
