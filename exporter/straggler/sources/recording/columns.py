"""Which column of a file is which of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from straggler.errors import ConfigError
from straggler.wire import layout

PHASE_COLUMNS = tuple(name for name in layout.PHASES if name != "wait")
COLUMNS: dict[str, str] = {
    "step": "number of the step; an integer",
    "rank": "global rank; an integer",
    "wall": "wall time of the step",
    "own": "time of the step not blocked on peers",
    "wait": "time of the step blocked on peers; without own, own = wall - wait - checkpoint - eval",
    "peer_group": "the ranks that do the same work, e.g. the pipeline stage",
    "node": "host of the rank",
    "time": "end of the step; seconds since the epoch, or ISO 8601",
    **{name: f"time of the step in {name}" for name in PHASE_COLUMNS},
}
"""All columns that are understood, with what they hold. Durations are in seconds unless a unit is given."""

_REQUIRED = ("step", "rank", "wall")
_IN_CAPITALS_TOO = (*_REQUIRED, "own", "wait", "peer_group", "node")
"""What a table of steps calls so means it. ``Time``, ``Data`` or ``Other`` may be anything: those are taken as they are
spelt here only."""


def parse_mapping(text: str) -> dict[str, str]:
    """Read ``own=compute_s,peer_group=stage``: our name, then the file's.

    Raises:
        ConfigError: an entry is no pair, or its left side is none of our names; the text names the nearest.
    """
    mapping: dict[str, str] = {}
    for entry in text.split(","):
        ours, equals, theirs = (part.strip() for part in entry.partition("="))
        if not equals or not theirs:
            raise ConfigError("columns", f"{entry.strip()!r} is no pair: write OURS=THEIRS, e.g. own=compute_seconds")
        if ours not in COLUMNS:
            raise ConfigError(
                "columns", f"{ours!r} is none of our columns{_nearest(ours, list(COLUMNS))}; they are {_list(COLUMNS)}"
            )
        if ours in mapping:
            raise ConfigError("columns", f"{ours} is given twice")
        mapping[ours] = theirs
    return mapping


def resolve(header: Sequence[str], mapping: Mapping[str, str]) -> dict[str, int]:
    """Find our columns in a header.

    Args:
        header: the file's column names.
        mapping: our name to theirs; what is not in it is looked for under our own name.

    Returns:
        Position of each of our columns that the file has.

    Raises:
        ConfigError: a column that was named or is needed is not there, or its name stands twice.
    """
    exact = [name.strip() for name in header]
    lower = [name.lower() for name in exact]
    found: dict[str, int] = {}
    for ours in COLUMNS:
        theirs = mapping.get(ours, ours)
        names = lower if ours in _IN_CAPITALS_TOO and ours not in mapping and ours not in exact else exact
        if theirs in names:
            if names.count(theirs) > 1:
                raise ConfigError(ours, f"the file has {names.count(theirs)} columns named {theirs}")
            found[ours] = names.index(theirs)
        elif ours in mapping:
            raise ConfigError(
                "columns", f"{ours}={theirs}: the file has no column {theirs!r}{_nearest(theirs, exact)}; {_has(exact)}"
            )
    missing = [ours for ours in _REQUIRED if ours not in found]
    if not missing and "own" not in found and "wait" not in found:
        missing = ["own"]
    if missing:
        key = missing[0]
        instead = " (or wait)" if key == "own" else ""
        raise ConfigError(
            key,
            f"the file has no column {key}{instead}{_nearest(key, exact)}; name yours with --columns {key}=NAME; "
            f"{_has(exact)}",
        )
    return found


def _has(names: Sequence[str]) -> str:
    return f"it has {_list(names)}" if any(names) else "it has none"


def _list(names: Sequence[str] | Mapping[str, str], most: int = 30) -> str:
    shown = list(names)[:most]
    return ", ".join(name[:40] or "''" for name in shown) + (", …" if len(names) > most else "")


def _nearest(name: str, known: Sequence[str]) -> str:
    by_lower = {candidate.lower(): candidate for candidate in known if candidate}
    for close in get_close_matches(name.lower(), by_lower, n=1):
        return f" (the nearest is {by_lower[close]!r})"
    for lower, candidate in by_lower.items():
        if len(name) > 2 and name.lower() in lower:
            return f" (the nearest is {candidate!r})"
    return ""
