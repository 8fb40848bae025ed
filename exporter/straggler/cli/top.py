"""``straggler top``: the ranks of a sidecar, live."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from straggler.cli.access import access_of, add_access_arguments, server_url
from straggler.cli.ranks_table import ranks_table
from straggler.errors import ConfigError, SourceFailedError
from straggler.sources.dcgm.fetch import Access, read_page

DEFAULT_URL = "http://127.0.0.1:10110"
_TIMEOUT_SECONDS = 10.0
_MOST_BYTES = 1 << 26

_FIXES = {
    "refused": "start one with `straggler serve`, or name another",
    "unreachable": "is the name right, and the network there?",
    "tls": "give its CA with --ca-file, or do not check its certificate with --insecure; it may want a certificate of "
    "yours too, --client-certificate-file",
    "http_status": "is it the sidecar's address, and if it is encrypted, does it begin with https:// ?",
}
"""By the reasons of ``fetch``: what to do."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the flags."""
    parser.add_argument(
        "url", nargs="?", default=DEFAULT_URL, metavar="URL", help=f"the sidecar (default {DEFAULT_URL})"
    )
    parser.add_argument("--once", action="store_true", help="print the table once; also where output is no terminal")
    parser.add_argument("--json", action="store_true", help="print what the sidecar says, as JSON, once")
    parser.add_argument("--interval", type=float, default=1.0, metavar="S", help="seconds between looks (default 1)")
    add_access_arguments(parser, "a sidecar")


def run(arguments: argparse.Namespace) -> int:
    """Show the ranks until Ctrl-C.

    Raises:
        ConfigError: the URL, the interval or a file cannot be used.
        SourceFailedError: no sidecar answers there.
    """
    if not 0.1 <= arguments.interval <= 3600:
        raise ConfigError("interval", f"{arguments.interval} s is not in 0.1 … 3600")
    url = ranks_url(arguments.url)
    look = partial(read_ranks, url, access_of(arguments, max_body_bytes=_MOST_BYTES))
    document = look()
    console = Console()
    if arguments.json:
        print(json.dumps(document, indent=2))
    elif arguments.once or not console.is_terminal:
        console.print(render(document))
    else:
        _watch(look, document, arguments.interval, console)
    return 0


def _watch(
    look: Callable[[], Mapping[str, Any]], document: Mapping[str, Any], interval_seconds: float, console: Console
) -> None:
    trouble = ""
    with Live(render(document), console=console, auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(interval_seconds)
            try:
                document = look()
                trouble = ""
            except SourceFailedError as error:
                trouble = error.detail  # the last table stays, with what is wrong below it
            live.update(render(document, trouble), refresh=True)


def render(document: Mapping[str, Any], trouble: str = "") -> RenderableType:
    """The table, and below it what is wrong with the sources or the connection."""
    lines = [Text(f"source {name}: {state}", style="yellow") for name, state in _unwell(document)]
    if trouble:
        lines.append(
            Text(f"{trouble}; the table is {time.time() - document['timestamp_seconds']:.0f} s old", style="red")
        )
    return Group(ranks_table(document), *lines)


def _unwell(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (source["source"], ", ".join([source["state"], *source.get("blind", {})]))
        for source in document["sources"]
        if source["state"] in ("failed", "stale") or source.get("blind")
    ]


def ranks_url(text: str) -> str:
    """Turn ``HOST:PORT`` or a URL into the address of the ranks.

    Raises:
        ConfigError: it is neither, or has a password in it.
    """
    return server_url(text if "://" in text else f"http://{text}", "url", DEFAULT_URL) + "/api/v1/ranks"


def read_ranks(url: str, access: Access) -> dict[str, Any]:
    """Ask the sidecar.

    Raises:
        SourceFailedError: ``not_a_sidecar``, or a reason of ``fetch``.
    """
    try:
        body = read_page(url, access, _TIMEOUT_SECONDS)
    except SourceFailedError as error:
        nobody = "no sidecar answers at " if error.reason in ("refused", "unreachable") else ""
        fix = f"; {_FIXES[error.reason]}" if error.reason in _FIXES else ""
        raise SourceFailedError(error.reason, f"{nobody}{error.detail}{fix}") from error
    try:
        document = json.loads(body.text) if body.complete else None
    except ValueError:
        document = None
    if not isinstance(document, dict) or not {"ranks", "sources", "timestamp_seconds"} <= document.keys():
        raise SourceFailedError("not_a_sidecar", f"what answers at {url} is no Straggler sidecar")
    return document
