"""Runs ``training_job.py`` under a real torchrun, and reads what its ranks found in their rings."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SHARED_MEMORY = Path("/dev/shm")
RANKS = 4
SLOW_RANK = 2
JOB = Path(__file__).parent / "hook" / "torch" / "training_job.py"
_SECONDS = 900
"""Ten times what the longest takes on a machine of its own."""


@contextlib.contextmanager
def ring_directory() -> Iterator[Path]:
    """A directory for rings, on tmpfs where there is one."""
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None) as path:
        yield Path(path)


@contextlib.contextmanager
def running(out: Path, rings: Path, cases: Sequence[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A job that has been started, and is gone at the end with all its ranks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    process = subprocess.Popen(
        [*command, str(JOB), str(out), *cases],
        env={
            **{key: value for key, value in os.environ.items() if not key.startswith("STRAGGLER_")},
            "STRAGGLER_DIR": str(rings),
            "STRAGGLER_ALLOW_ANY_FILESYSTEM": "1",
            "OMP_NUM_THREADS": "1",
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def results(out: Path, cases: Sequence[str], **environment: str) -> list[dict[str, Any]]:
    """What each rank says about each case; length ``RANKS``, by rank."""
    out.mkdir(exist_ok=True)
    with ring_directory() as rings, running(out, rings, cases, **environment) as process:
        output, _ = process.communicate(timeout=_SECONDS)
        assert process.returncode == 0, output[-4000:]
    return [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(RANKS)]
