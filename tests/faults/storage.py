"""The ring directory fails under training."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path

from faults.bench import Figure, sidecar, steps_seen, tmpfs, training, until

NO_MOUNT = Figure(None, "needs root, to mount a tmpfs")


def full(place: Path, _: float) -> Figure:
    """The tmpfs fills up while one rank trains, and another begins."""
    with tmpfs(place / "rings", "size=2m") as mounted:
        if not mounted:
            return NO_MOUNT
        rings = place / "rings"
        with training(rings) as first, sidecar(rings) as reader:
            until(lambda: bool(steps_seen(reader.metrics())))
            _fill(rings / "filler")
            before = steps_seen(reader.metrics()) or 0
            with training(rings, rank=1) as second:
                late = second.end()
            until(lambda: (steps_seen(reader.metrics()) or 0) - before > 100)
            seen = (steps_seen(reader.metrics()) or 0) - before
            early = first.end()
    held = early.code == late.code == 0 and early.reports == 0 and late.reports == 1 and seen > 100
    return Figure(held, f"old rank: {early.text}, {seen:.0f} seen since; new rank: {late.text}, unseen, 1 line")


def _fill(path: Path) -> None:
    """Write until nothing more fits."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass


def read_only(place: Path, _: float) -> Figure:
    """The directory cannot be written when training begins."""
    with tmpfs(place / "rings", "size=8m") as mounted:
        if not mounted:
            return NO_MOUNT
        subprocess.run(["mount", "-o", "remount,ro", place / "rings"], check=True)
        with training(place / "rings") as process:
            done = process.end()
    return Figure(done.code == 0 and done.reports == 1, f"{done.text}, {done.reports} line in the log")


def removed(place: Path, _: float) -> Figure:
    """Somebody removes the whole directory under training, and makes it again."""
    rings = place / "rings"
    rings.mkdir()
    with training(rings) as process, sidecar(rings) as reader:
        until(lambda: bool(steps_seen(reader.metrics())))
        shutil.rmtree(rings)
        absent = until(lambda: 'state="absent"} 1.0' in _rings(reader.metrics()))
        rings.mkdir()
        back = until(lambda: 'state="ok"} 1.0' in _rings(reader.metrics()))
        done = process.end()
        with training(rings):
            again = until(lambda: bool(steps_seen(reader.metrics())))
    held = done.code == 0 and absent and back and again and done.reports <= 1
    return Figure(held, f"{done.text}; source absent, then ok, next job seen")


def _rings(page: str) -> str:
    return "\n".join(
        line for line in page.splitlines() if line.startswith('straggler_exporter_source_state{source="rings"')
    )
