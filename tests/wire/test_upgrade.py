"""Old and new beside each other: a hook and a sidecar are never upgraded at the same moment."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from fakes import FakeClock
from straggler.errors import WireError
from straggler.sources.push.store import PushStore
from straggler.sources.rings.read import RingSource
from straggler.wire import layout
from straggler.wire.decode import decode_identity, decode_live, decode_preamble, decode_record, slot_offset
from straggler.wire.encode import encode_identity, encode_live, encode_preamble, encode_record
from straggler.wire.push import HEAD, decode_push, encode_push

FIRST = Path(__file__).resolve().parents[1] / "captured" / "wire-v1"
STEPS = 40
LIMITS: dict[str, Any] = {
    "hang_steps": 10.0,
    "hang_min_seconds": 120.0,
    "hang_excluded_seconds": 3600.0,
    "gone_seconds": 1e12,
}


@pytest.fixture(scope="module")
def ring() -> bytes:
    """The stored ring."""
    return gzip.decompress((FIRST / "hook.ring.gz").read_bytes())


@pytest.fixture(scope="module")
def push() -> bytes:
    """The stored push."""
    return (FIRST / "hook.push").read_bytes()


def _read(tmp_path: Path, ring: bytes) -> tuple[RingSource, FakeClock]:
    path = tmp_path / "a.ring"
    path.write_bytes(ring)
    path.chmod(0o640)
    clock = FakeClock(now=path.stat().st_mtime)
    return RingSource(tmp_path, clock=clock, **LIMITS), clock


def _longer_ring(ring: bytes, extra: int) -> bytes:
    """The same ring as a later hook would write it: longer records, more keys in the identity."""
    preamble = decode_preamble(ring)._replace(record_bytes=layout.RECORD_BYTES + extra)
    head = encode_preamble(preamble) + ring[layout.LIVE_OFFSET : layout.IDENTITY_OFFSET]
    length, _ = layout.IDENTITY_HEAD.unpack_from(ring, layout.IDENTITY_OFFSET)
    start = layout.IDENTITY_OFFSET + layout.IDENTITY_HEAD.size
    text = ring[start : start + length].rstrip(b"\n") + b"\ncolour_of_the_node=blue\n"
    head += (layout.IDENTITY_HEAD.pack(len(text), crc32(text)) + text).ljust(layout.IDENTITY_BYTES, b"\0")
    slots = []
    for serial in range(1, preamble.capacity + 1):
        at = slot_offset(serial, decode_preamble(ring))
        slots.append(_longer_record(ring[at : at + layout.RECORD_BYTES], extra))
    return head + b"".join(slots)


def _longer_record(record: bytes, extra: int) -> bytes:
    if not any(record):
        return bytes(len(record) + extra)
    longer = record[:-4] + b"\x7f" * extra
    return longer + crc32(longer).to_bytes(4, "little")


def test_sidecar_reads_the_first_ring(tmp_path: Path, ring: bytes) -> None:
    """The ring of a hook of the first version gives its rank, totals and window, to the last digit."""
    source, _ = _read(tmp_path, ring)
    (rank,) = source.collect().facts
    last = decode_record(ring[slot_offset(STEPS, decode_preamble(ring)) :][: layout.RECORD_BYTES])
    source.close()

    assert (rank.key.run, rank.key.rank, rank.step) == ("llama-7b", 3, STEPS)
    assert rank.identity.world_size == 8
    assert rank.totals is not None
    assert rank.totals.steps == STEPS
    assert rank.totals.tokens == STEPS * 4096
    assert rank.totals.step_seconds == last.total_wall_ns * 1e-9
    assert rank.totals.own_seconds == last.total_own_ns * 1e-9
    assert source.counters.refused == {}


def test_sidecar_takes_the_first_push(push: bytes) -> None:
    """The push of a hook of the first version is taken whole."""
    outcome = PushStore(FakeClock(), **LIMITS).accept(push, allowed_namespace=None)

    assert (outcome.ok, outcome.accepted) == (True, STEPS)


def test_first_sidecar_reads_a_ring_of_today(ring: bytes) -> None:
    """What today's hook writes for the same facts is, byte for byte, what a reader of the first version knows."""
    preamble = decode_preamble(ring)
    live, identity = (slice(layout.LIVE_OFFSET, layout.IDENTITY_OFFSET), slice(layout.IDENTITY_OFFSET, 4096))

    assert encode_preamble(preamble) == ring[: layout.PREAMBLE_BYTES]
    assert encode_live(decode_live(ring[live])) == ring[live]
    encoded = encode_identity(decode_identity(ring[identity]))
    assert encoded == ring[identity][: len(encoded)]
    for serial in range(1, STEPS + 1):
        slot = ring[slot_offset(serial, preamble) :][: layout.RECORD_BYTES]
        assert encode_record(decode_record(slot)) == slot


def test_first_sidecar_takes_a_push_of_today(push: bytes) -> None:
    """The same for a push."""
    assert encode_push(decode_push(push)) == push


@pytest.mark.parametrize("extra", [8, 64])
def test_sidecar_reads_the_ring_of_a_later_hook(tmp_path: Path, ring: bytes, extra: int) -> None:
    """A later hook adds fields at the end of a record and keys to the identity: today's sidecar passes over them."""
    source, _ = _read(tmp_path, _longer_ring(ring, extra))
    (rank,) = source.collect().facts
    source.close()

    assert rank.totals is not None
    assert (rank.key.rank, rank.totals.steps, source.counters.records_read) == (3, STEPS, STEPS)


def test_sidecar_takes_the_push_of_a_later_hook(push: bytes) -> None:
    """The same for a push."""
    magic, version, size, count, created, zeros, _ = HEAD.unpack_from(push)
    head = HEAD.pack(magic, version, size + 8, count, created, zeros, 0)[:-4]
    start = len(push) - count * size
    records = (push[at : at + size] for at in range(start, len(push), size))
    later = head + crc32(head).to_bytes(4, "little") + push[HEAD.size : start]
    later += b"".join(_longer_record(record, 8) for record in records)

    assert PushStore(FakeClock(), **LIMITS).accept(later, allowed_namespace=None).accepted == STEPS


def test_next_version_is_refused_by_name(tmp_path: Path, ring: bytes, push: bytes) -> None:
    """What means something else has another version; a reader that does not know it says so and guesses nothing."""
    preamble = decode_preamble(ring)
    source, _ = _read(tmp_path, encode_preamble(preamble._replace(version=layout.VERSION + 1)) + ring[64:])
    reading = source.collect()
    source.close()
    assert [problem.reason for problem in reading.problems] == ["unknown_version"]

    with pytest.raises(WireError, match="unknown_version"):
        decode_push(push[:8] + (layout.VERSION + 1).to_bytes(2, "little") + push[10:])
