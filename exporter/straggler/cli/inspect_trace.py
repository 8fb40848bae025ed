"""The part of ``straggler inspect`` for Chrome traces: where each step's time went, and how fast the network was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from straggler.model.identity import clean_text
from straggler.sources.trace.bandwidth import Comparison, compare
from straggler.sources.trace.parse import Trace, parse_trace
from straggler.sources.trace.read import read_entries
from straggler.sources.trace.steps import step_times

HELP = """\
A trace of torch.profiler (Chrome's JSON, plain or gzipped) is known by its first bytes. "traces" has for each
  file, rank, world_size, backend (null: the trace does not say), clock (gpu: times are of kernels; host: of operators),
  events, refused_events, steps [{number, step_seconds, loading_seconds, forward_seconds, backward_seconds,
  optimizer_seconds, compute_seconds, copy_seconds, communication_seconds, exposed_seconds, overlapped_seconds}]; null
  is what the trace does not show. Exposed communication is what nothing was computed beside.
With the traces of several ranks "collectives" has
  bandwidths [{group, name, group_size, size_bytes, calls, ranks, last_rank, last_share, seconds,
  algbw_bytes_per_second, busbw_bytes_per_second}], reckoned from the rank that arrived last, and reason (why none).
"""

_COLUMNS = {
    "loading": "loading_seconds",
    "forward": "forward_seconds",
    "backward": "backward_seconds",
    "optimizer": "optimizer_seconds",
    "compute": "compute_seconds",
    "copy": "copy_seconds",
    "comm": "communication_seconds",
    "exposed": "exposed_seconds",
    "overlapped": "overlapped_seconds",
}


def read_trace(path: Path) -> Trace:
    """Read one file.

    Raises:
        SourceFailedError: as ``read.read_entries`` and ``parse.parse_trace``.
    """
    return parse_trace(read_entries(path))


def describe_trace(name: str, trace: Trace, last: int) -> dict[str, Any]:
    """Everything that ``--json`` gives for one trace.

    Args:
        name: of the file, printable.
        trace: what is in it.
        last: how many steps.
    """
    return {
        "file": name,
        "rank": trace.rank,
        "world_size": trace.world_size,
        "backend": None if trace.backend is None else clean_text(trace.backend, None),
        "clock": "gpu" if trace.kernels else "host",
        "events": trace.events,
        "refused_events": trace.refused_events,
        "steps": [asdict(step) for step in step_times(trace)[-last:]],
    }


def describe_collectives(traces: Sequence[Trace]) -> dict[str, Any]:
    """What ``--json`` gives for all traces together."""
    comparison = compare(traces) if traces else Comparison()
    return {
        "reason": comparison.reason,
        "bandwidths": [
            {**asdict(one), "group": clean_text(one.group, None), "name": clean_text(one.name, None)}
            for one in comparison.bandwidths
        ],
    }


def render_trace(described: Mapping[str, Any]) -> str:
    """One trace as text: whose it is, and its steps in milliseconds; what the trace does not show is a dash."""
    rank = "unknown" if described["rank"] is None else str(described["rank"])
    known = {"rank": rank, "of": described["world_size"], "backend": described["backend"]}
    lines = [
        described["file"],
        "  trace     " + "  ".join(f"{key} {value}" for key, value in known.items() if value is not None),
        f"  times     {_CLOCKS[described['clock']]}",
    ]
    if described["refused_events"]:
        lines.append(f"  problem   {described['refused_events']} of {described['events']} events are not Kineto's")
    rows = [["step", "ms", *_COLUMNS]]
    for step in described["steps"]:
        number = "all" if step["number"] is None else str(step["number"])
        rows.append([number, _ms(step["step_seconds"]), *(_ms(step[key]) for key in _COLUMNS.values())])
    return "\n".join([*lines, "", *_aligned(rows)])


_CLOCKS = {
    "gpu": "of kernels on the GPU; loading and the step itself on the host",
    "host": "of operators on the host: the trace has no kernels",
}


def render_collectives(described: Mapping[str, Any]) -> str:
    """The table of bandwidths, or why there is none."""
    if not described["bandwidths"]:
        return f"collectives: {described['reason']}"
    rows = [["group", "collective", "ranks", "MB", "calls", "last rank", "ms", "algbw GB/s", "busbw GB/s"]]
    for one in described["bandwidths"]:
        is_bound = one["ranks"] < one["group_size"]
        bound = ">=" if is_bound else ""
        rows.append(
            [
                one["group"],
                one["name"],
                f"{one['ranks']}/{one['group_size']}",
                f"{one['size_bytes'] / 1e6:.2f}",
                str(one["calls"]),
                f"{one['last_rank']} ({one['last_share']:.0%})",
                _ms(one["seconds"]),
                f"{bound}{one['algbw_bytes_per_second'] / 1e9:.2f}",
                f"{bound}{one['busbw_bytes_per_second'] / 1e9:.2f}",
            ]
        )
    return "\n".join(["collectives, timed on the rank that arrived last", *_aligned(rows)])


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(map(str.rjust, row, widths)).rstrip() for row in rows]


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.2f}"
