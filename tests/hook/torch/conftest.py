"""What the PyTorch tests share: they are skipped where torch is not installed."""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from straggler.hook.torch import lasting
from torch_jobs import ring_directory

if TYPE_CHECKING:
    from straggler.hook.torch.install import Instrument

collect_ignore = ["launched_job.py", "table.py", "training_job.py"]
if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def rings(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where rings go."""
    with ring_directory() as path:
        monkeypatch.setenv("STRAGGLER_DIR", str(path))
        monkeypatch.setenv("STRAGGLER_ALLOW_ANY_FILESYSTEM", "1")
        yield path


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of what other tests compiled and wrapped in this process."""
    monkeypatch.setattr(lasting, "of_process", lasting.Lasting())


@pytest.fixture
def instrument(rings: Path) -> Iterator[Instrument]:
    """The instrument of this process."""
    from straggler.hook.torch import install

    del rings
    install.stop()
    yield install.start()
    install.stop()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A process group of one."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    gc.collect()
    if dist.is_initialized():
        dist.destroy_process_group()
