"""Why a push is refused."""

from __future__ import annotations

from typing import Final

from straggler.wire.layout import WIRE_REASONS

WRONG_NAMESPACE: Final = "wrong_namespace"
"""The token is bound to a namespace, and the rank's run is not in it."""
TOO_MANY_RANKS: Final = "too_many_ranks"
DUPLICATE_RANK: Final = "duplicate_rank"
"""A process that began later pushes as the same rank."""

PUSH_REASONS: Final = (WRONG_NAMESPACE, TOO_MANY_RANKS, DUPLICATE_RANK, *WIRE_REASONS)
"""All values of ``reason`` that this source refuses under."""

PUSH_BLIND_REASONS: Final = ("hook_off",)  # as of rings
