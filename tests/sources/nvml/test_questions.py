"""The table of what NVML is asked, against the catalogue."""

from __future__ import annotations

from straggler.metrics.catalogue import BY_NAME
from straggler.model.gpu import CLOCKS_EVENT_REASONS
from straggler.sources.nvml.questions import (
    BYTE_FIELDS,
    EVENT_FIELDS,
    FIELDS,
    GPM,
    OLD_THERMAL,
    QUESTIONS,
    SHARED_WITH_INSTANCES,
    Out,
)


def _outs() -> list[Out]:
    asked = [out for question in QUESTIONS for out in question.outs]
    return [*asked, *FIELDS.values(), *BYTE_FIELDS.values(), *GPM.values()]


def test_each_answer_is_a_metric() -> None:
    """A value without a row in the catalogue would be refused by the page."""
    assert {f"gpu_{out.attribute}" for out in _outs()} <= BY_NAME.keys()


def test_each_event_is_a_reason() -> None:
    """Event seconds carry the listed label values."""
    assert {out.attribute for out in (*EVENT_FIELDS.values(), OLD_THERMAL)} <= set(CLOCKS_EVENT_REASONS)


def test_shared_values_exist() -> None:
    """What instances share is something that is asked."""
    assert {out.attribute for out in _outs()} >= SHARED_WITH_INSTANCES


def test_ratios_come_in_percent() -> None:
    """Each ratio is a percentage before, and can be 1 at most."""
    ratios = [out for out in _outs() if out.attribute.endswith("_ratio")]

    assert ratios
    assert all(out.convert(out.high) == 1 for out in ratios)
