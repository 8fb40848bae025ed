"""The kernel's text files of a port, as facts. Pure.

Source: Linux, Documentation/ABI/stable/sysfs-class-infiniband.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from straggler.errors import ParseError

_BYTES_PER_GIGABIT: Final = 1e9 / 8
_ACTIVE: Final = 4
"""Not 5, ``ACTIVE_DEFER``: such a port has lost its link and waits for it to come back."""
_MOST: Final = (1 << 64) - 1

# N/A (no PMA)                      (kernels before 4.5, for adapters that answer no management datagrams)
_NOT_COUNTED = re.compile(r"N/A\b.*", re.DOTALL)
# 400 Gb/sec (4X NDR)               2.5 Gb/sec (1X SDR)
_RATE = re.compile(r"(\d{1,5}(?:\.\d)?) Gb/sec\b.*", re.DOTALL)
# 4: ACTIVE                         5: LinkUp
_STATE = re.compile(r"(\d{1,2}): ?([\w<> -]{1,32})")


class State(NamedTuple):
    """``state`` or ``phys_state``."""

    number: int
    name: str

    @property
    def carries(self) -> bool:
        """Of a ``state``: whether the port carries traffic."""
        return self.number == _ACTIVE


def parse_state(text: str) -> State:
    """Read ``state`` or ``phys_state``.

    Raises:
        ParseError: it is not ``<number>: <name>``.
    """
    match = _STATE.fullmatch(text.strip())
    if match is None:
        raise ParseError("state of a port", text)
    return State(int(match[1]), match[2])


def parse_rate(text: str) -> float:
    """Turn the ``rate`` of a port into bytes per second. It is the whole link's: its width is in it already.

    Raises:
        ParseError: it is not ``<number> Gb/sec``.
    """
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise ParseError("rate of a port", text)
    return float(match[1]) * _BYTES_PER_GIGABIT


def parse_counter(text: str) -> int | None:
    """Read one counter, as the driver counts.

    Returns:
        ``None`` where the kernel says that nobody counts.

    Raises:
        ParseError: it is no number of 0 to 2^64 - 1.
    """
    text = text.strip()
    if _NOT_COUNTED.fullmatch(text):
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 20 or int(text) > _MOST:
        raise ParseError("counter of a port", text)
    return int(text)
