"""Asking for the writer's lock, with real processes: the kernel's struct is only right if the kernel answers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ring_files import RingFile, Trainer, trainer
from straggler.sources.rings.lock import lock_held


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the ring is."""
    return tmp_path / "a.ring"


@pytest.fixture
def holder(path: Path) -> Iterator[Trainer]:
    """A process that holds the lock."""
    with trainer(path) as process:
        yield process


@pytest.fixture
def descriptor(holder: Trainer, path: Path) -> Iterator[int]:
    """The file, open for reading only."""
    del holder
    number = os.open(path, os.O_RDONLY)
    yield number
    os.close(number)


def test_free_file_is_not_held(path: Path) -> None:
    """Where nobody has a lock, the answer is no."""
    ring = RingFile(path)

    assert lock_held(ring.descriptor) is False


def test_sees_the_lock_of_another_process(descriptor: int) -> None:
    """A read-only descriptor is enough to see the lock, as often as one asks."""
    assert [lock_held(descriptor) for _ in range(3)] == [True, True, True]


def test_never_takes_the_lock(path: Path) -> None:
    """However often one asks, and however long one keeps the file open, a writer can lock it without waiting."""
    ring = RingFile(path)
    lock_held(ring.descriptor)
    lock = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"

    assert subprocess.run([sys.executable, "-c", lock, str(path)], check=False).returncode == 0


def test_lock_dies_with_the_process_and_not_with_its_workers(holder: Trainer, descriptor: int) -> None:
    """A SIGKILLed trainer loses the lock though forked workers live on with the descriptor."""
    worker = int(holder.do("fork"))
    try:
        holder.kill()

        assert lock_held(descriptor) is False
    finally:
        os.kill(worker, signal.SIGKILL)


def test_open_and_close_drops_the_lock(holder: Trainer, descriptor: int) -> None:
    """Whoever opens and closes the file in the holder's process drops the lock: its loss alone proves no crash."""
    holder.do("open_and_close")

    assert lock_held(descriptor) is False


def test_cannot_tell_on_what_has_no_locks() -> None:
    """A descriptor that cannot have locks gives no answer, which is not the answer no."""
    number = os.open("/", os.O_PATH)
    try:
        assert lock_held(number) is None
    finally:
        os.close(number)
