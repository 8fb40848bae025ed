"""The fault table's short form: every fault that shows itself within seconds."""

from __future__ import annotations

import pytest

from faults.table import FAULTS, Fault, play

QUICK = [fault for fault in FAULTS if fault.quick_seconds is not None]


@pytest.mark.slow
@pytest.mark.parametrize("fault", QUICK, ids=[fault.name for fault in QUICK])
def test_fault(fault: Fault) -> None:
    """Training goes on, the page comes, and no number is wrong."""
    assert fault.quick_seconds is not None
    figure = play(fault, fault.quick_seconds)
    if figure.held is None:
        pytest.skip(figure.text)

    assert figure.held, figure.text
