"""One spelling for what identifies a GPU. Exporters, drivers and CUDA write the same id in several ways."""

from __future__ import annotations

import re

# GPU-5fd4a7f5-1b1c-2a7c-1f1e-2b6a4d0c9e11        (drivers; nvidia-smi based exporters leave GPU- out)
_FULL = re.compile(r"(?:GPU-)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.IGNORECASE)
# GPU-5fd4a7f5                                    (abbreviated, or a test's)
_PREFIXED = re.compile(r"GPU-([0-9a-z-]{1,64})", re.IGNORECASE)

# 00000000:1B:00.0, 0000:1b:00.0, 1b:00.0, 0000:1b:00     (NVML, sysfs, lspci, the kernel's Xid lines)
_BUS_ID = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", re.IGNORECASE)


def normal_uuid(text: str) -> str:
    """``GPU-`` and the rest in lower case; ``""`` if the text is no GPU's UUID.

    Args:
        text: with or without the prefix; without it only a whole UUID counts.
    """
    match = _FULL.fullmatch(text.strip()) or _PREFIXED.fullmatch(text.strip())
    return f"GPU-{match[1].lower()}" if match else ""


def is_full_uuid(uuid: str) -> bool:
    """Whether a normal UUID is whole, so that it names one GPU in the world."""
    return _FULL.fullmatch(uuid) is not None


def normal_bus_id(text: str) -> str:
    """``00000000:1B:00.0``: eight-digit domain, upper case, with the function; ``""`` if the text is no bus id."""
    match = _BUS_ID.fullmatch(text.strip())
    if match is None:
        return ""
    domain, bus, device, function = match.groups(default="0")
    return f"{domain:0>8}:{bus}:{device}.{function}".upper()
