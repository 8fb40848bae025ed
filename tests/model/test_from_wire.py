"""Nanoseconds to seconds, and what is not known to absence."""

from __future__ import annotations

import pytest

from ring_files import record
from straggler.model.from_wire import own_reason_of, totals_of
from straggler.wire import layout
from straggler.wire.records import Identity, Live

SECOND = 1_000_000_000


def test_every_total_by_hand() -> None:
    """Each field has its own number, so that no two can be mixed up."""
    flags = layout.FLAG_OWN | layout.FLAG_TOKENS | layout.FLAG_SAMPLES | layout.FLAG_FLOPS | layout.FLAG_ALLREDUCE
    newest = record(1)._replace(
        flags=flags,
        total_steps=11,
        total_wall_ns=100 * SECOND,
        total_own_ns=60 * SECOND,
        total_wait_ns=30 * SECOND,
        total_unmeasured_steps=2,
        total_profiled_steps=3,
        total_phase_ns=tuple(SECOND * number for number in range(1, 10)),
        total_tokens=21,
        total_samples=22,
        total_flops=23.5,
        total_allreduce_bytes=24,
        total_host_data_ns=5 * SECOND // 2,
        arrivals=31,
    )
    totals = totals_of(newest, None, clock="cuda")

    assert (totals.steps, totals.unmeasured_steps, totals.profiled_steps, totals.arrivals) == (11, 2, 3, 31)
    assert (totals.step_seconds, totals.own_seconds, totals.wait_seconds) == pytest.approx((100, 60, 30))
    assert totals.phase_seconds == pytest.approx(dict(zip(layout.PHASES, range(1, 10), strict=True)))
    assert (totals.tokens, totals.samples, totals.flops, totals.allreduce_bytes) == (21, 22, 23.5, 24)
    assert totals.host_data_seconds == pytest.approx(2.5)


def test_what_is_not_known_is_absent() -> None:
    """Without their flags, tokens and their like are unknown, not zero; so is own time without a measured step."""
    totals = totals_of(record(4, flags=0, own_reason=1, total_unmeasured_steps=4), None, clock="host")

    assert (totals.tokens, totals.samples, totals.flops, totals.allreduce_bytes) == (None, None, None, None)
    assert (totals.own_seconds, totals.wait_seconds, totals.host_data_seconds) == (None, None, None)


@pytest.mark.parametrize(("live_arrivals", "arrivals"), [(3, 7), (9, 9)])
def test_arrivals_are_the_furthest(live_arrivals: int, arrivals: int) -> None:
    """The live block is usually ahead of the record; whichever is further counts."""
    live = Live(live_arrivals, 0, 0, 0, layout.STATUS_RUNNING, None)

    assert totals_of(record(7), live, clock="host").arrivals == arrivals


def test_own_reason_follows_the_newest_step() -> None:
    """What the identity said at the start counts until the first step says otherwise."""
    identity = Identity("r", 0, own_reason="no_wait_phase")

    assert own_reason_of(None, identity) == "no_wait_phase"
    assert own_reason_of(record(1), identity) == "measured"
    assert own_reason_of(record(1, flags=0, own_reason=4), identity) == "cuda_graph"
