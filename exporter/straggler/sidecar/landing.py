"""The page for people at ``/``: which ranks are seen, who is slow, how the sources are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from straggler import __version__

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

_COLUMNS = ("run", "rank", "node", "group", "state", "step", "step time", "own", "wait", "slowdown", "GPU", "SM active")
_NUMERIC = frozenset({"rank", "step", "step time", "own", "wait", "slowdown", "SM active"})


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
    head = "".join(f'<th class="n">{name}</th>' if name in _NUMERIC else f"<th>{name}</th>" for name in _COLUMNS)
    return "\n".join([f"<h2>Ranks</h2><table><tr>{head}</tr>", *map(_rank, ranks), "</table>"])


def _rank(rank: Mapping[str, Any]) -> str:
    kind = "slow" if "slow" in rank else "gone" if rank["state"] in ("crashed", "finished") else ""
    gpu = rank.get("gpu", {})
    cells = (
        rank["run"],
        rank["rank"],
        rank.get("node", ""),
        rank["peer_group"],
        rank.get("excluded_phase", rank["state"]),
        rank.get("step", ""),
        _milliseconds(rank.get("step_seconds")),
        _milliseconds(rank.get("own_seconds")) or rank.get("own_reason", ""),
        _milliseconds(rank.get("wait_seconds")),
        _times(rank.get("slowdown_ratio"), slow="slow" in rank),
        gpu.get("gpu", gpu.get("UUID", rank.get("unmatched_reason", ""))),
        f"{gpu['sm_active_ratio']:.0%}" if "sm_active_ratio" in gpu else "",
    )
    row = "".join(
        f'<td class="n">{escape(str(cell))}</td>' if name in _NUMERIC else f"<td>{escape(str(cell))}</td>"
        for name, cell in zip(_COLUMNS, cells, strict=True)
    )
    return f'<tr class="{kind}">{row}</tr>'


def _source(source: Mapping[str, Any]) -> str:
    blind = ", ".join(f"{reason} ({count})" for reason, count in source.get("blind", {}).items())
    cells = (source["source"], source["state"], blind)
    return "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>"


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:,.1f} ms"


def _times(ratio: float | None, *, slow: bool) -> str:
    return "" if ratio is None else f"{ratio:.2f}x{' slow' if slow else ''}"
