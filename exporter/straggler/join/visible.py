"""What a rank says about its GPU, in CUDA's spellings."""

from __future__ import annotations

import re
from typing import NamedTuple

from straggler.model.gpu_identity import normal_uuid
from straggler.wire.records import Identity

# MIG-GPU-5fd4a7f5-1b1c-2a7c-1f1e-2b6a4d0c9e11/7/0     (drivers before R470: parent, GPU instance, compute instance)
_MIG_OLD = re.compile(r"MIG-(GPU-[0-9a-f-]+)/(\d{1,4})/\d{1,4}", re.IGNORECASE)
# MIG-8f7c2c2e-5d8e-5c3c-9a51-0b9a1f6d3a10             (since)
_MIG_NEW = re.compile(r"MIG-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_INDEX = re.compile(r"\d{1,4}")


class Named(NamedTuple):
    """A GPU by name. Either ``uuid`` or ``mig_uuid`` is given."""

    uuid: str = ""
    """Normal; may be abbreviated."""
    instance: int | None = None
    mig_uuid: str = ""
    """``MIG-`` and lower case: names an instance, and not its parent."""


class Visible(NamedTuple):
    """One entry of CUDA_VISIBLE_DEVICES."""

    named: Named | None
    gpu_index: int | None
    total: int
    """How many GPUs the whole list names, if it names 0, 1, … in any order; else 0: it cannot be all of a node's."""


def read_name(text: str) -> Named | None:
    """Read a UUID in any of CUDA's forms, or bare, as PyTorch prints it; ``None`` for anything else."""
    text = text.strip()
    if match := _MIG_OLD.fullmatch(text):
        return Named(normal_uuid(match[1]), int(match[2]))
    if _MIG_NEW.fullmatch(text):
        return Named(mig_uuid="MIG-" + text[4:].lower())
    uuid = normal_uuid(text)
    return Named(uuid) if uuid else None


def named_gpu(identity: Identity) -> Named | None:
    """The GPU that the rank itself names."""
    named = read_name(identity.gpu_uuid)
    if named is None or identity.gpu_instance is None or not named.uuid:
        return named
    return named._replace(instance=identity.gpu_instance)


def visible_entries(text: str) -> tuple[str, ...]:
    """The devices that CUDA sees, in its order; it stops at the first entry that it does not understand.

    Args:
        text: ``CUDA_VISIBLE_DEVICES``.
    """
    entries: list[str] = []
    for entry in map(str.strip, text.split(",")):
        if not (_INDEX.fullmatch(entry) or read_name(entry)) or entry in entries:
            break
        entries.append(entry)
    return tuple(entries)


def visible_gpu(identity: Identity) -> Visible | None:
    """The entry that is the rank's: the only one, or else the one at ``local_rank``, as all launchers do.

    Returns:
        ``None`` where the variable names nothing or ``local_rank`` picks none.
    """
    entries = visible_entries(identity.visible_devices)
    place = 0 if len(entries) == 1 else identity.local_rank
    if place is None or not 0 <= place < len(entries):
        return None
    entry = entries[place]
    index = int(entry) if _INDEX.fullmatch(entry) else None
    is_plain = set(entries) == set(map(str, range(len(entries))))
    return Visible(read_name(entry), index, len(entries) if is_plain else 0)
