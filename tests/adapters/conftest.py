"""The adapters are tested with the real frameworks; where one is not installed its tests are not there.

``make test-adapters`` installs all of them in an environment of its own.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from torch_jobs import ring_directory

FRAMEWORKS = ("accelerate", "lightning", "transformers")

collect_ignore = [
    *(f"{name}_job.py" for name in FRAMEWORKS),
    *(f"test_{name}.py" for name in FRAMEWORKS if importlib.util.find_spec(name) is None),
]


@pytest.fixture
def rings() -> Iterator[Path]:
    """Where rings go."""
    with ring_directory() as path:
        yield path
