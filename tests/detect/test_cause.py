"""Why a slow rank is slow. Shares are worked out by hand; how often it is right stands in docs/causes.md."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from straggler.detect.cause import CAUSES, UNKNOWN, Cause, explain
from straggler.detect.cause_text import sentence, unseen
from straggler.detect.lately import Lately
from straggler.detect.policy import DEFAULT

WELL = Lately(
    step_seconds=1.6,
    own_seconds=1.0,
    now_seconds=1.0,
    data_seconds=0.05,
    h2d_seconds=0.05,
    tokens=8192.0,
    run_delay_seconds=0.0,
    memory_stall_seconds=0.0,
    sm_clock_hertz=1980e6,
    tensor_hertz=500e6,
    held={"thermal": 0.0, "power_brake": 0.0, "power_cap": 0.3},
    pcie_bytes_per_second=64e9,
    pcie_received_bytes_per_second=2e9,
)
"""Of a step of 1 s, 0.9 s compute."""


def slow(seconds: float = 1.5, **changes: Any) -> Lately:
    """A rank that takes so long."""
    return replace(WELL, own_seconds=seconds, now_seconds=seconds, **changes)


def cause(rank: Lately | None, peers: Lately = WELL) -> Cause:
    """Of one rank among seven peers."""
    return explain(rank, [peers] * 7 + ([rank] if rank else []), DEFAULT)


HELD = {
    "thermal": {"thermal": 0.6, "power_brake": 0.0, "power_cap": 0.0},
    "power_brake": {"thermal": 0.0, "power_brake": 0.9, "power_cap": 0.0},
    "power_cap": {"thermal": 0.0, "power_brake": 0.0, "power_cap": 0.9},
    "clocks_set_low": {"thermal": 0.0, "power_brake": 0.0, "power_cap": 0.0},
}


@pytest.mark.parametrize("name", HELD)
def test_clock(name: str) -> None:
    """At 1,320 MHz beside 1,980, 0.9 s of compute take 0.45 s longer: 90 % of a gap of 0.5 s, by what holds it down."""
    found = cause(slow(sm_clock_hertz=1320e6, held=HELD[name]))

    assert found.name == name
    assert found.share == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("changes", "name", "share"),
    [
        # 16 GB/s instead of 64: 2 GB/s in 2 s of step are 4 GB, 0.25 s instead of 0.0625 s
        (
            {"seconds": 1.3, "step_seconds": 2.0, "pcie_bytes_per_second": 16e9},
            "pcie_degraded",
            0.1875 / 0.3,
        ),
        ({"h2d_seconds": 0.45, "pcie_bytes_per_second": 16e9}, "pcie_degraded", 0.4 / 0.5),
        ({"run_delay_seconds": 0.4}, "host_cpu", 0.8),
        ({"memory_stall_seconds": 0.3}, "memory", 0.6),
        # 1.5 times the tokens: half of 0.9 s of compute more
        ({"tokens": 12288.0}, "work", 0.45 / 0.5),
        ({"tensor_hertz": 700e6}, "work", 0.36 / 0.5),
        ({"data_seconds": 0.5}, "data_loading", 0.9),
        ({"errors": ("XID 94",)}, "gpu_errors", 1.0),
    ],
)
def test_share(changes: dict[str, Any], name: str, share: float) -> None:
    """Each cause explains what it takes, as a part of the gap."""
    found = cause(slow(**changes))

    assert found.name == name
    assert found.share == pytest.approx(share)


def test_nothing_visible_is_unknown() -> None:
    """A rank that is slow at full clock, with the usual work and no error, is not blamed on anything."""
    found = cause(slow())

    assert (found.name, found.share) == (UNKNOWN, None)
    assert sentence(found) == (
        "Unknown: the gap is 100 % computing or host code; SM clock 1,980 MHz, peers 1,980 MHz. Nothing else that is "
        "seen differs"
    )


def test_half_of_the_gap_is_not_most_of_it() -> None:
    """A cause that explains exactly half is not named."""
    assert cause(slow(data_seconds=0.3)).name == UNKNOWN
    assert cause(slow(data_seconds=0.31)).name == "data_loading"


def test_clock_cannot_explain_loading() -> None:
    """A cool clock of a GPU that starves is no reason: it explains no more than the compute time that is too much."""
    assert cause(slow(data_seconds=0.55, sm_clock_hertz=1200e6, held=HELD["thermal"])).name == "data_loading"


def test_deeper_cause_wins() -> None:
    """A loader that waits for a CPU is told as the CPU."""
    assert cause(slow(data_seconds=0.5, run_delay_seconds=0.4)).name == "host_cpu"


def test_power_cap_is_normal_under_load() -> None:
    """It holds clocks down on all ranks; without a lower clock than the peers' it explains nothing."""
    assert cause(slow(held=HELD["power_cap"])).name == UNKNOWN


def test_heat_counts_before_the_power_cap() -> None:
    """A hot GPU reaches its cap too; the brake comes first unless heat held longer."""
    low = {"sm_clock_hertz": 1320e6}
    assert cause(slow(held={"thermal": 0.3, "power_brake": 0.0, "power_cap": 0.9}, **low)).name == "thermal"
    assert cause(slow(held={"thermal": 0.3, "power_brake": 0.2, "power_cap": 0.9}, **low)).name == "thermal"
    assert cause(slow(held={"thermal": 0.3, "power_brake": 0.4, "power_cap": 0.9}, **low)).name == "power_brake"


def test_low_clock_without_reasons_is_unknown() -> None:
    """Where nobody reports what holds clocks down, a low clock is told, and no reason invented; a flag is one."""
    low = cause(slow(sm_clock_hertz=1320e6, held={"thermal": 0.0, "power_cap": 0.0}))

    assert low.name == UNKNOWN
    assert "SM clock 1,320 MHz, peers 1,980 MHz" in sentence(low)
    assert "Not visible: power brake (clocks event reason)" in sentence(low)
    assert cause(slow(sm_clock_hertz=1320e6, held={}, set_low=True)).name == "clocks_set_low"


def test_idle_link_is_no_evidence() -> None:
    """A GPU that starves lets its link fall back to generation 1: next to nothing is copied, so it explains nothing."""
    starved = slow(data_seconds=0.55, pcie_bytes_per_second=4e9, pcie_received_bytes_per_second=0.1e9)

    assert cause(starved).name == "data_loading"


def test_link_of_all_is_no_evidence() -> None:
    """A whole group on generation 4 in slots for 5 has nobody to be compared with."""
    old = replace(WELL, pcie_bytes_per_second=16e9)

    assert cause(slow(h2d_seconds=0.5, pcie_bytes_per_second=16e9), old).name == UNKNOWN


def test_errors_do_not_take_what_others_explain() -> None:
    """A GPU with errors and a starved host: 0.4 of 0.5 s are the host's, the rest is too little for the errors."""
    assert cause(slow(errors=("XID 94",), run_delay_seconds=0.24)).name == "gpu_errors"
    assert cause(slow(errors=("XID 94",), run_delay_seconds=0.26)).name == "host_cpu"


def test_errors_do_not_take_what_the_clock_explains() -> None:
    """At 1,584 MHz beside 1,980 the clock explains 0.225 of 0.5 s, too little for a cause: the errors have the rest."""
    found = cause(slow(errors=("XID 94",), sm_clock_hertz=1584e6, held=HELD["thermal"]))

    assert found.name == "gpu_errors"
    assert found.share == pytest.approx(0.55)


def test_half_a_group_in_the_same_trouble_does_not_hide_it() -> None:
    """What only adds time is compared with the lower quartile: with a median, four of eight would excuse each other."""
    starved = slow(run_delay_seconds=0.4)
    found = explain(starved, [WELL] * 4 + [starved] * 4, DEFAULT)

    assert found.name == "host_cpu"
    assert found.share == pytest.approx(0.8)


def test_brake_and_heat_alike_are_the_brake() -> None:
    """A power brake is somebody's order and stays; heat that held no longer than it may come from it."""
    held = {"thermal": 0.4, "power_brake": 0.4, "power_cap": 0.0}

    assert cause(slow(sm_clock_hertz=1320e6, held=held)).name == "power_brake"


def test_link_a_little_slower_is_not_degraded() -> None:
    """Above three quarters of the peers' rate a link has all of its lanes: longer copies are another matter."""
    assert cause(slow(h2d_seconds=0.5, pcie_bytes_per_second=0.75 * 64e9)).name == UNKNOWN
    assert cause(slow(h2d_seconds=0.5, pcie_bytes_per_second=0.74 * 64e9)).name == "pcie_degraded"


def test_slow_once_and_not_now_is_not_explained() -> None:
    """A gap over minutes that is over by now has no cause that could still be found."""
    found = cause(replace(slow(data_seconds=0.5), now_seconds=1.0))

    assert (found.name, found.gap) == (UNKNOWN, None)


def test_less_is_no_cause() -> None:
    """A rank that has less of everything than its peers is not explained by it."""
    found = cause(slow(tokens=4000.0, tensor_hertz=200e6, data_seconds=0.01, sm_clock_hertz=2100e6))

    assert found.name == UNKNOWN


@pytest.mark.parametrize("rank", [None, replace(WELL, own_seconds=None), WELL, replace(WELL, now_seconds=None)])
def test_without_a_gap_nothing_is_said(rank: Lately | None) -> None:
    """A rank that is unknown, unmeasured or not slow over these minutes has no cause."""
    found = cause(rank)

    assert (found.name, found.share, found.gap) == (UNKNOWN, None, None)
    assert sentence(found) == "Unknown: its phases over the last minutes are not known"


def test_all_that_is_missing_is_said() -> None:
    """A rank of which only phases are known: what would be needed is listed."""
    bare = Lately(step_seconds=1.6, own_seconds=1.5, now_seconds=1.5)

    assert unseen(bare) == [
        "SM clock",
        "heat (clocks event reason)",
        "power brake (clocks event reason)",
        "power cap (clocks event reason)",
        "tensor activity",
        "PCIe link",
        "run delay of its process",
        "memory pressure",
    ]
    assert unseen(WELL) == []


LOW = "SM clock 1,320 MHz, peers 1,980 MHz"
SENTENCES = {
    "thermal": f"Heat: {LOW}, held down by heat 60 % of the time, at 87 C",
    "power_brake": f"Power brake: {LOW}, held down by a power brake 90 % of the time",
    "power_cap": f"Power cap: {LOW}, held down by the power cap 90 % of the time, its power limit is 400 W",
    "clocks_set_low": f"Clocks set low: {LOW}, no heat, brake or power cap holds it down",
}


@pytest.mark.parametrize("name", SENTENCES)
def test_sentence_has_the_peers_numbers(name: str) -> None:
    """The evidence is written beside the peers', as on-call reads it."""
    rank = slow(sm_clock_hertz=1320e6, held=HELD[name], temperature_celsius=87.0, power_limit_watts=400.0)

    assert sentence(cause(rank)) == f"{SENTENCES[name]}; explains 90 % of the gap"


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "pcie": (
        {"h2d_seconds": 0.45, "pcie_bytes_per_second": 16e9},
        "Degraded PCIe link: PCIe link 16.0 GB/s, peers 64.0 GB/s, copies 450.0 ms a step, peers 50.0 ms",
    ),
    "cpu": ({"run_delay_seconds": 0.4}, "Host CPU: ready but without a CPU 400.0 ms a step, peers 0.0 ms"),
    "memory": (
        {"memory_stall_seconds": 0.3},
        "Host memory: stalled for want of memory 300.0 ms a step, peers 0.0 ms",
    ),
    "work": (
        {"tokens": 12288.0},
        "More work than its peers: 1.50 x the tokens of its peers at 1,980 MHz (peers 1,980 MHz)",
    ),
    "data": ({"data_seconds": 0.5}, "Data loading: waits for its next batch 500.0 ms a step, peers 50.0 ms"),
    "errors": (
        {"errors": ("XID 94",)},
        "GPU errors: computes 1.40 s a step, peers 900.0 ms at 1,980 MHz (peers 1,980 MHz); in the last hour: XID 94",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_sentence_of_other_causes(name: str) -> None:
    """Seconds a step, links and counts, beside the peers'."""
    changes, text = OTHERS[name]

    assert sentence(cause(slow(**changes))).startswith(f"{text}; explains ")


def test_two_ranks_compare_with_each_other() -> None:
    """Of two ranks the faster one is the measure, and the shares stay the same."""
    rank = slow(data_seconds=0.5)

    assert explain(rank, [WELL, rank], DEFAULT).name == "data_loading"


def test_causes_are_one_each() -> None:
    """The order of precedence names each cause once, unknown last."""
    assert len(set(CAUSES)) == len(CAUSES)
    assert CAUSES[-1] == UNKNOWN
