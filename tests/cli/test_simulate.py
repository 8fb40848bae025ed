"""``straggler simulate`` as it is typed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from straggler.cli.main import main


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The JSON that it prints; it must succeed."""
    assert main(["simulate", "--json", *arguments]) == 0
    parsed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return parsed


def test_reference_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Without flags it prints the reference diagram at 1, 1.5 and 2 x."""
    assert main(["simulate"]) == 0
    rows = {line[:27].strip(): line[27:].split() for line in capsys.readouterr().out.splitlines()}

    assert rows["step of every rank"] == ["44.0", "ms", "57.0", "ms", "70.0", "ms"]
    assert rows["efficiency"] == ["100.0%", "77.2%", "62.9%"]
    assert rows["reported utilization"] == ["86.4%", "89.5%", "91.4%"]
    assert rows["useful (kernels at 0.55)"] == ["32.5%", "26.7%", "23.0%"]


def test_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    """Below the table stand the lanes, prefetching beside the straggler, and the ring."""
    assert main(["simulate"]) == 0
    text = capsys.readouterr().out

    assert "Prefetching would save 5.0 ms a step (1 ms stay exposed); at 2 x the straggler costs 26.0 ms." in text
    assert "A ring all-reduce of 8 ranks is 14 exchanges of 1/8 of the bytes." in text
    assert "d" * 6 + "f" * 20 + "b" * 32 + "a" * 10 + "o" * 2 in text


def test_json_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON has the same in seconds and shares."""
    parsed = document(capsys, "--slow-factor", "1.5")
    (case,) = parsed["cases"]

    assert parsed["healthy_step_seconds"] == 0.044
    assert parsed["prefetch_saves_seconds"] == 0.005
    assert parsed["ring_exchanges"] == 14
    assert case["step_seconds"] == 0.057
    assert case["straggler_costs_seconds"] == 0.013
    assert case["lost_gpu_seconds_per_step"] == 0.104
    assert case["lost_share"] == pytest.approx(13 / 57, rel=1e-6)
    assert case["lost_money"] is None
    assert case["run_seconds"] is None


def test_cluster_scale(capsys: pytest.CaptureFixture[str]) -> None:
    """Ranks, hours and price scale the loss; tokens and throughput give the run's duration with the straggler in it."""
    (case,) = document(
        capsys,
        *("--ranks", "1024", "--hours", "24", "--gpu-hour-price", "2.5", "--slow-factor", "1.5"),
        *("--tokens", "30e9", "--tokens-per-second", "44048"),
    )["cases"]

    assert case["gpu_hours"] == 24_576
    assert case["lost_gpu_hours"] == pytest.approx(24_576 * 13 / 57)
    assert case["lost_money"] == pytest.approx(2.5 * 24_576 * 13 / 57)
    assert case["run_seconds"] == pytest.approx(30e9 / 44048 / 1024 * 57 / 44, rel=1e-6)


def test_own_phases(capsys: pytest.CaptureFixture[str]) -> None:
    """Another job's phases give another step."""
    parsed = document(capsys, "--data-ms", "0", "--forward-ms", "100", "--backward-ms", "200", "--all-reduce-ms", "0")

    assert parsed["healthy_step_seconds"] == 0.302
    assert [case["reported_utilization"] for case in parsed["cases"]] == [1, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--slow-factor", "0.5"], "below 1"),
        (["--slow-factor", "nan"], "slow_factor: nan cannot be"),
        (["--ranks", "0"], "must be positive"),
        (["--ranks", "1000000000"], "is not in 1 … 10000000"),
        (["--hours", "1e308"], "hours: 1e+308 cannot be"),
        (["--forward-ms", "-1"], "forward_ms: -1.0 cannot be"),
        (["--kernel-efficiency", "1.5"], "at most 1"),
        (["--tokens", "1e9"], "give --tokens and --tokens-per-second together"),
        (["--tokens", "1e9", "--tokens-per-second", "0"], "never end"),
        (["--data-ms=0", "--forward-ms=0", "--backward-ms=0", "--all-reduce-ms=0", "--optimizer-ms=0"], "the step"),
    ],
)
def test_wrong_use(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be is exit code 2 and a sentence."""
    assert main(["simulate", *arguments]) == 2
    assert said in capsys.readouterr().err
