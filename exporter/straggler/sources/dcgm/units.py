"""From a vendor's number to a value in base units that can be true, or to the reason why it cannot."""

from __future__ import annotations

from typing import Final

from straggler.sources.dcgm.fields import Field

# DCGM's blanks for three types, each with "not found", "not supported", "not permitted" just above.
_INT32_BLANK: Final = 2_147_483_632
_FP64_BLANK: Final = 140_737_488_355_328
_INT64_BLANK: Final = 9.2e18
"""Below 2**63, since neighbouring doubles are 1,024 apart there."""
_VARIANTS: Final = 16

OVERSHOOT: Final = 1.05
OVERSHOOT_UNDER_MIG: Final = 1.5


def to_base_unit(field: Field, raw: float, *, under_mig: bool) -> float | str | None:
    """Turn a vendor's value into base units.

    Args:
        field: the row of the table.
        raw: as on the page.
        under_mig: whether the sample is about a GPU instance. There a profiling ratio may be far over 1, since DCGM
            divides by the wrong number of SMs (1.294 was seen): such an instance is busy all the time.

    Returns:
        The value; ``None`` if the driver means that there is none; or ``sentinel`` or ``impossible_value``.
    """
    if _INT32_BLANK <= raw < _INT32_BLANK + _VARIANTS:  # first: as a count or an energy it would pass for a true one
        return "sentinel"
    if field.zero_is_absent and raw == 0:
        return None
    if field.overshoot and field.high < raw <= (OVERSHOOT_UNDER_MIG if under_mig else OVERSHOOT):
        raw = field.high
    if not field.low <= raw <= field.high:
        return "sentinel" if _is_sentinel(raw) else "impossible_value"
    return raw * field.times / field.per + 0.0  # 0.0 makes -0 plain zero


def _is_sentinel(raw: float) -> bool:
    """By range, not by equality: 9223372036854775794 is no double, and was seen as 9223372036854776000."""
    return raw >= _INT64_BLANK or _FP64_BLANK <= raw < _FP64_BLANK + _VARIANTS
