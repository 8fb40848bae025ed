"""What a replay found, for people and for machines. The JSON's names are public."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from straggler.detect import wording
from straggler.detect.policy import DEFAULT
from straggler.detect.replay import Finding, Replay
from straggler.model.reading import Problem


def as_json(result: Replay, run: str, problems: Sequence[Problem]) -> dict[str, Any]:
    """Numbers as numbers, unknown as null; ``rank`` is null where a verdict is about no single rank."""
    line = result.line
    return {
        "run": run,
        "verdicts": [_finding(finding, result) for finding in result.findings],
        "pending": [_finding(finding, result) for finding in result.pending],
        "lost_share": _rounded(result.lost_share),
        "lost_share_is_upper_bound": result.is_upper_bound,
        "lost_gpu_seconds": _rounded(result.lost_gpu_seconds),
        "gpu_seconds": _rounded(result.gpu_seconds),
        "ranks": len(result.ranks),
        "steps": len(line.steps),
        "first_step": line.steps[0],
        "last_step": line.steps[-1],
        "enough_steps": result.enough_steps,
        "has_peers": result.has_peers,
        "missing_rows": result.missing_rows,
        "refused": [
            {"reason": problem.reason, "count": problem.count, "detail": problem.detail} for problem in problems
        ],
    }


def as_text(result: Replay, run: str) -> str:
    """A screenful."""
    line = result.line
    size = f"{wording.count(len(result.ranks), 'rank')}, {wording.count(len(line.steps), 'step')}"
    lines = [f"{run}: {size} ({line.steps[0]} to {line.steps[-1]}), {_span(result)}"]
    if result.missing_rows:
        lines.append(
            f"{wording.count(result.missing_rows, 'row')} missing between the first and the last of their ranks"
        )
    if not result.enough_steps:
        lines.append(
            f"no verdict is possible: no rank has {DEFAULT.min_steps} steps. Over fewer, uneven batches alone make a "
            "rank up to 28 % slower than its peers"
        )
    if not result.has_peers:
        lines.append("no straggler can be found: no rank has a peer in its group to be compared with")
    if result.lost_share is None:
        lines.append("no verdict is possible: own time is in none of the rows")
    else:
        bound = ", an upper bound since pipeline bubbles count as waiting" if result.is_upper_bound else ""
        lines.append(
            f"lost to waiting for each other: {wording.percent(result.lost_share)} of the ranks' time "
            f"({wording.gpu_hours(result.lost_gpu_seconds or 0.0)}{bound})"
        )
    for finding in result.findings:
        lines += ["", *_paragraph(finding, result)]
    for finding in result.pending:
        lines += ["", "pending, not long enough for an alert:", *_paragraph(finding, result)]
    if not result.findings and result.enough_steps and result.has_peers and result.lost_share is not None:
        lines += ["", "nobody is slow, and nothing else is wrong"]
    return "\n".join(lines)


def _finding(finding: Finding, result: Replay) -> dict[str, Any]:
    verdict, line = finding.verdict, result.line
    return {
        "verdict": verdict.verdict,
        "severity": verdict.severity,
        "rank": verdict.rank,
        "node": verdict.node or None,
        "peer_group": verdict.peer_group,
        "slowdown_ratio": _rounded(verdict.slowdown_ratio),
        "since_step": finding.since_step,
        "until_step": finding.until_step,
        "since": _date(result, finding.since_step) if line.dated else None,
        "confirmed": finding.confirmed,
        "lost_share": _rounded(verdict.lost_share),
        "evidence": verdict.evidence,
        "impact": verdict.impact,
    }


def _paragraph(finding: Finding, result: Replay) -> list[str]:
    verdict = finding.verdict
    subject = verdict.verdict
    if verdict.rank is not None:
        subject += f": rank {verdict.rank}"
    if verdict.node:
        subject += f" on {verdict.node}" if verdict.rank is not None else f": node {verdict.node}"
    if verdict.peer_group is not None and (result.is_upper_bound or verdict.rank is None):
        subject += (
            f", peer group {verdict.peer_group}" if verdict.rank is not None else f": peer group {verdict.peer_group}"
        )
    if verdict.slowdown_ratio is not None:
        subject += f", {wording.times(verdict.slowdown_ratio)}"
    first = " (the first one recorded)" if finding.since_step == result.line.steps[0] else ""
    until = "still at the end" if finding.until_step is None else f"until step {finding.until_step}"
    date = f", {_date(result, finding.since_step)}" if result.line.dated else ""
    lines = [
        f"{verdict.severity.upper():<8} {subject}",
        f"         since step {finding.since_step}{first}{date}, {until}",
        f"         {verdict.evidence}",
    ]
    if verdict.impact:
        lines.append(f"         {verdict.impact}")
    if not finding.confirmed and finding in result.findings:
        lines.append("         the recording is shorter than a live alert waits, so this is not confirmed")
    return lines


def _span(result: Replay) -> str:
    ends = result.line.ends
    if result.line.dated:
        return f"{wording.seconds(ends[-1] - ends[0])} from {_date(result, result.line.steps[0])}"
    return f"{wording.seconds(ends[-1])} of steps"


def _date(result: Replay, step: int) -> str:
    end = result.line.ends[result.line.steps.index(step)]
    return datetime.fromtimestamp(end, timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


def _rounded(value: float | None) -> float | None:
    """Six digits: what is behind them is the machine's and not the recording's."""
    return None if value is None else float(f"{value:.6g}")
