"""The ranks as a table in the terminal; ``top`` and the demo show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from straggler.sidecar.rank_row import COLUMNS, cells, is_gone, is_slow

_ALWAYS = frozenset({"rank", "state", "step", "step time", "own", "wait", "slowdown"})
_IF_DIFFERENT = frozenset({"run", "node", "group"})
"""Not worth a column where all ranks say the same; the title says it."""
_MAY_BE_CUT = frozenset({"run", "node", "group", "GPU"})
_MAY_BE_LEFT_OUT = frozenset({"GPU", "SM active"})
MOST_IN_ORDER = 16
"""More rows than this may not fit on the screen: then slow ranks come first."""


class _FittingTable(Table):
    """In a narrow terminal leaves one blank between columns, then the GPU's columns: empty ones would say "unknown"."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.collapse_padding = self._least_width(2) > options.max_width
        while self.columns[-1].header in _MAY_BE_LEFT_OUT and self._least_width(1) > options.max_width:
            self.columns.pop()
        yield from super().__rich_console__(console, options)

    def _least_width(self, gap: int) -> int:
        """With so many blanks between columns, and names cut to the width of their title."""
        widths = [column.min_width or len(str(column.header)) for column in self.columns]
        return sum(widths) + gap * (len(widths) - 1)


def ranks_table(document: Mapping[str, Any]) -> Table:
    """Make the table.

    Args:
        document: what ``GET /api/v1/ranks`` says.
    """
    ranks: Sequence[Mapping[str, Any]] = document["ranks"]
    if len(ranks) > MOST_IN_ORDER:
        ranks = sorted(ranks, key=lambda rank: not is_slow(rank))
    rows = [cells(rank) for rank in ranks]
    shown = [index for index, column in enumerate(COLUMNS) if _is_worth_showing(column.title, [r[index] for r in rows])]
    table = _FittingTable(title=_title(ranks), title_justify="left", title_style="bold", pad_edge=False, box=None)
    for index in shown:
        column = COLUMNS[index]
        # A narrow terminal cuts names, of which a part still tells something, and no number: 1… may be rank 1 or 127.
        table.add_column(
            column.title,
            justify="right" if column.numeric else "left",
            no_wrap=True,
            min_width=None if column.title in _MAY_BE_CUT else max(map(len, (column.title, *(r[index] for r in rows)))),
        )
    for rank, row in zip(ranks, rows, strict=True):
        style = "bold red" if is_slow(rank) else "yellow" if rank["state"] == "hung" else "dim" if is_gone(rank) else ""
        table.add_row(*(Text(row[index]) for index in shown), style=style)  # Text: a run may be called [red]
    return table


def _is_worth_showing(title: str, column: Sequence[str]) -> bool:
    if title in _ALWAYS:
        return True
    return len(set(column)) > 1 if title in _IF_DIFFERENT else any(column)


def _title(ranks: Sequence[Mapping[str, Any]]) -> Text:
    runs = {str(rank["run"]) for rank in ranks}
    nodes = {str(rank["node"]) for rank in ranks if "node" in rank}
    if not ranks:
        return Text("no ranks")
    run = f"run {next(iter(runs))}" if len(runs) == 1 else f"{len(runs)} runs"
    node = f" on {next(iter(nodes))}" if len(nodes) == 1 else ""
    slow = [str(rank["rank"]) for rank in ranks if is_slow(rank)]
    count = "1 rank" if len(ranks) == 1 else f"{len(ranks)} ranks"
    return Text(f"{run}{node}, {count}" + (f", slow: {', '.join(slow)}" if slow else ""))
