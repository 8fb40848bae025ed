"""A push: the same records as in the ring, several of them in the body of one ``POST /api/v1/push``.

======================  ======================  =======================================================
bytes                   part                    says
======================  ======================  =======================================================
0 .. 32                 head                    how many records of what size follow, and from which start
32 .. 96                live block              as in the ring: arrivals, status, excluded phase
96 .. 104 + L           identity block          as in the ring: head (8 bytes) and L bytes of text
then count * size       records                 as in the ring, serials rising
======================  ======================  =======================================================

``created_realtime_ns`` is drawn once per process. It tells a restarted rank, whose serials and totals begin anew, from
a body that arrives late or twice. The sender repeats a body whose answer it did not get, so a receiver skips records
whose serial it has already seen from the same start. Serials may have gaps: the sender's queue is bounded and drops
the oldest. The totals in each record make that harmless.

A body without records is a sign of life: the live block changes in a hang too.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple
from zlib import crc32

from straggler.errors import WireError
from straggler.wire import layout
from straggler.wire.decode import MAX_RECORD_BYTES, MAX_TIME_NS, decode_identity, decode_live, decode_record
from straggler.wire.encode import encode_identity, encode_live, encode_record
from straggler.wire.records import Identity, Live, StepRecord

CONTENT_TYPE: Final = "application/x-straggler-push"
HEAD: Final = struct.Struct("<8sHHIQII")
"""magic, version, record_bytes, count of records, created_realtime_ns, zeros, CRC-32 of the 28 bytes before."""
MAX_RECORDS: Final = 4096
"""A body that claims more is refused; the hook sends at most 1,024."""
MAX_BYTES: Final = HEAD.size + layout.LIVE_BYTES + layout.IDENTITY_BYTES + MAX_RECORDS * layout.RECORD_BYTES
"""Longest body that a receiver need read: 1.3 MB."""


class PushBatch(NamedTuple):
    """What one push says."""

    live: Live
    identity: Identity
    records: tuple[StepRecord, ...]
    """Oldest first; serials rise and may have gaps."""
    created_realtime_ns: int
    """When the sending process began: the same in all its pushes, another one after a restart."""


def encode_push(batch: PushBatch) -> bytes:
    """The whole body."""
    records = [encode_record(record) for record in batch.records]
    return join_push(batch.created_realtime_ns, encode_live(batch.live), encode_identity(batch.identity), records)


def join_push(created_realtime_ns: int, live: bytes, identity: bytes, records: Sequence[bytes]) -> bytes:
    """The whole body, from parts that are encoded already; ``records`` are ``layout.RECORD_BYTES`` long each."""
    head = HEAD.pack(layout.PUSH_MAGIC, layout.VERSION, layout.RECORD_BYTES, len(records), created_realtime_ns, 0, 0)[
        :-4
    ]
    return b"".join((head, crc32(head).to_bytes(4, "little"), live, identity, *records))


def decode_push(data: bytes) -> PushBatch:
    """Read a whole body; nothing of a body with a fault in it is used.

    Raises:
        WireError: one of ``layout.WIRE_REASONS``.
    """
    count, record_bytes, created = _decode_head(data)
    live = decode_live(data[HEAD.size : HEAD.size + layout.LIVE_BYTES])
    start = HEAD.size + layout.LIVE_BYTES
    identity = decode_identity(data[start : start + layout.IDENTITY_BYTES])
    text_bytes, _checksum = layout.IDENTITY_HEAD.unpack_from(data, start)
    start += layout.IDENTITY_HEAD.size + text_bytes
    if len(data) != start + count * record_bytes:
        raise WireError("bad_geometry", f"{len(data)} bytes, but {count} records end at {start + count * record_bytes}")
    records = tuple(decode_record(data[at : at + record_bytes]) for at in range(start, len(data), record_bytes))
    for older, newer in pairwise(records):
        if newer.serial <= older.serial:
            raise WireError("bad_value", f"serial {newer.serial} after {older.serial}")
    return PushBatch(live, identity, records, created)


def _decode_head(data: bytes) -> tuple[int, int, int]:
    if len(data) < HEAD.size:
        raise WireError("too_short", f"push of {len(data)} bytes")
    magic, version, record_bytes, count, created, _zeros, checksum = HEAD.unpack_from(data)
    if magic != layout.PUSH_MAGIC:
        raise WireError("bad_magic", repr(magic))
    if version != layout.VERSION:
        raise WireError("unknown_version", f"version {version}, this program reads {layout.VERSION}")
    if checksum != crc32(data[: HEAD.size - 4]):
        raise WireError("bad_checksum", "head of the push")
    if not layout.RECORD_BYTES <= record_bytes <= MAX_RECORD_BYTES or count > MAX_RECORDS:
        raise WireError("bad_geometry", f"{count} records of {record_bytes} bytes")
    if created > MAX_TIME_NS:
        raise WireError("bad_value", "time out of range")
    return count, record_bytes, created
