"""Numbers as on-call reads them: three digits that matter, and a unit."""

from __future__ import annotations

from collections.abc import Sequence


def seconds(value: float) -> str:
    """``39.0 ms``, ``1.25 s``, ``46.6 s``, ``310 us``; from two minutes on ``7.5 min``, from two hours on ``3.1 h``."""
    size = abs(value)
    if size >= 7200:
        return f"{value / 3600:.1f} h"
    if size >= 120:
        return f"{value / 60:.1f} min"
    if size >= 10:
        return f"{value:.1f} s"
    if size >= 1:
        return f"{value:.2f} s"
    if size >= 0.001 or size == 0:
        return f"{value * 1e3:.1f} ms"
    return f"{value * 1e6:.0f} us"


def gpu_hours(seconds: float) -> str:
    """GPU-seconds as ``5.1 GPU-hours``; under one hour with three digits, ``0.111 GPU-hours``."""
    hours = seconds / 3600
    return f"{hours:,.1f} GPU-hours" if hours >= 0.95 or hours == 0 else f"{hours:.3g} GPU-hours"


def percent(ratio: float) -> str:
    """``23 %``; under ten with one decimal, ``8.1 %``."""
    value = ratio * 100
    return f"{value:.0f} %" if abs(value) >= 9.95 else f"{value:.1f} %"


def times(ratio: float) -> str:
    """``1.50 x``."""
    return f"{ratio:.2f} x"


def ranks(numbers: Sequence[int], most: int = 8) -> str:
    """``rank 3``, ``ranks 3, 5``, ``ranks 0, 1, 2 and 61 more``.

    Args:
        numbers: at least one, any order.
        most: how many are named before the rest is only counted.
    """
    ordered = sorted(numbers)
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    named = ", ".join(str(number) for number in ordered[:most])
    rest = len(ordered) - most
    return f"ranks {named} and {rest} more" if rest > 0 else f"ranks {named}"


def count(number: int, noun: str) -> str:
    """``1 GPU``, ``7 GPUs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
