"""What one check found."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Health(str, Enum):
    """Missing and broken are two things: a node without GPUs is well."""

    OK = "ok"
    ABSENT = "absent"
    """Not here. Nothing is wrong, but something is not seen."""
    BROKEN = "broken"


class Finding(NamedTuple):
    """One line of the report."""

    check: str
    """What was looked at; a public name, in JSON too."""
    health: Health
    text: str
    fix: str = ""
    """The command, line or setting that helps; ``""`` where none is needed or known."""
