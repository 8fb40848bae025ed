"""A source over an empty directory, and its clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes import FakeClock
from straggler.sources.rings.read import RingSource


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The ring directory."""
    path = tmp_path / "rings"
    path.mkdir()
    return path


@pytest.fixture
def clock() -> FakeClock:
    """Both clocks; the wall clock agrees with the files' times at first."""
    return FakeClock(now=time.time())


MakeSource = Callable[..., RingSource]


@pytest.fixture
def make_source(root: Path, clock: FakeClock) -> Iterator[MakeSource]:
    """Make a source as the sidecar does; a second one is a sidecar after a restart."""
    made: list[RingSource] = []

    def make(**changes: Any) -> RingSource:
        arguments: dict[str, Any] = {
            "clock": clock,
            "hang_steps": 10.0,
            "hang_min_seconds": 120.0,
            "hang_excluded_seconds": 3600.0,
            "gone_seconds": 300.0,
        }
        made.append(RingSource(root, **(arguments | changes)))
        return made[-1]

    yield make
    for source in made:
        source.close()


@pytest.fixture
def source(make_source: MakeSource) -> RingSource:
    """The source."""
    return make_source()
