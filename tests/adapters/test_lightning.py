"""Lightning, the real one: two ranks, with the adapter and without."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from framework_jobs import STEPS, check, check_twice, finished, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

JOB = Path(__file__).parent / "lightning_job.py"


@pytest.mark.parametrize("how", ["adapter", "plain"])
def test_the_slow_rank_is_found(rings: Path, tmp_path: Path, how: str) -> None:
    """By either way into the process; the adapter alone says goodbye where training ends, the process does not.

    Lightning calls ``backward`` inside ``step``, so the first step begins one later.
    """
    run(rings, tmp_path, sys.executable, JOB, how)

    assert finished(check(rings, batches=1, steps=STEPS - 2)) == (how == "adapter")


def test_a_second_training_is_measured_anew(rings: Path, tmp_path: Path) -> None:
    """A process may call ``fit`` as often as it likes: each one has a ring of its own, and a goodbye."""
    run(rings, tmp_path, sys.executable, JOB, "twice")

    check_twice(rings)
