"""Whole pages of our own: everything that they give, compared with a file that was read and found right."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Expected
from straggler.model.gpu import GpuFacts
from straggler.sources.dcgm.eras import Era
from straggler.sources.dcgm.parse import GpuPage, GpuPageParser

CAPTURED = Path(__file__).parents[2] / "captured" / "dcgm"


def dump(page: GpuPage) -> str:
    """All that a page says, one thing on a line."""
    eras = [era.name or "" for era in (Era.FIRST, Era.RENAMED, Era.BASE_UNITS) if era in page.seen]
    lines = [f"seen: {' '.join(eras) or 'nothing of an age'}"]
    lines += [f"problem: {problem.reason} x{problem.count}: {problem.detail}" for problem in page.problems]
    lines += [f"blind: {problem.reason} x{problem.count}: {problem.detail}" for problem in page.blind]
    for gpu in page.facts:
        lines += ["", *_dump_gpu(gpu)]
    return "\n".join(lines) + "\n"


def _dump_gpu(gpu: GpuFacts) -> list[str]:
    lines = [f"{gpu.key.uuid} instance={gpu.key.gpu_instance}"]
    names = ("gpu", "pci_bus_id", "model", "hostname", "mig_profile", "namespace", "pod", "container", "source")
    lines += [f"  {name}: {getattr(gpu, name)}".rstrip() for name in names]
    lines += [f"  = {name} {value:.12g}" for name, value in sorted(gpu.values.items())]
    seconds = sorted(gpu.clocks_event_seconds.items())
    lines += [f"  = held down by {name}, seconds {value:.12g}" for name, value in seconds]
    lines += [f"  = held down now by {name}" for name, value in sorted(gpu.clocks_event_reasons.items()) if value]
    lines += [f"  label {name}: {value}" for name, value in gpu.labels.items()]
    return lines


@pytest.mark.parametrize("machine", sorted(path.name for path in CAPTURED.iterdir() if path.is_dir()))
def test_page(machine: str, expected: Expected) -> None:
    """The whole page gives exactly these GPUs, values, labels and problems."""
    text = (CAPTURED / machine / "metrics.prom").read_bytes().decode()

    expected.check(f"dcgm/{machine}.txt", dump(GpuPageParser().parse(text)))
