"""The page for people at ``/``: which ranks are seen, who is slow, how the sources are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from straggler import __version__
from straggler.sidecar.rank_row import COLUMNS, cells, is_gone, is_slow

CONTENT_TYPE = "text/html; charset=utf-8"
POLICY = (
    "Content-Security-Policy",
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
)
"""No script, nothing from elsewhere: a run may have any name."""

_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Straggler Exporter</title>
<meta name="viewport" content="width=device-width"><meta http-equiv="refresh" content="10">
<style>
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em }
table { border-collapse: collapse; width: 100% }
th, td { padding: .25em .8em .25em 0; text-align: left; border-bottom: 1px solid #8884; white-space: nowrap }
.n { text-align: right; font-variant-numeric: tabular-nums }
.slow td { background: #e002; font-weight: 600 }
.gone td { opacity: .6 }
</style></head><body>
"""

_LINKS = """<p><a href="/metrics">Metrics</a> · <a href="/api/v1/ranks">Ranks as JSON</a> ·
<a href="/-/ready">Ready</a> · <a href="/-/healthy">Healthy</a></p>"""


def render_landing(document: Mapping[str, Any], hint: str) -> str:
    """Write the page.

    Args:
        document: what ``GET /api/v1/ranks`` says.
        hint: what to look at if there is no rank.
    """
    ranks = document["ranks"]
    parts = [
        _HEAD,
        f"<h1>Straggler Exporter {escape(__version__)}</h1>",
        _LINKS,
        _ranks(ranks) if ranks else f"<p>No rank is seen. {escape(hint)}</p>",
        "<h2>Sources</h2><table><tr><th>source</th><th>state</th><th>cannot see</th></tr>",
        *map(_source, document["sources"]),
        "</table></body></html>\n",
    ]
    return "\n".join(parts)


def _ranks(ranks: Sequence[Mapping[str, Any]]) -> str:
    head = "".join(f'<th class="n">{title}</th>' if numeric else f"<th>{title}</th>" for title, numeric in COLUMNS)
    return "\n".join([f"<h2>Ranks</h2><table><tr>{head}</tr>", *map(_rank, ranks), "</table>"])


def _rank(rank: Mapping[str, Any]) -> str:
    kind = "slow" if is_slow(rank) else "gone" if is_gone(rank) else ""
    row = "".join(
        f'<td class="n">{escape(text)}</td>' if column.numeric else f"<td>{escape(text)}</td>"
        for column, text in zip(COLUMNS, cells(rank), strict=True)
    )
    return f'<tr class="{kind}">{row}</tr>'


def _source(source: Mapping[str, Any]) -> str:
    blind = ", ".join(f"{reason} ({count})" for reason, count in source.get("blind", {}).items())
    row = (source["source"], source["state"], blind)
    return "<tr>" + "".join(f"<td>{escape(str(text))}</td>" for text in row) + "</tr>"
