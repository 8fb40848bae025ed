"""One rank of ``GET /api/v1/ranks`` as the cells of a table: the same in the terminal and on the landing page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from straggler.detect import wording
from straggler.detect.cause import UNKNOWN


class Column(NamedTuple):
    """One column."""

    title: str
    numeric: bool = False


COLUMNS: tuple[Column, ...] = (
    Column("run"),
    Column("rank", numeric=True),
    Column("node"),
    Column("group"),
    Column("state"),
    Column("step", numeric=True),
    Column("step time", numeric=True),
    Column("own", numeric=True),
    Column("wait", numeric=True),
    Column("slowdown", numeric=True),
    Column("GPU"),
    Column("SM active", numeric=True),
)


def cells(rank: Mapping[str, Any]) -> tuple[str, ...]:
    """One text for each of ``COLUMNS``; empty where the value is unknown."""
    gpu = rank.get("gpu", {})
    slowdown = _text(rank, "slowdown_ratio", wording.times)
    return (
        str(rank["run"]),
        str(rank["rank"]),
        str(rank.get("node", "")),
        str(rank["peer_group"]),
        str(rank.get("excluded_phase", rank["state"])),
        str(rank.get("step", "")),
        _text(rank, "step_seconds", wording.seconds),
        _text(rank, "own_seconds", wording.seconds) or ("" if is_gone(rank) else _why_no_own_time(rank)),
        _text(rank, "wait_seconds", wording.seconds),
        f"{slowdown} slow{_why_slow(rank)}" if "slow" in rank else slowdown,
        str(gpu.get("gpu", gpu.get("UUID", "" if is_gone(rank) else rank.get("unmatched_reason", "")))),
        _text(gpu, "sm_active_ratio", wording.percent),
    )


def is_slow(rank: Mapping[str, Any]) -> bool:
    """Whether the others wait for it."""
    return "slow" in rank


def is_gone(rank: Mapping[str, Any]) -> bool:
    """Whether its process has ended."""
    return rank["state"] in ("crashed", "finished")


def _why_slow(rank: Mapping[str, Any]) -> str:
    cause = rank.get("cause", UNKNOWN)
    return "" if cause == UNKNOWN else f", {cause}"


def _why_no_own_time(rank: Mapping[str, Any]) -> str:
    reason = rank.get("own_reason", "measured")
    return "" if reason == "measured" else str(reason)


def _text(values: Mapping[str, Any], key: str, write: Callable[[float], str]) -> str:
    return write(values[key]) if key in values else ""
