"""One spelling for UUIDs and bus ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from straggler.model.gpu_identity import is_full_uuid, normal_bus_id, normal_uuid

UUID = "GPU-5fd4a7f5-1b1c-2a7c-1f1e-2b6a4d0c9e11"


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        (UUID, UUID),
        (UUID.upper(), UUID),
        (f" {UUID}\n", UUID),
        (UUID.removeprefix("GPU-"), UUID),
        ("GPU-5FD4", "GPU-5fd4"),
        ("GPU-x", "GPU-x"),
        ("5fd4a7f5", ""),
        ("MIG-5fd4a7f5-1b1c-2a7c-1f1e-2b6a4d0c9e11", ""),
        ("GPU-", ""),
        ("GPU-a b", ""),
        ("GPU-" + "a" * 65, ""),
        ("nvidia0", ""),
        ("", ""),
    ],
)
def test_uuid(text: str, normal: str) -> None:
    """All spellings of a GPU's UUID become one, and what is none becomes nothing."""
    assert normal_uuid(text) == normal


def test_full_uuid() -> None:
    """Only a whole UUID names one GPU in the world."""
    assert is_full_uuid(UUID)
    assert not is_full_uuid("GPU-5fd4a7f5")


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("00000000:1B:00.0", "00000000:1B:00.0"),
        ("0000:1b:00.0", "00000000:1B:00.0"),
        ("1b:00.0", "00000000:1B:00.0"),
        ("0000:3b:00", "00000000:3B:00.0"),
        ("0001:00:1e.0", "00000001:00:1E.0"),
        ("1B:00.8", ""),
        ("1b", ""),
        ("x", ""),
        ("", ""),
    ],
)
def test_bus_id(text: str, normal: str) -> None:
    """NVML, sysfs, lspci and the kernel write one bus id in four ways."""
    assert normal_bus_id(text) == normal


@given(st.text())
def test_normal_is_normal(text: str) -> None:
    """Whatever the text, what comes out is left as it is when it comes in again."""
    assert normal_uuid(normal_uuid(text)) == normal_uuid(text)
    assert normal_bus_id(normal_bus_id(text)) == normal_bus_id(text)
