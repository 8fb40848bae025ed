"""Names that came from outside, made fit for labels and terminals.

A ring or a push may carry any text. What leaves this module is printable, bounded, and still tells two different
names apart.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

from straggler.errors import WireError
from straggler.wire.records import Identity

MAX_LABEL_CHARACTERS = 128
"""Longer values are cut. Real names of runs, nodes and pods are shorter, though Kubernetes allows 253 for a pod."""

_NOT_LABELS = frozenset({"visible_devices"})
"""Evidence for the join: eight UUIDs are longer than any label should be, and must stay whole."""

_DIGEST_CHARACTERS = 9


def clean_text(text: str, limit: int | None = MAX_LABEL_CHARACTERS) -> str:
    """Make one value printable and bounded.

    Control, format and direction-changing characters become U+FFFD: they would fool whoever reads the page or the
    terminal. A value over ``limit`` characters is cut and ends in ``~`` and a checksum of the whole, so that two long
    names with the same start stay two.
    """
    clean = text.strip()
    if not clean.isprintable():
        clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in clean)
    if limit is None or len(clean) <= limit:
        return clean
    return f"{clean[: limit - _DIGEST_CHARACTERS]}~{crc32(text.encode('utf-8', 'replace')):08x}"


def clean_identity(identity: Identity) -> Identity:
    """Clean all texts of an identity.

    Raises:
        WireError: ``bad_identity``, if no run is left: a rank without a run cannot be told from another's.
    """
    cleaned: dict[str, Any] = {
        key: clean_text(value, None if key in _NOT_LABELS else MAX_LABEL_CHARACTERS)
        for key, value in identity._asdict().items()
        if isinstance(value, str)
    }
    if not cleaned["run"]:
        raise WireError("bad_identity", "the run's name is blank")
    return identity._replace(**cleaned)
