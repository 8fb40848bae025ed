"""The ring's and the push's bytes: any bytes decode or give a listed reason, and what is encoded comes back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from straggler.errors import WireError
from straggler.wire import layout
from straggler.wire.decode import decode_identity, decode_live, decode_preamble, decode_record, file_bytes, slot_offset
from straggler.wire.encode import encode_identity, encode_live, encode_preamble, encode_record
from straggler.wire.push import HEAD, PushBatch, decode_push, encode_push
from straggler.wire.records import Identity, Live, Preamble, StepRecord

NANOSECONDS = st.integers(0, 1 << 50)
COUNTS = st.integers(0, (1 << 64) - 1)
NUMBERS = st.none() | st.integers(0, 10_000_000)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=60)
NAMES = TEXTS.filter(bool)


@st.composite
def step_records(draw: st.DrawFn, serial: int | None = None) -> StepRecord:
    """A record such as a hook may write: phases within the step, totals that hold them."""
    phases = tuple(draw(st.lists(NANOSECONDS, min_size=layout.PHASE_COUNT, max_size=layout.PHASE_COUNT)))
    more = draw(NANOSECONDS)
    wall = sum(phases) + draw(NANOSECONDS)
    own_reason = draw(st.integers(0, len(layout.OWN_REASONS) - 1))
    flags = draw(st.integers(0, 127)) & ~layout.FLAG_OWN | (layout.FLAG_OWN if own_reason == 0 else 0)
    steps = draw(st.integers(1, 1 << 40))
    return StepRecord(
        serial=serial or draw(st.integers(1, 1 << 60)),
        step=draw(COUNTS),
        end_monotonic_ns=draw(NANOSECONDS),
        end_realtime_ns=draw(NANOSECONDS),
        flags=flags,
        own_reason=own_reason,
        wall_ns=wall,
        phase_ns=phases,
        host_data_ns=draw(NANOSECONDS),
        total_steps=steps,
        total_wall_ns=wall + more,
        total_own_ns=draw(st.integers(0, wall)),
        total_wait_ns=draw(st.integers(0, more)),
        total_unmeasured_steps=draw(st.integers(0, steps)),
        arrivals=draw(COUNTS),
        total_phase_ns=phases,
        total_tokens=draw(COUNTS),
        total_allreduce_bytes=draw(COUNTS),
        total_flops=draw(st.floats(0, 1e300)),
        total_samples=draw(COUNTS),
        total_profiled_steps=draw(st.integers(0, steps)),
        total_host_data_ns=draw(NANOSECONDS),
    )


LIVES = st.builds(
    Live,
    arrivals=COUNTS,
    records=COUNTS,
    updated_monotonic_ns=NANOSECONDS,
    updated_realtime_ns=NANOSECONDS,
    status=st.sampled_from(layout.STATUSES),
    excluded_phase=st.none() | st.sampled_from(layout.EXCLUDED),
)
PREAMBLES = st.builds(
    Preamble,
    version=st.just(layout.VERSION),
    record_bytes=st.integers(layout.RECORD_BYTES, 4096),
    capacity=st.integers(1, layout.MAX_CAPACITY),
    pid=st.integers(0, (1 << 32) - 1),
    created_realtime_ns=NANOSECONDS,
    created_monotonic_ns=NANOSECONDS,
)
IDENTITIES = st.builds(
    Identity,
    run=NAMES,
    rank=st.integers(0, 10_000_000),
    peer_group=NAMES,
    node=TEXTS,
    world_size=NUMBERS,
    local_rank=NUMBERS,
    local_world_size=NUMBERS,
    attempt=NUMBERS,
    gpu_uuid=TEXTS,
    gpu=NUMBERS,
    pci_bus_id=TEXTS,
    gpu_instance=NUMBERS,
    visible_devices=TEXTS,
    pod=TEXTS,
    namespace=TEXTS,
    container=TEXTS,
    slurm_job=TEXTS,
    slurm_step=TEXTS,
    user=TEXTS,
    framework=TEXTS,
    clock=st.sampled_from(["host", "cuda"]),
    own_reason=st.sampled_from(layout.OWN_REASONS),
    hook_version=TEXTS,
)
DECODERS: list[Callable[[bytes], Any]] = [decode_preamble, decode_live, decode_identity, decode_record, decode_push]


def outcome(decode: Callable[[bytes], Any], data: bytes) -> tuple[Any, str | None]:
    """What was decoded, or the reason for which it was refused."""
    try:
        return decode(data), None
    except WireError as error:
        return None, error.reason


@given(step_records())
def test_record_round_trip(record: StepRecord) -> None:
    """A record comes back as it was, in exactly one slot."""
    data = encode_record(record)

    assert len(data) == layout.RECORD_BYTES
    assert decode_record(data) == record


@given(LIVES)
def test_live_round_trip(live: Live) -> None:
    """A live block comes back as it was."""
    assert decode_live(encode_live(live)) == live


@given(PREAMBLES)
def test_preamble_round_trip(preamble: Preamble) -> None:
    """A preamble comes back as it was."""
    assert decode_preamble(encode_preamble(preamble)) == preamble


@given(IDENTITIES)
def test_identity_round_trip(identity: Identity) -> None:
    """An identity comes back as it was."""
    assert decode_identity(encode_identity(identity)) == identity


@given(st.data())
def test_push_round_trip(data: st.DataObject) -> None:
    """A push comes back as it was."""
    serials = sorted(data.draw(st.sets(st.integers(1, 1 << 60), max_size=4)))
    batch = PushBatch(
        data.draw(LIVES),
        data.draw(IDENTITIES),
        tuple(data.draw(step_records(serial=serial)) for serial in serials),
        data.draw(NANOSECONDS),
    )

    assert decode_push(encode_push(batch)) == batch


@pytest.mark.parametrize("decode", DECODERS, ids=lambda decode: decode.__name__)
@given(st.binary(max_size=700))
def test_any_bytes_are_refused_with_a_reason(decode: Callable[[bytes], Any], data: bytes) -> None:
    """Whatever the bytes, the decoder answers or names one of the listed reasons."""
    assert outcome(decode, data)[1] in (None, *layout.WIRE_REASONS)


@given(st.binary(min_size=316, max_size=316))
def test_any_record_with_a_right_sum(body: bytes) -> None:
    """A checksum proves nothing about the content: it is still checked, and never gives negative own time."""
    record, reason = outcome(decode_record, body + crc32(body).to_bytes(4, "little"))

    assert reason in (None, "bad_value")
    assert record is None or record.own_ns is None or record.own_ns >= 0


FULL = StepRecord(
    serial=9,
    step=9,
    end_monotonic_ns=10**9,
    end_realtime_ns=10**18,
    flags=layout.FLAG_OWN,
    own_reason=0,
    wall_ns=900,
    phase_ns=(100,) * layout.PHASE_COUNT,
    host_data_ns=0,
    total_steps=9,
    total_wall_ns=9000,
    total_own_ns=5000,
    total_wait_ns=4000,
    total_unmeasured_steps=9,
    arrivals=9,
    total_phase_ns=(1000,) * layout.PHASE_COUNT,
    total_tokens=0,
    total_allreduce_bytes=0,
    total_flops=0.0,
    total_samples=0,
    total_profiled_steps=9,
)
"""Its parts just fit into each other."""


@pytest.mark.parametrize(
    "impossible",
    [
        {"serial": 0},
        {"wall_ns": (1 << 62) + 1, "total_wall_ns": (1 << 62) + 1},
        {"flags": 0},
        {"own_reason": 1},
        {"wall_ns": 899},
        {"total_wall_ns": 8999, "total_phase_ns": (0,) * layout.PHASE_COUNT},
        {"total_phase_ns": (1001,) * layout.PHASE_COUNT},
        {"total_own_ns": 5001},
        {"total_wait_ns": 4001},
        {"total_unmeasured_steps": 10},
        {"total_profiled_steps": 10},
        {"total_flops": math.inf},
        {"total_flops": -1.0},
    ],
    ids=str,
)
def test_impossible_record(impossible: dict[str, Any]) -> None:
    """A record whose numbers contradict each other is refused, whoever wrote it, and one that just fits is not."""
    assert outcome(decode_record, encode_record(FULL)) == (FULL, None)

    assert outcome(decode_record, encode_record(FULL._replace(**impossible)))[1] == "bad_value"


@pytest.mark.parametrize(
    "impossible",
    [
        {"status": 99},
        {"excluded_phase": layout.PHASES.index("forward")},
        {"updated_realtime_ns": (1 << 62) + 1},
        {"updated_monotonic_ns": (1 << 62) + 1},
    ],
    ids=str,
)
def test_impossible_live_block(impossible: dict[str, Any]) -> None:
    """A live block says one of the known states, a phase that may last, and times that a clock can show."""
    live = Live(1, 1, 1, 1, layout.STATUS_RUNNING, layout.PHASES.index("checkpoint"))

    assert outcome(decode_live, encode_live(live)) == (live, None)
    assert outcome(decode_live, encode_live(live._replace(**impossible)))[1] == "bad_value"


@given(record=step_records(), bit=st.integers(0, layout.RECORD_BYTES * 8 - 1))
def test_a_flipped_bit_is_seen(record: StepRecord, bit: int) -> None:
    """One wrong bit anywhere in a record is never taken for another record."""
    data = bytearray(encode_record(record))
    data[bit // 8] ^= 1 << bit % 8

    with pytest.raises(WireError) as refused:
        decode_record(bytes(data))
    assert refused.value.reason == "bad_checksum"


@given(old=step_records(), new=step_records(), cut=st.integers(1, layout.RECORD_BYTES - 1))
def test_a_torn_record_is_seen(old: StepRecord, new: StepRecord, cut: int) -> None:
    """A slot that is half overwritten is one of the two records, or refused: never a mixture."""
    record, reason = outcome(decode_record, encode_record(new)[:cut] + encode_record(old)[cut:])

    assert record in (old, new) or reason == "bad_checksum"


@given(record=step_records(), extra=st.binary(min_size=1, max_size=64))
def test_a_longer_record_of_a_later_version(record: StepRecord, extra: bytes) -> None:
    """Fields that a later minor version appends are skipped; the sum is in the slot's last four bytes."""
    body = encode_record(record)[:-4] + extra
    assert decode_record(body + crc32(body).to_bytes(4, "little")) == record


def test_unknown_keys_and_reasons_of_a_later_version() -> None:
    """What a later version says more is ignored, and a reason that is not known stays a reason."""
    text = b"run=r\nrank=3\ncolour=green\nown_reason=moon_phase\n"
    identity = decode_identity(layout.IDENTITY_HEAD.pack(len(text), crc32(text)) + text)

    assert identity == Identity("r", 3, own_reason="unknown")


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        (b"rank=1\n", "no run"),
        (b"run=r\n", "no rank"),
        (b"run=\nrank=1\n", "no run"),
        (b"run=r\nrank=-1\n", "rank"),
        (b"run=r\nrank=1e3\n", "rank"),
        (b"run=r\nrank=\xd9\xa3\n", "rank"),
        (b"run=r\nrank=" + b"9" * 4000 + b"\n", "bytes"),
        (b"run=" + b"x" * 257 + b"\nrank=1\n", "run of 257"),
        (b"run=\xff\nrank=1\n", "UTF-8"),
        (b"run=r\nrank=1\nclock=moon\n", "clock"),
    ],
)
def test_bad_identity(text: bytes, detail: str) -> None:
    """An identity that cannot be used is refused, and the text says which part of it."""
    with pytest.raises(WireError, match=detail) as refused:
        decode_identity(layout.IDENTITY_HEAD.pack(len(text), crc32(text)) + text)
    assert refused.value.reason == "bad_identity"


def test_too_much_identity_is_refused_by_the_encoder() -> None:
    """Values are cut and line breaks taken out, so that no value can pretend to be another line."""
    identity = decode_identity(encode_identity(Identity("a\nrank=7", 1, node="n" * 1000)))

    assert (identity.run, identity.rank, len(identity.node)) == ("a rank=7", 1, 256)


@given(PREAMBLES, st.integers(1, 1 << 60))
def test_slots_are_inside_the_file(preamble: Preamble, serial: int) -> None:
    """Each record has its slot behind the header and before the end of the file, and the next lap uses it again."""
    offset = slot_offset(serial, preamble)

    assert layout.RECORDS_OFFSET <= offset <= file_bytes(preamble) - preamble.record_bytes
    assert slot_offset(serial + preamble.capacity, preamble) == offset


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:31], "too_short"),
        (lambda data: b"X" + data[1:], "bad_magic"),
        (lambda data: data[:8] + b"\x09\x00" + data[10:], "unknown_version"),
        (lambda data: data[:20] + b"\x01" + data[21:], "bad_checksum"),
        (lambda data: data[: HEAD.size] + b"\x07" + data[HEAD.size + 1 :], "bad_checksum"),
        (lambda data: data + b"\0", "bad_geometry"),
        (lambda data: data[:-1], "bad_geometry"),
    ],
)
def test_bad_push(change: Callable[[bytes], bytes], reason: str) -> None:
    """A damaged push is refused as a whole, with the reason."""
    record = StepRecord(1, 1, 1, 1, 0, 1, 9, (1,) * 9, 0, 1, 9, 0, 0, 1, 0, (1,) * 9, 0, 0, 0.0, 0, 0)
    good = encode_push(PushBatch(Live(1, 1, 1, 1, 1, None), Identity("r", 0), (record,), 5))
    assert decode_push(good).records == (record,)

    with pytest.raises(WireError) as refused:
        decode_push(change(good))
    assert refused.value.reason == reason
