"""From what the wire carries, in nanoseconds, to facts in base units: the one place that converts."""

from __future__ import annotations

from straggler.model.rank import Totals
from straggler.wire import layout
from straggler.wire.records import Identity, Live, StepRecord

_NS = 1e-9


def totals_of(record: StepRecord, live: Live | None, *, clock: str) -> Totals:
    """Turn the totals in a rank's newest record into facts.

    Args:
        record: the newest record; its totals run since the rank's start.
        live: its arrivals may be ahead of the record's.
        clock: ``Identity.clock``. Host time for data is a figure of its own only where phases are GPU time.
    """
    flags = record.flags
    measured = record.total_steps > record.total_unmeasured_steps
    return Totals(
        steps=record.total_steps,
        step_seconds=record.total_wall_ns * _NS,
        own_seconds=record.total_own_ns * _NS if measured else None,
        wait_seconds=record.total_wait_ns * _NS if measured else None,
        phase_seconds={name: total * _NS for name, total in zip(layout.PHASES, record.total_phase_ns, strict=True)},
        arrivals=max(record.arrivals, live.arrivals if live is not None else 0),
        tokens=record.total_tokens if flags & layout.FLAG_TOKENS else None,
        samples=record.total_samples if flags & layout.FLAG_SAMPLES else None,
        flops=record.total_flops if flags & layout.FLAG_FLOPS else None,
        allreduce_bytes=record.total_allreduce_bytes if flags & layout.FLAG_ALLREDUCE else None,
        unmeasured_steps=record.total_unmeasured_steps,
        profiled_steps=record.total_profiled_steps,
        host_data_seconds=record.total_host_data_ns * _NS if clock == "cuda" else None,
    )


def own_reason_of(record: StepRecord | None, identity: Identity) -> str:
    """Why own time is absent now, or ``measured``: what the newest step says, and before it what the identity says."""
    return identity.own_reason if record is None else layout.OWN_REASONS[record.own_reason]
