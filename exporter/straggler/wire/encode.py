"""Records to bytes. Used by the hook at its leisure and by tests; the per-step path packs by itself."""

from __future__ import annotations

from zlib import crc32

from straggler.errors import WireError
from straggler.wire import layout
from straggler.wire.records import Identity, Live, Preamble, StepRecord

MAX_VALUE_CHARACTERS = 256
"""Longest text of one identity field; the rest is cut off by the encoder and refused by the decoder."""


def encode_preamble(preamble: Preamble) -> bytes:
    """64 bytes."""
    body = layout.PREAMBLE.pack(
        layout.MAGIC,
        preamble.version,
        1,
        preamble.record_bytes,
        preamble.capacity,
        preamble.pid,
        preamble.created_realtime_ns,
        preamble.created_monotonic_ns,
        b"",
        0,
    )[:-4]
    return body + crc32(body).to_bytes(4, "little")


def encode_live(live: Live) -> bytes:
    """64 bytes."""
    excluded = 0 if live.excluded_phase is None else live.excluded_phase + 1
    body = layout.LIVE.pack(
        live.arrivals,
        live.records,
        live.updated_monotonic_ns,
        live.updated_realtime_ns,
        live.status,
        excluded,
        b"",
        0,
    )[:-4]
    return body + crc32(body).to_bytes(4, "little")


def encode_identity(identity: Identity) -> bytes:
    """Head and text, at most ``layout.IDENTITY_BYTES``.

    Unknown fields are left out. Line breaks in values become spaces; long values are cut.

    Raises:
        WireError: ``bad_identity``, if the text does not fit: only possible with many very long values.
    """
    lines = []
    for key, value in zip(Identity._fields, identity, strict=True):
        if value is None or value == "":
            continue
        lines.append(f"{key}={' '.join(str(value).split())[:MAX_VALUE_CHARACTERS]}\n")
    text = "".join(lines).encode("utf-8", "replace")
    if len(text) > layout.IDENTITY_BYTES - layout.IDENTITY_HEAD.size:
        raise WireError("bad_identity", f"{len(text)} bytes of identity do not fit into {layout.IDENTITY_BYTES}")
    return layout.IDENTITY_HEAD.pack(len(text), crc32(text)) + text


def encode_record(record: StepRecord) -> bytes:
    """``layout.RECORD_BYTES`` bytes."""
    body = (
        layout.RECORD_BODY.pack(
            record.serial,
            record.step,
            record.end_monotonic_ns,
            record.end_realtime_ns,
            record.flags,
            record.own_reason,
            record.wall_ns,
            *record.phase_ns,
            record.host_data_ns,
            record.total_steps,
            record.total_wall_ns,
            record.total_own_ns,
            record.total_wait_ns,
            record.total_unmeasured_steps,
            record.arrivals,
            *record.total_phase_ns,
            record.total_tokens,
            record.total_allreduce_bytes,
            record.total_flops,
            record.total_samples,
            record.total_profiled_steps,
            record.total_host_data_ns,
            b"",
        )
        + b"\0\0\0\0"
    )
    return body + crc32(body).to_bytes(4, "little")
