"""CUDA's spellings of a GPU."""

from __future__ import annotations

import pytest

from facts import identity
from straggler.join.visible import Named, named_gpu, read_name, visible_entries, visible_gpu

UUID = "GPU-5fd4a7f5-1b1c-2a7c-1f1e-2b6a4d0c9e11"
MIG = "MIG-8f7c2c2e-5d8e-5c3c-9a51-0b9a1f6d3a10"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (UUID, Named(UUID)),
        (UUID.upper(), Named(UUID)),
        (UUID.removeprefix("GPU-"), Named(UUID)),
        ("GPU-5fd4a7f5", Named("GPU-5fd4a7f5")),
        (f"MIG-{UUID}/7/0", Named(UUID, 7)),
        (MIG, Named(mig_uuid=MIG)),
        (MIG.upper(), Named(mig_uuid=MIG)),
        ("0", None),
        ("", None),
        ("MIG-", None),
        ("NoDevFiles", None),
    ],
)
def test_names(text: str, named: Named | None) -> None:
    """All forms that CUDA, its drivers and PyTorch write name what they should, and nothing else names anything."""
    assert read_name(text) == named


def test_own_instance_joins_the_name() -> None:
    """A rank that names the parent's UUID and its GPU instance apart names the instance."""
    assert named_gpu(identity(gpu_uuid=UUID, gpu_instance=0)) == Named(UUID, 0)


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("0,1,2", ("0", "1", "2")),
        (" 1 , 0 ", ("1", "0")),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("0,-1,1", ("0",)),
        ("0,0", ("0",)),
        (f"{UUID},{MIG}", (UUID, MIG)),
    ],
)
def test_cuda_stops_at_what_it_does_not_understand(text: str, entries: tuple[str, ...]) -> None:
    """The devices after an invalid entry are invisible to CUDA, so they are to us."""
    assert visible_entries(text) == entries


def test_one_entry_is_every_ranks_own() -> None:
    """A launcher that pins one GPU to each rank leaves one entry, whatever local_rank is."""
    visible = visible_gpu(identity(3, visible_devices="5"))

    assert visible is not None
    assert (visible.gpu_index, visible.total) == (5, 0)


@pytest.mark.parametrize(("devices", "total"), [("1,0,2", 3), ("0", 1), ("0,1,3", 0), ("4,5", 0), (UUID, 0)])
def test_only_a_plain_list_can_be_all_gpus(devices: str, total: int) -> None:
    """A list that leaves an index out names some GPUs of a node, and says nothing about how many there are."""
    visible = visible_gpu(identity(0, visible_devices=devices))

    assert visible is not None
    assert visible.total == total


@pytest.mark.parametrize("local_rank", [None, 2, -1])
def test_no_entry_without_a_fitting_local_rank(local_rank: int | None) -> None:
    """Of two entries none is the rank's if local_rank is unknown or out of range."""
    assert visible_gpu(identity(0, local_rank=local_rank, visible_devices="0,1")) is None
