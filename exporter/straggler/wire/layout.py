"""The ring file, byte by byte: how a step gets from the training process to the sidecar.

One file per rank. All integers are little-endian; all times are nanoseconds. The parts, in order:

======================  ==========================  ==================================================
bytes                   part                        written
======================  ==========================  ==================================================
0 .. 64                 preamble                    once, last: a file without its magic is not ready
64 .. 128               live block                  on each arrival, on entering and leaving
                                                    ``checkpoint`` and ``eval``, and as the goodbye
128 .. 4096             identity block              at the start, and when more of it is known
4096 .. 4096 + N * 320  N slots of one record each  one record per step: record ``i`` (the first is 1)
                                                    goes into slot ``(i - 1) % N``
======================  ==========================  ==================================================

Why it is built like this:

- The writer only ever calls ``pwrite`` into space that was allocated at the start. It takes no lock and waits for
  nobody, so a slow, dead or missing reader costs the training loop nothing, and a full tmpfs is an error code
  instead of the SIGBUS that a mapped file would give.
- A reader may look at any moment, in the middle of a write too. So each part ends in a CRC-32 of the bytes before
  it. A part whose sum is wrong is *not yet written*; it is read again later.
- The reader needs no head pointer. It knows the serial it wants next and looks into that record's slot: the record
  is there (its own serial says so), or it is not there yet (the slot holds the serial of one lap before, or zeros), or
  the reader was lapped (the slot holds a later serial).
- Each record carries the totals since the start besides the step's own figures. A reader that comes late, was
  restarted or was lapped still has exact counters; only its window of single steps is shorter.
- The identity block is text, ``key=value`` lines, so that a field can be added without a new version; unknown keys
  are ignored. Everything else is fixed, and a change of it is a new version.

Version policy: ``VERSION`` changes when bytes 0 .. 128 or the record change their meaning. A reader reads the
versions it knows and refuses others with the reason ``unknown_version``. Fields may be added at the end of the
record (``record_bytes`` in the preamble tells the size), which older readers skip.
"""

from __future__ import annotations

import struct
from typing import Final

MAGIC: Final = b"STRGRING"
PROFILE_SUFFIXES: Final = (".profile", ".profiled", ".trace.json.gz")
"""What may lie beside ``NAME.ring`` under its name: see ``wire.profile``. Whoever removes a ring removes them too."""
PUSH_MAGIC: Final = b"STRGPUSH"
VERSION: Final = 1

PREAMBLE_OFFSET: Final = 0
PREAMBLE_BYTES: Final = 64
LIVE_OFFSET: Final = 64
LIVE_BYTES: Final = 64
IDENTITY_OFFSET: Final = 128
IDENTITY_BYTES: Final = 4096 - 128
RECORDS_OFFSET: Final = 4096
RECORD_BYTES: Final = 320

DEFAULT_CAPACITY: Final = 4096
"""Slots in a ring: 40 s of steps at 100 steps a second, 1.3 MB of tmpfs."""
MAX_CAPACITY: Final = 65_536
"""A ring that claims more is refused: the reader's memory is not the writer's to choose."""

PREAMBLE: Final = struct.Struct("<8sHHIIIQQ20sI")
"""magic, version, header pages (1), record_bytes, capacity, pid, created_realtime_ns, created_monotonic_ns,
zeros, CRC-32 of the 60 bytes before. 64 bytes."""

LIVE: Final = struct.Struct("<QQQQBB26sI")
"""arrivals, records written, updated_monotonic_ns, updated_realtime_ns, status, excluded phase + 1 (0: none),
zeros, CRC-32 of the 60 bytes before. 64 bytes."""

IDENTITY_HEAD: Final = struct.Struct("<II")
"""length of the text in bytes, CRC-32 of the text. The text follows."""

PHASES: Final = ("data", "h2d", "forward", "backward", "wait", "optimizer", "checkpoint", "eval", "other")
"""The phases of a step. Their order is the order of ``phase_ns`` in a record and never changes."""
PHASE_COUNT: Final = len(PHASES)
PHASE_INDEX: Final = {name: index for index, name in enumerate(PHASES)}
WAIT: Final = PHASE_INDEX["wait"]
OTHER: Final = PHASE_INDEX["other"]
EXCLUDED: Final = (PHASE_INDEX["checkpoint"], PHASE_INDEX["eval"])
"""Phases that are neither own time nor waiting: they never count as slowness."""

RECORD_BODY: Final = struct.Struct("<4Q2I" + f"Q{PHASE_COUNT}Q" + "Q" + "6Q" + f"{PHASE_COUNT}Q" + "QQd" + "3Q" + "16s")
"""serial, step, end_monotonic_ns, end_realtime_ns, flags, own_reason; wall_ns, phase_ns[9]; host_data_ns;
total_steps, total_wall_ns, total_own_ns, total_wait_ns, total_unmeasured_steps, arrivals; total_phase_ns[9];
total_tokens, total_allreduce_bytes, total_flops (double); total_samples, total_profiled_steps, total_host_data_ns;
zeros. 312 bytes."""

RECORD_CRC: Final = struct.Struct("<II")
"""zeros, CRC-32 of all bytes of the record before this sum. The sum is the last four bytes of the slot, also in a
longer record of a later minor version."""

FLAG_OWN: Final = 1
"""Own time is measured: own = wall - wait - checkpoint - eval. Without it, ``own_reason`` says why it is absent."""
FLAG_TOKENS: Final = 2
"""``total_tokens`` is known to the loop (0 means none yet, not unknown)."""
FLAG_FLOPS: Final = 4
FLAG_ALLREDUCE: Final = 8
FLAG_PROFILED: Final = 16
"""A profiler ran during the step: it stays out of the window that verdicts compare."""
FLAG_FAILED: Final = 32
"""The step ended by an exception."""
FLAG_SAMPLES: Final = 64
"""``total_samples`` is known to the loop."""

STATUS_RUNNING: Final = 1
STATUS_FINISHED: Final = 2
"""Goodbye of a normal interpreter exit or of ``close()``."""
STATUS_EXCEPTION: Final = 3
"""Goodbye of an interpreter that ends because of an uncaught exception."""
STATUS_OFF: Final = 4
"""The hook has switched itself off after a fault of its own. The rank may well go on: it is unseen, neither hung nor
crashed."""
STATUSES: Final = (STATUS_RUNNING, STATUS_FINISHED, STATUS_EXCEPTION, STATUS_OFF)

OWN_REASONS: Final = (
    "measured",
    "no_wait_phase",  # the loop never marked waiting: own would equal the step
    "gpu_clock_missing",  # an asynchronous GPU was used and the host's clock cannot see it
    "hidden_collectives",  # functional or DTensor collectives, DeepEP: not visible to the hook
    "cuda_graph",  # a whole-step graph fires no hooks on replay
    "too_many_brackets",  # more waits in a step than the event pool holds
    "switched_off",  # the user said so
    "unknown",  # a reason of a later version: the decoder writes it, the hook never
    "bad_clock",  # the step's times do not add up: the clock went back, or an interrupt hit the bookkeeping
)
"""Why own time is absent. The index is ``own_reason`` in a record; 0 goes with ``FLAG_OWN``. Only ever appended to."""
OWN_REASON_UNKNOWN: Final = OWN_REASONS.index("unknown")

WIRE_REASONS: Final = (
    "too_short",
    "bad_magic",
    "unknown_version",
    "bad_geometry",
    "bad_checksum",
    "bad_identity",
    "bad_value",
    "torn",
)
"""Why bytes are refused; the label of ``straggler_exporter_refused_total``."""
