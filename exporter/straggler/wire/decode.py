"""Bytes to records. Content is hostile: any bytes give a record or a ``WireError`` with a listed reason."""

from __future__ import annotations

import math
from zlib import crc32

from straggler.errors import WireError
from straggler.wire import layout
from straggler.wire.encode import max_characters
from straggler.wire.records import Identity, Live, Preamble, StepRecord

_NUMBERS = frozenset({"rank", "world_size", "local_rank", "local_world_size", "attempt", "gpu", "gpu_instance"})
_MAX_NUMBER = 10_000_000
MAX_TIME_NS = 1 << 62
"""The year 2116, or 146 years of uptime: what is later is no time."""
MAX_RECORD_BYTES = 4096


def decode_preamble(data: bytes) -> Preamble:
    """Read the first 64 bytes of a file.

    Raises:
        WireError: ``too_short``, ``bad_magic``, ``unknown_version``, ``bad_checksum``, ``bad_geometry`` or
            ``bad_value``.
    """
    if len(data) < layout.PREAMBLE_BYTES:
        raise WireError("too_short", f"preamble of {len(data)} bytes")
    block = data[: layout.PREAMBLE_BYTES]
    magic, version, pages, record_bytes, capacity, pid, realtime, monotonic, _zeros, checksum = layout.PREAMBLE.unpack(
        block
    )
    if magic != layout.MAGIC:
        raise WireError("bad_magic", repr(magic))
    if version != layout.VERSION:
        raise WireError("unknown_version", f"version {version}, this program reads {layout.VERSION}")
    if checksum != crc32(block[:-4]):
        raise WireError("bad_checksum", "preamble")
    if pages != 1 or not layout.RECORD_BYTES <= record_bytes <= MAX_RECORD_BYTES:
        raise WireError("bad_geometry", f"{pages} header pages, records of {record_bytes} bytes")
    if not 1 <= capacity <= layout.MAX_CAPACITY:
        raise WireError("bad_geometry", f"capacity {capacity}")
    if max(realtime, monotonic) > MAX_TIME_NS:
        raise WireError("bad_value", "time out of range")
    return Preamble(version, record_bytes, capacity, pid, realtime, monotonic)


def decode_live(data: bytes) -> Live:
    """Read the 64 bytes of the live block.

    Raises:
        WireError: ``too_short``, ``bad_checksum`` (also while it is being written) or ``bad_value``.
    """
    if len(data) < layout.LIVE_BYTES:
        raise WireError("too_short", f"live block of {len(data)} bytes")
    block = data[: layout.LIVE_BYTES]
    arrivals, records, monotonic, realtime, status, excluded, _zeros, checksum = layout.LIVE.unpack(block)
    if checksum != crc32(block[:-4]):
        raise WireError("bad_checksum", "live block")
    if status not in layout.STATUSES:
        raise WireError("bad_value", f"status {status}")
    if excluded and excluded - 1 not in layout.EXCLUDED:
        raise WireError("bad_value", f"excluded phase {excluded}")
    if max(monotonic, realtime) > MAX_TIME_NS:
        raise WireError("bad_value", "time out of range")
    return Live(arrivals, records, monotonic, realtime, status, excluded - 1 if excluded else None)


def decode_identity(data: bytes) -> Identity:
    """Read the identity block: its head and as much text as the head says.

    Raises:
        WireError: ``too_short``, ``bad_checksum`` (also while it is being written) or ``bad_identity``.
    """
    if len(data) < layout.IDENTITY_HEAD.size:
        raise WireError("too_short", f"identity block of {len(data)} bytes")
    length, checksum = layout.IDENTITY_HEAD.unpack_from(data)
    if length > layout.IDENTITY_BYTES - layout.IDENTITY_HEAD.size:
        raise WireError("bad_identity", f"claims {length} bytes")
    text = data[layout.IDENTITY_HEAD.size : layout.IDENTITY_HEAD.size + length]
    if len(text) < length:
        raise WireError("too_short", f"identity text of {len(text)} of {length} bytes")
    if checksum != crc32(text):
        raise WireError("bad_checksum", "identity block")
    values = _identity_values(bytes(text))
    if "rank" not in values or not values.get("run"):
        raise WireError("bad_identity", "no run or no rank")
    if values.get("own_reason", "measured") not in layout.OWN_REASONS:
        values["own_reason"] = "unknown"  # a reason of a later version: absent is all we know
    if values.get("clock", "host") not in ("host", "cuda"):
        raise WireError("bad_identity", f"clock {values['clock']!r}")
    return Identity(**values)  # type: ignore[arg-type]


def _identity_values(text: bytes) -> dict[str, str | int]:
    try:
        lines = text.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise WireError("bad_identity", "not UTF-8") from error
    values: dict[str, str | int] = {}
    for line in lines:
        key, equals, value = line.partition("=")
        if not equals or key not in Identity._fields:
            continue  # a later version may say more
        if len(value) > max_characters(key):
            raise WireError("bad_identity", f"{key} of {len(value)} characters")
        values[key] = _number(key, value) if key in _NUMBERS else value
    return values


def _number(key: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 9 and int(value) <= _MAX_NUMBER):
        raise WireError("bad_identity", f"{key}={value[:40]!r} is no number of 0 to {_MAX_NUMBER}")
    return int(value)


def decode_record(data: bytes) -> StepRecord:
    """Read one slot, whole: the checksum is its last four bytes.

    Raises:
        WireError: ``too_short``, ``bad_checksum`` (also while it is being written) or ``bad_value``.
    """
    if len(data) < layout.RECORD_BYTES:
        raise WireError("too_short", f"record of {len(data)} bytes")
    if int.from_bytes(data[-4:], "little") != crc32(data[:-4]):
        raise WireError("bad_checksum", "record")
    field = layout.RECORD_BODY.unpack_from(data)
    first = 7  # serial, step, two times, flags, reason, wall
    second = first + layout.PHASE_COUNT
    third = second + 7  # host_data, six totals
    fourth = third + layout.PHASE_COUNT
    record = StepRecord(  # type: ignore[call-arg]
        *field[:first],
        field[first:second],
        *field[second:third],
        field[third:fourth],
        *field[fourth : fourth + 6],
    )
    if record.own_reason >= len(layout.OWN_REASONS):
        record = record._replace(own_reason=layout.OWN_REASON_UNKNOWN)  # a reason of a later version
    _check(record)
    return record


def _check(record: StepRecord) -> None:
    if record.serial < 1:
        raise WireError("bad_value", "serial 0")
    if max(record.end_monotonic_ns, record.end_realtime_ns, record.wall_ns, record.total_wall_ns) > MAX_TIME_NS:
        raise WireError("bad_value", "time out of range")
    if bool(record.flags & layout.FLAG_OWN) != (record.own_reason == 0):
        raise WireError("bad_value", f"own_reason {record.own_reason} with flags {record.flags}")
    if sum(record.phase_ns) > record.wall_ns:
        raise WireError("bad_value", "phases are longer than the step")
    if sum(record.total_phase_ns) > record.total_wall_ns:
        raise WireError("bad_value", "the phases' totals are longer than the wall time")
    if record.total_own_ns + record.total_wait_ns > record.total_wall_ns:
        raise WireError("bad_value", "own and wait are longer than the wall time")
    if max(record.total_unmeasured_steps, record.total_profiled_steps) > record.total_steps:
        raise WireError("bad_value", "more steps of a kind than steps")
    if not 0 <= record.total_flops < math.inf:
        raise WireError("bad_value", "flops")


def slot_offset(serial: int, preamble: Preamble) -> int:
    """Byte offset in the file of the record with this serial (1 or more)."""
    return layout.RECORDS_OFFSET + (serial - 1) % preamble.capacity * preamble.record_bytes


def file_bytes(preamble: Preamble) -> int:
    """The size that a ring file of this geometry has."""
    return layout.RECORDS_OFFSET + preamble.capacity * preamble.record_bytes
