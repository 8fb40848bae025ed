"""Reads a ring file whole, as the tests of the PyTorch hook need it."""

from __future__ import annotations

import subprocess

from straggler.wire import decode, layout
from straggler.wire.records import StepRecord


def records(path: str, after: int) -> list[StepRecord]:
    """The records of a ring with a serial above ``after``, in order.

    Read by another process: if the one that writes the ring closed any descriptor of it, its lock would be gone.
    """
    data = subprocess.run(["cat", path], stdout=subprocess.PIPE, check=True).stdout
    slots = (data[at : at + layout.RECORD_BYTES] for at in range(layout.RECORDS_OFFSET, len(data), layout.RECORD_BYTES))
    found = (decode.decode_record(slot) for slot in slots if any(slot[:8]))
    return sorted((one for one in found if one.serial > after), key=lambda one: one.serial)
