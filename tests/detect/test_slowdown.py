"""The formulas, against values worked out by hand and against PromQL's own quantile."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from straggler.detect.slowdown import (
    exceeds,
    excess_share,
    max_minus_median,
    quantile,
    reference,
    slowdown_ratio,
)

SECONDS = st.lists(st.floats(min_value=0, max_value=1e4), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("q", "values", "expected"),
    [
        (0.25, [1.0, 2.0, 3.0, 4.0], 1.75),  # position 0.75
        (0.25, [4.0, 1.0, 3.0, 2.0, 5.0], 2.0),  # position 1
        (0.5, [1.0, 2.0], 1.5),
        (0.0, [3.0, 1.0], 1.0),
        (1.0, [3.0, 1.0], 3.0),
        (0.25, [7.0], 7.0),
    ],
)
def test_quantile_by_hand(q: float, values: list[float], expected: float) -> None:
    """Between two samples the quantile is their weighted mean at position q (n - 1)."""
    assert quantile(q, values) == expected


@given(SECONDS, st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]))
def test_quantile_lies_within(values: list[float], q: float) -> None:
    """A quantile is never outside its values, and the order of the values does not matter."""
    result = quantile(q, values)

    assert min(values) <= result or result == pytest.approx(min(values))
    assert result <= max(values) or result == pytest.approx(max(values))
    assert quantile(q, list(reversed(values))) == result


@pytest.mark.parametrize(("q", "values"), [(0.25, []), (-0.1, [1.0]), (1.1, [1.0]), (float("nan"), [1.0])])
def test_quantile_refuses(q: float, values: list[float]) -> None:
    """No value, or a q that is none, is an error and never a NaN."""
    with pytest.raises(ValueError, match="quantile"):
        quantile(q, values)


@pytest.mark.servers
def test_quantile_is_promqls(tmp_path: Path) -> None:
    """Promtool computes the same lower quartiles to the last bit, for groups of 1 to 12 ranks."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    groups = {str(n): [0.1 * ((7 * i) % 12) + 0.013 * n for i in range(n)] for n in range(1, 13)}
    series = [
        {"series": f'own{{group="{name}",rank="{rank}"}}', "values": repr(value)}
        for name, values in groups.items()
        for rank, value in enumerate(values)
    ]
    expected = [{"labels": f'{{group="{name}"}}', "value": quantile(0.25, values)} for name, values in groups.items()]
    case = {
        "expr": "quantile by (group) (0.25, own)",
        "eval_time": "0m",
        "exp_samples": expected,
    }
    test_file = tmp_path / "quantile.json"  # JSON is YAML
    test_file.write_text(json.dumps({"tests": [{"input_series": series, "promql_expr_test": [case]}]}))

    done = subprocess.run([promtool, "test", "rules", str(test_file)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0], None),  # alone: no verdict
        ([1.5, 1.0], 1.0),  # two: each against the other
        ([1.0, 2.0, 3.0], 1.5),
        ([1.0] * 8 + [1.19] * 8, 1.0),  # the slow node of two does not drag it
    ],
)
def test_reference(values: list[float], expected: float | None) -> None:
    """The reference is the lower quartile, of two ranks the faster one, of one rank nothing."""
    assert reference(values) == expected


def test_slow_node_of_two_would_hide_from_the_median() -> None:
    """Half of the ranks at 1.19 look 9 % slow beside the median, and 19 % beside the lower quartile."""
    own = [1.0] * 8 + [1.19] * 8
    quartile = reference(own)
    assert quartile is not None

    assert slowdown_ratio(1.19, quantile(0.5, own)) == pytest.approx(1.0868, abs=1e-4)
    assert slowdown_ratio(1.19, quartile) == pytest.approx(1.19)


def test_reference_diagram() -> None:
    """One rank at 47 ms among seven at 34: ratio 1.38, gap 13 ms, 22.8 % of the 57 ms step."""
    own = [0.034] * 7 + [0.047]
    quartile = reference(own)
    assert quartile is not None

    assert slowdown_ratio(0.047, quartile) == pytest.approx(47 / 34)
    assert max_minus_median(own) == pytest.approx(0.013)
    assert excess_share(0.047, quartile, 0.057) == pytest.approx(13 / 57)


def test_equal_is_not_more() -> None:
    """A rank at exactly the threshold is not slow."""
    assert not exceeds(1.5, 1.0, 1.5)
    assert exceeds(1.5000001, 1.0, 1.5)


def test_no_division_by_zero() -> None:
    """Peers without own time give no ratio, and an empty step no share."""
    assert slowdown_ratio(1.0, 0.0) is None
    assert excess_share(1.0, 0.5, 0.0) == 0.0
