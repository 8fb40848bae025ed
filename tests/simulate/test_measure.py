"""What a run was like, from its rings."""

from __future__ import annotations

from pathlib import Path

import pytest

from straggler.simulate.measure import Pace, measure, read_records
from straggler.simulate.scenario import Fault, Scenario
from straggler.wire import layout
from straggler.wire.encode import encode_identity, encode_preamble, encode_record
from straggler.wire.records import Identity, Preamble, StepRecord

MS = 1_000_000
CAPACITY = 64
SLOW = Scenario(fault=Fault(name="slow-rank", rank=1, factor=1.5, begins_step=50))


def record(serial: int, wall_ms: int, wait_ms: int) -> StepRecord:
    """A step with nothing in it but waiting and forward."""
    phases = [0] * layout.PHASE_COUNT
    phases[layout.WAIT] = wait_ms * MS
    phases[layout.PHASE_INDEX["forward"]] = (wall_ms - wait_ms) * MS
    totals = (1, 10**12, 0, 0, 0, serial)
    return StepRecord(
        serial,
        serial,
        1,
        1,
        layout.FLAG_OWN,
        0,
        wall_ms * MS,
        tuple(phases),
        0,
        *totals,
        tuple(phases),
        0,
        0,
        0.0,
        0,
        0,
    )


def ring(rank: int, records: list[StepRecord]) -> bytes:
    """A ring file with these records in their slots."""
    data = bytearray(layout.RECORDS_OFFSET + CAPACITY * layout.RECORD_BYTES)
    data[: layout.PREAMBLE_BYTES] = encode_preamble(Preamble(layout.VERSION, layout.RECORD_BYTES, CAPACITY, 1, 1, 1))
    identity = encode_identity(Identity("demo", rank))
    data[layout.IDENTITY_OFFSET : layout.IDENTITY_OFFSET + len(identity)] = identity
    for one in records:
        start = layout.RECORDS_OFFSET + (one.serial - 1) % CAPACITY * layout.RECORD_BYTES
        data[start : start + layout.RECORD_BYTES] = encode_record(one)
    return bytes(data)


def test_before_and_after(tmp_path: Path) -> None:
    """Healthy steps and slow ones are told apart by the step in which the fault begins, on the slow rank."""
    healthy = [record(serial, 44, 10) for serial in range(1, 50)]
    slow = [record(serial, 57, 10) for serial in range(50, 70)]
    (tmp_path / "a").write_bytes(ring(0, healthy))
    (tmp_path / "b").write_bytes(ring(1, [*healthy, *slow]))
    (tmp_path / "junk").write_bytes(b"no ring")

    records = read_records(tmp_path)
    pace = measure(SLOW, records)

    assert [one.serial for one in records[1]] == list(range(6, 70))  # the first five were overwritten
    assert pace.healthy_step_seconds == pytest.approx(0.044)
    assert pace.slow_step_seconds == pytest.approx(0.057)
    assert pace.healthy_own_seconds == pytest.approx(0.034)
    assert pace.slow_own_seconds == pytest.approx(0.047)
    assert pace.efficiency == pytest.approx(44 / 57)


def test_healthy_run_has_no_slow_steps(tmp_path: Path) -> None:
    """Without a fault all steps are healthy ones."""
    (tmp_path / "a").write_bytes(ring(0, [record(serial, 44, 10) for serial in range(40, 90)]))

    pace = measure(Scenario(), read_records(tmp_path))

    assert pace.healthy_step_seconds == pytest.approx(0.044)
    assert pace.slow_step_seconds is None
    assert pace.efficiency is None


def test_nothing_recorded(tmp_path: Path) -> None:
    """A run that never stepped has no pace, and that is no error."""
    pace = measure(SLOW, read_records(tmp_path))

    assert pace == Pace(
        healthy_step_seconds=None, slow_step_seconds=None, healthy_own_seconds=None, slow_own_seconds=None
    )
