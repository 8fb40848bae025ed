"""What the demonstration shows: a live table on a terminal, plain lines elsewhere, and the alert as it arrives."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from straggler.cli.ranks_table import ranks_table
from straggler.simulate.demonstration import Plan, Report, who_is_hit
from straggler.simulate.outcome import named_cause
from straggler.simulate.webhook import Notice

_LINE_SECONDS = 4.0
_PICTURE_COLUMNS = 100
_SVG_FORMAT = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""Without the fonts that a viewer would fetch from elsewhere: whatever is monospaced there will do."""
_ANNOTATIONS = ("description", "where", "since", "impact", "cause", "next_step", "runbook_url")
"""What of an alert is shown below its summary, in this order."""
_STYLES = {"critical": "bold red", "warning": "bold yellow", "resolved": "green"}


class Screen:
    """Shows a run; an ``Audience`` of the demonstration.

    Args:
        console: where to.
        picture: an SVG file to write at the end: what was said, the table when the alert came, and the alert.
    """

    def __init__(self, plan: Plan, console: Console, picture: Path | None = None) -> None:
        self._plan = plan
        self._console = console
        self._picture = picture
        self._recorder = Console(record=True, file=io.StringIO(), width=_PICTURE_COLUMNS, force_terminal=True)
        self._ranks: Any = None
        self._live: Live | None = None
        self._next_line = 0.0

    def begin(self) -> None:
        """Say what will happen."""
        scenario = self._plan.scenario
        self.say(f"{scenario.ranks} ranks on this machine, no GPU needed; {self._promise()}")
        plan = self._plan
        if plan.rules:
            self.say(
                f"rules from {_short(plan.rules)}, evaluated every {plan.evaluation_seconds:g} s; "
                f"their times (for, windows) are divided by {plan.hurry:g}, nothing else is changed"
            )
        else:
            self.say(f"the sidecar judges by itself; its waiting times are divided by {plan.hurry:g}")

    def _promise(self) -> str:
        scenario = self._plan.scenario
        if scenario.healthy:
            return f"none becomes slow, so nothing may fire for {self._plan.duration_seconds:.0f} s"
        begins = (scenario.fault.begins_step - 1) * scenario.expected_step_seconds(0)
        when = "from the start" if scenario.fault.kind.from_start else f"after {begins:.0f} s"
        return f"{when} {who_is_hit(scenario)} {scenario.fault.kind.says(scenario.fault.factor)}"

    def end(self) -> None:
        """Let go of the terminal; the last table stays on it."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        """Print a line; above the table, if there is one."""
        self._show(Text(text))

    def _show(self, what: RenderableType) -> None:
        self._console.print(what)
        if self._picture:
            self._recorder.print(what)

    def look(self, seconds: float, ranks: Any) -> None:
        """Show the ranks as they are now."""
        self._ranks = ranks
        if self._console.is_terminal:
            table = Group(ranks_table(ranks), Text(f"{seconds:.0f} s", style="dim"))
            if self._live is None:
                self._live = Live(table, console=self._console, auto_refresh=False)
                self._live.start()
            self._live.update(table, refresh=True)
        elif seconds >= self._next_line:
            self._next_line = seconds + _LINE_SECONDS
            self._console.print(Text(f"{seconds:5.0f} s  {one_line(ranks)}"))

    def alert(self, notice: Notice, seconds_after: float | None) -> None:
        """Show an alert as the person on call would see it."""
        severity = notice.labels.get("severity", "")
        kind = "resolved" if notice.status == "resolved" else severity
        after = "" if seconds_after is None else f", {seconds_after:.1f} s after the onset"
        if self._picture and self._ranks is not None:
            self._recorder.print(ranks_table(self._ranks))
            self._ranks = None
        self._show(
            Panel(
                alert_body(notice),
                title=Text(f"{notice.name} · {kind}{after}", style=_STYLES.get(kind, "bold")),
                title_align="left",
                border_style=_STYLES.get(kind, ""),
                width=min(self._console.width, 110),
            )
        )

    def result(self, report: Report) -> None:
        """Show how it ended."""
        self.end()
        if report.logs:
            self.say(report.logs)
        if report.pace.slow_step_seconds is not None:
            self._show(figures(report))
        problem = report.outcome.problem
        self._show(
            Text(f"NOT AS IT SHOULD BE: {problem}", style="bold red")
            if problem
            else Text(_success(report), style="bold green")
        )
        if self._picture:
            self._picture.write_text(
                self._recorder.export_svg(title="straggler demo", code_format=_SVG_FORMAT, unique_id="demo"),
                encoding="utf-8",
            )


def make_screen(plan: Plan, *, json_mode: bool, picture: Path | None = None) -> Screen:
    """A screen on standard output; with ``json_mode`` on standard error, since the other is for the object."""
    console = Console(file=sys.stderr if json_mode else sys.stdout, highlight=False, soft_wrap=True)
    return Screen(plan, console, picture)


def one_line(document: Mapping[str, Any]) -> str:
    """The run in one line: the step, the median rank's own time, and the longest."""
    ranks = [rank for rank in document["ranks"] if "own_seconds" in rank]
    if not ranks:
        return "waiting for the first steps"
    worst = max(ranks, key=lambda rank: rank["own_seconds"])
    others = sorted(rank["own_seconds"] for rank in ranks if rank is not worst) or [worst["own_seconds"]]
    ratio = f", {worst['slowdown_ratio']:.2f}x" if "slowdown_ratio" in worst else ""
    verdict = f", {worst['slow']}" if "slow" in worst else ""
    return (
        f"step {_ms(worst.get('step_seconds'))}, own {_ms(others[len(others) // 2])}; "
        f"rank {worst['rank']} own {_ms(worst['own_seconds'])}{ratio}{verdict}"
    )


def alert_body(notice: Notice) -> RenderableType:
    """Summary, and below it what the rest of the annotations say."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for key in _ANNOTATIONS:
        if text := " ".join(notice.annotations.get(key, "").split()):
            grid.add_row(key.removesuffix("_url").replace("_", " "), Text(text))
    return Group(Text(" ".join(notice.annotations.get("summary", "").split()), style="bold"), grid)


def figures(report: Report) -> Table:
    """Measured and expected, side by side."""
    scenario, pace = report.plan.scenario, report.pace
    begins = scenario.fault.begins_step
    rank = scenario.fault.rank
    table = Table(box=None, pad_edge=False)
    for name in ("", "measured", "expected"):
        table.add_column(name, justify="right" if name else "left")
    efficiency = "-" if pace.efficiency is None else f"{pace.efficiency:.1%}"
    for row in (
        ("step, healthy", _ms(pace.healthy_step_seconds), _ms(scenario.expected_step_seconds(begins - 1))),
        ("step, slow", _ms(pace.slow_step_seconds), _ms(scenario.expected_step_seconds(begins))),
        ("efficiency left", efficiency, f"{scenario.expected_efficiency:.1%}"),
        (f"own time of rank {rank}, healthy", _ms(pace.healthy_own_seconds), _ms(scenario.work.own_seconds)),
        (
            f"own time of rank {rank}, slow",
            _ms(pace.slow_own_seconds),
            _ms(scenario.expected_work(rank, begins).own_seconds),
        ),
    ):
        table.add_row(*row)
    return table


def _success(report: Report) -> str:
    if report.seconds_to_alert is None:
        return f"nothing fired in {report.duration_seconds:.0f} s and {min(report.steps)} steps, as it should be"
    named = who_is_hit(report.plan.scenario)
    cause = named_cause(report.outcome.notice) if report.outcome.notice else ""
    return f"{named} named {report.seconds_to_alert:.1f} s after the onset{'; cause: ' if cause else ''}{cause}"


def _short(path: Path) -> Path:
    """As one would type it here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f} ms"
