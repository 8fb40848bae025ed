"""``straggler inspect``: what a ring file says, also after its process or node has died; what traces and logs say."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from straggler.cli import inspect_log, inspect_trace
from straggler.errors import ConfigError, SourceAbsentError, SourceFailedError, WireError
from straggler.model.from_wire import totals_of
from straggler.model.identity import clean_text
from straggler.sources.nccl.snapshot import is_log, read_log
from straggler.sources.rings.discover import SUFFIX, scan
from straggler.sources.rings.snapshot import Snapshot, read_snapshot
from straggler.sources.trace.parse import Trace
from straggler.sources.trace.read import is_trace
from straggler.wire import layout
from straggler.wire.recent import summarize
from straggler.wire.records import StepRecord

_NS = 1e-9
_FLAGS = {
    layout.FLAG_PROFILED: "profiled",
    layout.FLAG_FAILED: "failed",
}
"""Those that say something about the step; the others say which totals are known."""

_STATES = {
    "running": "its process lives, by the lock",
    "no_goodbye": "the process was killed, or this is a copy of a living ring",
    "finished": "the process said goodbye",
    "exception": "the process ended by an uncaught exception",
    "hook_off": "the hook switched itself off; the log of the training says why",
    "unknown": "the live block cannot be read",
}
"""As far as a file can tell."""

_EPILOG = f"""\
--json prints {{"files": [...], "traces": [...], "collectives": {{...}}, "logs": [...],
"refused": [{{"file", "reason", "detail"}}]}}.
Each of files, which are rings, has
  file, state (running, no_goodbye, finished, exception, hook_off, unknown), locked (null: cannot be told),
  identity (null, or what the rank says of itself), pid, created_timestamp_seconds,
  last_sign_timestamp_seconds, arrivals, excluded_phase (checkpoint, eval or null),
  records (how many are good), spoilt_slots, problems [{{reason, detail, count}}],
  totals (since the start; null before the first step), recent (the window that verdicts compare, or null),
  steps [{{serial, step, end_timestamp_seconds, step_seconds, own_seconds, wait_seconds, phase_seconds, flags,
  own_reason, arrivals}}], oldest first. own_seconds and wait_seconds are null where they were not measured.
{inspect_trace.HELP}{inspect_log.HELP}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the flags."""
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="a ring file, a copy of one, or a directory of them; a trace of torch.profiler; a log with NCCL's lines",
    )
    parser.add_argument("-n", "--last", type=int, default=20, metavar="N", help="show the last N steps (default 20)")
    parser.add_argument("--json", action="store_true", help="print everything as JSON, see below")


def run(arguments: argparse.Namespace) -> int:
    """Print what the files say; reasons for refused ones go to standard error.

    Returns:
        0, or 1 if a file was refused.

    Raises:
        ConfigError: ``--last`` is not positive.
    """
    if arguments.last < 1:
        raise ConfigError("last", f"{arguments.last} is not a number of steps; write 1 or more")
    files = []
    traces: dict[str, Trace] = {}
    logs = []
    refused = []
    for path in (ring for given in arguments.files for ring in _rings_in(given)):
        name = clean_text(str(path), None)
        try:
            if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises where it may not look
                raise SourceFailedError("not_regular", f"a directory without rings (*{SUFFIX})")  # noqa: TRY301 - refused as the others
            if is_log(path):  # first: a line may begin with a bracket, as a trace does
                logs.append(inspect_log.describe_log(name, read_log(path)))
            elif is_trace(path):
                traces[name] = inspect_trace.read_trace(path)
            else:
                files.append(describe(name, read_snapshot(path), arguments.last))
        except (SourceFailedError, WireError) as error:
            refused.append({"file": name, "reason": error.reason, "detail": error.detail})
            print(f"straggler inspect: {name}: {error}", file=sys.stderr)
    described = [inspect_trace.describe_trace(name, trace, arguments.last) for name, trace in traces.items()]
    collectives = inspect_trace.describe_collectives(list(traces.values()))
    if arguments.json:
        document = {"files": files, "traces": described, "collectives": collectives, "logs": logs, "refused": refused}
        print(json.dumps(document, indent=2))
    else:
        parts = [*map(render, files), *map(inspect_trace.render_trace, described)]
        parts += [inspect_trace.render_collectives(collectives)] if len(traces) > 1 else []
        parts += map(inspect_log.render_log, logs)
        if parts:
            print("\n\n".join(parts))
    return 1 if refused else 0


def _rings_in(path: Path) -> Sequence[Path]:
    """The rings of a directory, oldest sign of life first: their names are random, so nobody knows which to ask for.

    As deep as the sidecar looks: on Kubernetes each pod has a directory of its own. Whatever is no directory with rings
    is given back, to be refused with its reason.
    """
    with suppress(SourceAbsentError, SourceFailedError):  # no directory, or one where this user may not look
        found = scan(path, lambda _: True).statuses
        written = {path / key.path: status.st_mtime for key, status in found.items() if status}
        return sorted(written, key=written.__getitem__) or [path]
    return [path]


def describe(name: str, snapshot: Snapshot, last: int) -> dict[str, Any]:
    """Everything that ``--json`` gives for one file.

    Args:
        name: of the file, printable.
        snapshot: what is good in it.
        last: how many steps.
    """
    live, identity, records = snapshot.live, snapshot.identity, snapshot.records
    newest = records[-1] if records else None
    phase = live.excluded_phase if live is not None else None
    recent = summarize(records)
    clock = identity.clock if identity is not None else "host"
    signs = [live.updated_realtime_ns if live else 0, newest.end_realtime_ns if newest else 0]
    totals = totals_of(newest, live, clock=clock) if newest is not None else None
    return {
        "file": name,
        "state": _state(snapshot),
        "locked": snapshot.locked,
        "identity": identity._asdict() if identity is not None else None,
        "pid": snapshot.preamble.pid,
        "created_timestamp_seconds": snapshot.preamble.created_realtime_ns * _NS,
        "last_sign_timestamp_seconds": max(signs) * _NS if any(signs) else None,
        "arrivals": live.arrivals if live is not None else None,
        "excluded_phase": layout.PHASES[phase] if phase is not None else None,
        "records": len(records),
        "spoilt_slots": snapshot.spoilt_slots,
        "problems": [
            {"reason": problem.reason, "detail": problem.detail, "count": problem.count}
            for problem in snapshot.problems
        ],
        "totals": {key: getattr(totals, key) for key in totals.__slots__} if totals is not None else None,
        "recent": recent._asdict() if recent is not None else None,
        "steps": [_step(record) for record in records[-last:]],
    }


def _state(snapshot: Snapshot) -> str:
    if snapshot.live is None:
        return "running" if snapshot.locked else "unknown"
    if snapshot.live.status == layout.STATUS_RUNNING:
        return "running" if snapshot.locked else "no_goodbye"
    ends = {
        layout.STATUS_FINISHED: "finished",
        layout.STATUS_EXCEPTION: "exception",
        layout.STATUS_OFF: "hook_off",
    }
    return ends[snapshot.live.status]


def _step(record: StepRecord) -> dict[str, Any]:
    own_ns = record.own_ns
    return {
        "serial": record.serial,
        "step": record.step,
        "end_timestamp_seconds": record.end_realtime_ns * _NS,
        "step_seconds": record.wall_ns * _NS,
        "own_seconds": None if own_ns is None else own_ns * _NS,
        "wait_seconds": None if own_ns is None else record.wait_ns * _NS,
        "phase_seconds": {name: ns * _NS for name, ns in zip(layout.PHASES, record.phase_ns, strict=True)},
        "flags": [name for flag, name in _FLAGS.items() if record.flags & flag],
        "own_reason": layout.OWN_REASONS[record.own_reason],
        "arrivals": record.arrivals,
    }


def render(file: Mapping[str, Any]) -> str:
    """One file as text: who, how, and a table of its last steps.

    Args:
        file: what ``describe`` gave.
    """
    lines = [file["file"], f"  state     {file['state'].replace('_', ' ')}: {_STATES[file['state']]}"]
    if file["identity"] is not None:
        lines.append("  rank      " + _identity(file["identity"]))
    lines.append(f"  process   pid {file['pid']}, began {_time(file['created_timestamp_seconds'])}")
    if file["last_sign_timestamp_seconds"] is not None:
        where = f", in {file['excluded_phase']}" if file["excluded_phase"] else ""
        arrivals = "" if file["arrivals"] is None else f", {file['arrivals']} arrivals"
        lines.append(f"  last sign {_time(file['last_sign_timestamp_seconds'])}{arrivals}{where}")
    if file["totals"] is not None:
        lines.append(f"  steps     {file['totals']['steps']}, {file['records']} of them in the file")
    if file["recent"] is not None:
        lines.append(f"  recent    {_recent(file['recent'])}")
    lines += [f"  problem   {problem['reason']}: {problem['detail']}" for problem in file["problems"]]
    if not file["steps"]:
        return "\n".join([*lines, "  no steps"])
    return "\n".join([*lines, "", *_table(file["steps"])])


def _identity(identity: Mapping[str, Any]) -> str:
    """What is known; not why own time is absent, which each step says for itself."""
    known = ((key, value) for key, value in identity.items() if value not in (None, "") and key != "own_reason")
    return "  ".join(f"{key} {value}" for key, value in known)


def _recent(recent: Mapping[str, Any]) -> str:
    text = f"{recent['steps']} steps: mean step {_ms(recent['step_mean_seconds'])} ms"
    if recent["own_mean_seconds"] is None:
        return f"{text}, own time not measured"
    own = f"own {_ms(recent['own_mean_seconds'])} (median {_ms(recent['own_median_seconds'])})"
    return f"{text}, {own}, wait {_ms(recent['wait_mean_seconds'])} (least {_ms(recent['wait_min_seconds'])})"


def _table(steps: Sequence[Mapping[str, Any]]) -> list[str]:
    """Times in milliseconds; phases that are zero in all these steps have no column."""
    phases = [name for name in layout.PHASES if any(step["phase_seconds"][name] for step in steps)]
    rows = [["step", "end (UTC)", "ms", "own", *(phase for phase in phases), "remarks"]]
    for step in steps:
        remarks = [*step["flags"], *([] if step["own_reason"] == "measured" else [step["own_reason"]])]
        rows.append(
            [
                str(step["step"]),
                _time(step["end_timestamp_seconds"]),
                _ms(step["step_seconds"]),
                _ms(step["own_seconds"]),
                *(_ms(step["phase_seconds"][phase]) for phase in phases),
                ", ".join(remarks),
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(map(str.rjust, row, widths)).rstrip() for row in rows]


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.2f}"


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (OverflowError, ValueError, OSError):
        return f"{seconds:.3f}"
