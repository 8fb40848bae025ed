"""More of everything than a node has."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from faults.bench import Figure, descriptors, memory_mb, sidecar, steps_seen, training, until
from ring_files import RingFile

STALE = 10_000


def stale_rings(place: Path, _: float) -> Figure:
    """Ten thousand rings of jobs that are long over, beside one that steps."""
    rings = place / "rings"
    rings.mkdir()
    model = RingFile(place / "model", run="old", capacity=4)
    model.step(4)
    model.close()
    an_hour_ago = time.time() - 3000
    for number in range(STALE):
        path = rings / f"{number:05}.ring"
        shutil.copyfile(place / "model", path)
        path.chmod(0o640)
        os.utime(path, (an_hour_ago, an_hour_ago))
    with training(rings) as process, sidecar(rings) as reader:
        until(lambda: bool(steps_seen(reader.metrics())), 60)
        time.sleep(20)  # a thousand are opened in one look
        times, page = [], ""
        for _ in range(10):
            began = time.monotonic()
            page = reader.metrics()
            times.append(time.monotonic() - began)
            time.sleep(0.5)
        peak, files = memory_mb(reader.pid, "VmHWM"), descriptors(reader.pid)
        done = process.end()
    held = done.code == 0 and page.count("training_step_seconds_count{") == 1 and files < 60 and peak < 150
    typical = sorted(times)[len(times) // 2]
    return Figure(held, f"1 rank on the page, scrape {1e3 * typical:.0f} ms, {peak:.0f} MB, {files} descriptors")
