"""Which lines of the csv file somebody should enable."""

from __future__ import annotations

from pathlib import Path

import pytest

from straggler.sources.dcgm.eras import WANTED, Era, csv_lines_to_enable
from straggler.sources.dcgm.fields import field_of


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        (Era.ANY, "DCGM_FI_PROF_SM_ACTIVE"),
        (Era.FIRST, "dcgm_fi_prof_sm_active"),
        (Era.RENAMED, "DCGM_FI_PROF_SM_UTIL_RATIO"),
        (Era.RENAMED | Era.BASE_UNITS, "DCGM_FI_PROF_SM_UTIL_RATIO"),
    ],
)
def test_names_fit_the_page(seen: Era, name: str) -> None:
    """The advice uses the names that the page's own DCGM goes by."""
    (line,) = csv_lines_to_enable(["sm_active_ratio"], seen)

    assert line.split(",")[:2] == [name, " gauge"]


def test_utilization_keeps_its_clear_name() -> None:
    """DCGM 4.6's second name for utilization is in percent and says ratio: it is not advised."""
    (line,) = csv_lines_to_enable(["utilization_ratio"], Era.RENAMED)

    assert line.startswith("DCGM_FI_DEV_GPU_UTIL, ")


def test_order_and_strangers() -> None:
    """Lines come in one order, whatever is asked first, and nothing is advised that verdicts do not need."""
    lines = csv_lines_to_enable(["energy_joules_total", "tensor_active_ratio", "sm_active_ratio"])

    assert [line.split(",")[0] for line in lines] == ["DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"]


@pytest.mark.parametrize("seen", [Era.ANY, Era.FIRST, Era.RENAMED, Era.RENAMED | Era.BASE_UNITS])
def test_advice_leads_to_the_field(seen: Era) -> None:
    """Whoever follows the advice gets the value that was missing, and the line has the csv file's three columns."""
    for attribute in WANTED:
        (line,) = csv_lines_to_enable([attribute], seen)
        name, kind, text = line.split(", ", 2)
        field = field_of(name)

        assert field is not None
        assert (field.attribute, kind) == (attribute, "gauge")
        assert "," not in text


def test_shipped_files_have_these_lines_commented_out(corpus: Path) -> None:
    """The advice is needed: no csv file that NVIDIA ships has SM activity on."""
    for path in (corpus / "csv").glob("*.csv"):
        active = [line for line in path.read_text().splitlines() if not line.startswith("#")]

        assert not [line for line in active if "sm_active" in line.lower()], path.name
