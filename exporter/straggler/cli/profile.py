"""``straggler profile``: a few steps under a profiler, on the slow rank and on one of its peers."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from straggler.cli.profile_mail import Mail, collect
from straggler.errors import ConfigError, SourceFailedError
from straggler.model.identity import clean_text
from straggler.sources.rings.discover import default_ring_dir
from straggler.sources.rings.living import LivingRing, read_living
from straggler.wire.profile import MAX_STEPS, RUNNING, Answer, Request
from straggler.wire.recent import summarize

_EPILOG = f"""\
For ranks of a PyTorch training that is measured from outside (`straggler run`, straggler.torch.instrument). Run it on
their node as root or as the owner of the ring directory (the sidecar's user), or in a directory of the ranks' user as
that user: nobody else is obeyed.
Each rank runs torch.profiler for N steps (at most {MAX_STEPS}), beginning with the same step, and writes a trace beside
its ring (or into its STRAGGLER_TRACE_DIR); meanwhile its steps are slower, and left out of the comparison of ranks. At
most one profile a minute. Under nsys (--capture-range=cudaProfilerApi) nsys' own capture is switched on instead.
Look at the traces with `straggler inspect`.

Exit code 0: all ranks asked have a trace (or nsys has); 1: one has none, and it is said why.
--json prints {{"run", "ranks": [{{"rank", "peer", "state": done|refused|silent, "reason", "detail", "trace",
"first_step", "steps", "trace_bytes"}}]}}. reason: too_soon, profiler_busy, no_space, cannot_write, no_gpu, failed,
cuda_graph, cannot_read (for --output); of silent ranks no_answer. trace is a path, with STRAGGLER_TRACE_DIR as the
rank sees it; empty where nsys has the trace.
"""
_NOTICE_SECONDS = 3.0
"""Until all ranks asked have seen the request: they look once a second."""
_POLL_SECONDS = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the flags."""
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("run_name", metavar="RUN", help="the training run, as /metrics names it")
    parser.add_argument("--rank", type=int, required=True, metavar="R", help="the rank in question")
    peers = parser.add_mutually_exclusive_group()
    peers.add_argument(
        "--peer", type=int, metavar="P", help="whom to compare with (default: the median of its group on this node)"
    )
    peers.add_argument("--no-peer", action="store_true", help="that rank alone")
    parser.add_argument("--steps", type=int, default=3, metavar="N", help="how many steps (default 3)")
    parser.add_argument(
        "--ring-dir", type=Path, metavar="DIR", help="where ranks write (default: STRAGGLER_DIR, else as the sidecar's)"
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="copy the traces there")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="S", help="how long to wait (default 120)")
    parser.add_argument("--json", action="store_true", help="print JSON, see below")


@dataclass(slots=True, kw_only=True)
class Asked:
    """One rank that was asked."""

    ring: LivingRing
    mail: Mail
    peer: bool
    answer: Answer | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is no last word yet."""
        return self.answer is None or self.answer.state == RUNNING


def run(arguments: argparse.Namespace) -> int:
    """Ask, wait, and say what came of it.

    Raises:
        ConfigError: a flag cannot be used.
        SourceAbsentError: there is no ring directory.
        SourceFailedError: the rank is not on this node, cannot be profiled, or may not be asked.
    """
    if not 1 <= arguments.steps <= MAX_STEPS:
        raise ConfigError("steps", f"{arguments.steps} is not in 1 … {MAX_STEPS}")
    if not 1 <= arguments.timeout <= 3600:
        raise ConfigError("timeout", f"{arguments.timeout} s is not in 1 … 3600")
    is_directory = arguments.output is None or os.path.isdir(arguments.output)  # noqa: PTH112 - Path.is_dir raises where it may not look
    if not is_directory:
        raise ConfigError("output", f"{arguments.output} is no directory")
    root = arguments.ring_dir or _default_ring_dir()
    rings = [ring for ring in read_living(root) if ring.identity.run == arguments.run_name]
    target = _ring_of(arguments.rank, rings, arguments.run_name, root)
    peer = None if arguments.no_peer else choose_peer(target, rings, arguments.peer, root)
    chosen = [target] if peer is None else [target, peer]
    now_ns = time.time_ns()
    request = Request(
        os.urandom(8).hex(),
        arguments.steps,
        first_common_step(chosen),
        now_ns + round(arguments.timeout * 1e9),
    )
    asked = [Asked(ring=ring, mail=Mail(ring), peer=ring is not target) for ring in chosen]
    try:
        for one in asked:
            one.mail.send(request)
        _wait(asked, request, arguments.timeout)
    finally:
        for one in asked:
            one.mail.take_back()
    results = [_result(one, arguments.output) for one in asked]
    if arguments.json:
        print(json.dumps({"run": clean_text(arguments.run_name, None), "ranks": results}, indent=2))
    else:
        print(_render(results, alone=peer is None and not arguments.no_peer))
    return 0 if all(result["state"] == "done" for result in results) else 1


def _default_ring_dir() -> Path:
    named = os.environ.get("STRAGGLER_DIR")
    return Path(named) if named else default_ring_dir()


def _ring_of(rank: int, rings: Sequence[LivingRing], run_name: str, root: Path) -> LivingRing:
    found = [ring for ring in rings if ring.identity.rank == rank]
    if len(found) > 1:
        raise SourceFailedError("ambiguous", f"{len(found)} living processes say that they are rank {rank}")
    if not found:
        here = ", ".join(str(ring.identity.rank) for ring in sorted(rings, key=lambda ring: ring.identity.rank))
        known = f"its ranks here: {here}" if here else "no rank of it is here"
        raise SourceFailedError(
            "not_here", f"rank {rank} of {clean_text(run_name, None)} has no living ring in {root} ({known})"
        )
    if not found[0].identity.framework.startswith("torch"):
        raise SourceFailedError(
            "no_profiler",
            f"rank {rank} marks its steps by hand; only `straggler run` and instrument() bring a profiler",
        )
    return found[0]


def choose_peer(target: LivingRing, rings: Sequence[LivingRing], given: int | None, root: Path) -> LivingRing | None:
    """Whom to compare with: the given rank, else the one whose own time is nearest the median of the group's others.

    Args:
        target: the rank in question.
        rings: of its run, on this node.
        given: by the user.
        root: the ring directory, for the words.

    Returns:
        ``None`` if no other rank of the group is here.

    Raises:
        SourceFailedError: the given one is not here.
    """
    if given is not None:
        if given == target.identity.rank:
            raise ConfigError("peer", f"{given} is the rank itself; name another one or say --no-peer")
        return _ring_of(given, rings, target.identity.run, root)
    peers = [
        ring
        for ring in rings
        if ring.identity.peer_group == target.identity.peer_group
        and ring.identity.rank != target.identity.rank
        and ring.identity.framework.startswith("torch")
    ]
    own = {ring.path: recent.own_mean_seconds for ring in peers if (recent := summarize(ring.snapshot.records))}
    known = [seconds for seconds in own.values() if seconds is not None]
    middle = median(known) if known else 0.0

    def distance(ring: LivingRing) -> tuple[bool, float, int]:
        seconds = own.get(ring.path)
        return seconds is None, abs((seconds or 0.0) - middle), ring.identity.rank

    return min(peers, key=distance, default=None)


def first_common_step(rings: Sequence[LivingRing]) -> int:
    """The step at which all of them will have seen the request; 0 (any) if one has made none yet."""
    last = [ring.snapshot.records[-1].step if ring.snapshot.records else None for ring in rings]
    means = [recent.step_mean_seconds for ring in rings if (recent := summarize(ring.snapshot.records))]
    numbers = [number for number in last if number is not None]
    if len(numbers) < len(last) or not means:
        return 0
    return max(numbers) + 2 + int(_NOTICE_SECONDS / max(min(means), 1e-4))


def _wait(asked: Sequence[Asked], request: Request, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    while any(one.is_open for one in asked) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        for one in asked:
            if one.is_open:
                one.answer = one.mail.answer(request.id) or one.answer


def _result(one: Asked, output: Path | None) -> dict[str, Any]:
    result: dict[str, Any] = {
        "rank": one.ring.identity.rank,
        "peer": one.peer,
        "state": "silent",
        "reason": "no_answer",
        "detail": "it made no step in that time, or cannot see or believe the request",
        "trace": "",
        "first_step": 0,
        "steps": 0,
        "trace_bytes": 0,
    }
    answer = one.answer
    if answer is None:
        return result
    if one.is_open:
        return {**result, "detail": "it began and has not ended: its steps are long; wait longer (--timeout)"}
    told = {**answer._asdict(), "detail": clean_text(answer.detail, None), "trace": ""}
    del told["id"]
    if answer.trace:
        try:
            told["trace"] = clean_text(str(collect(one.ring, answer, output)), None)
        except SourceFailedError as error:
            told.update(state="refused", reason="cannot_read", detail=error.detail)
    return {**result, **told}


def _render(results: Sequence[dict[str, Any]], *, alone: bool) -> str:
    lines = []
    for result in results:
        who = f"rank {result['rank']}{' (peer)' if result['peer'] else ''}"
        if result["state"] != "done":
            lines.append(f"{who}: no profile: {result['reason']}: {result['detail']}")
        elif result["trace"]:
            steps = f"{result['steps']} steps from step {result['first_step']}"
            lines.append(f"{who}: {steps}, {result['trace_bytes'] / 1e6:.1f} MB: {result['trace']}")
        else:
            lines.append(f"{who}: {result['steps']} steps from step {result['first_step']}, in nsys' report")
    if alone:
        lines.append("no other rank of its group is on this node to compare with")
    traces = [result["trace"] for result in results if result["trace"]]
    if traces:
        lines.append(f"look at it with: straggler inspect {' '.join(traces)}")
    return "\n".join(lines)
