"""Records to bytes. Used by the hook at its leisure and by tests; the per-step path packs by itself."""

from __future__ import annotations

from zlib import crc32

from straggler.wire import layout
from straggler.wire.records import Identity, Live, Preamble, StepRecord

MAX_VALUE_CHARACTERS = 256
"""Longest text of one identity field; the rest is cut off by the encoder and refused by the decoder."""
MAX_DEVICES_CHARACTERS = 2400
"""``visible_devices`` may be longer: 56 MIG instances at 41 characters each."""
_TIGHT_CHARACTERS = 48
_TEXT_BYTES = layout.IDENTITY_BYTES - layout.IDENTITY_HEAD.size


def max_characters(key: str) -> int:
    """How long the value of one identity field may be."""
    return MAX_DEVICES_CHARACTERS if key == "visible_devices" else MAX_VALUE_CHARACTERS


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

    Unknown fields are left out, line breaks in values become spaces, and long values are cut: a list of devices only
    between two devices. Should the text still not fit (it takes many long values outside ASCII), the list of devices
    is left out and all values are cut to 48 characters, so this never fails.
    """
    text = _identity_text(identity)
    if len(text) > _TEXT_BYTES:
        text = _identity_text(identity._replace(visible_devices=""), _TIGHT_CHARACTERS)
    return layout.IDENTITY_HEAD.pack(len(text), crc32(text)) + text


def _identity_text(identity: Identity, longest: int = MAX_DEVICES_CHARACTERS) -> bytes:
    lines = []
    for key, value in zip(Identity._fields, identity, strict=True):
        text = "" if value is None else " ".join(str(value).split())
        limit = min(longest, max_characters(key))
        if len(text) > limit:
            text = text[: limit + 1].rpartition(",")[0] if key == "visible_devices" else text[:limit].rstrip()
        if text:
            lines.append(f"{key}={text}\n")
    return "".join(lines).encode("utf-8", "replace")


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
