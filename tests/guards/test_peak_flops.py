"""The peaks in the rule and the peaks in the documentation, which has their sources, are the same.

A peak that is corrected in one place alone gives a utilization that nobody can check.
"""

from __future__ import annotations

import re
from pathlib import Path

from rulebook import peak_flops

PAGE = Path(__file__).parents[2] / "docs" / "throughput.md"
_ROW = re.compile(r"^\| (`NVIDIA [^|]+`) \| ([\d.]+) \| [^|]+ \|$", re.MULTILINE)


def in_the_page() -> dict[str, float]:
    """Model to operations a second."""
    rows = _ROW.findall(PAGE.read_text("utf-8"))
    return {model: float(peak) * 1e12 for models, peak in rows for model in re.findall("`([^`]+)`", models)}


def test_each_documented_model_has_its_peak_in_the_rule() -> None:
    """Each model matches exactly one kind of GPU, whose peak is the documented one."""
    page = in_the_page()

    assert len(page) > 20
    assert {model: [peak for pattern, peak in peak_flops() if re.fullmatch(pattern, model)] for model in page} == {
        model: [peak] for model, peak in page.items()
    }


def test_each_kind_in_the_rule_is_documented() -> None:
    """No peak without a source."""
    page = in_the_page()

    assert [pattern for pattern, _ in peak_flops() if not any(re.fullmatch(pattern, model) for model in page)] == []
