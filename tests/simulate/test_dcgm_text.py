"""The page as dcgm-exporter writes it, in both of its forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from straggler.simulate.dcgm_text import Generation, gpu_labels, pci_bus_id, render, shortest_number, template_number

VALUES = {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 129_931_554_972, "DCGM_FI_PROF_SM_ACTIVE": 0.871034}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (100, "100"),
        (999_999, "999999"),
        (1_000_000, "1e+06"),
        (129_931_554_972, "1.29931554972e+11"),
        (612.382, "612.382"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (-1_234_567.0, "-1.234567e+06"),
    ],
)
def test_shortest_number(value: float, text: str) -> None:
    """Go's shortest form has an exponent below 1e-4 and from 1e6 on."""
    assert shortest_number(value) == text
    assert float(text) == value


def test_template_number() -> None:
    """The old templates print integers as they are and doubles with six decimals."""
    assert template_number(129_931_554_972) == "129931554972"
    assert template_number(349.106) == "349.106000"


def test_template_page() -> None:
    """Up to 4.8.2: csv order, ``Hostname``."""
    page = render([(gpu_labels(0, "GPU-1", "node-a", Generation.TEMPLATE), VALUES)], Generation.TEMPLATE)

    assert (
        'DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-1",pci_bus_id="00000000:1B:00.0",device="nvidia0",'
        'modelName="NVIDIA H100 80GB HBM3",Hostname="node-a",DCGM_FI_DRIVER_VERSION="550.54.15"} 0.871034\n'
    ) in page
    assert "} 129931554972\n" in page
    assert page.index("TYPE DCGM_FI_DEV_SM_CLOCK") < page.index("TYPE DCGM_FI_DEV_MEM_CLOCK")


def test_sorted_page() -> None:
    """From 4.8.3 on: families by name, ``hostname``, Go's numbers."""
    page = render([(gpu_labels(0, "GPU-1", "node-a", Generation.SORTED), VALUES)], Generation.SORTED)
    families = [line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")]

    assert ',hostname="node-a",' in page
    assert "} 1.29931554972e+11\n" in page
    assert families == sorted(families)


@pytest.mark.parametrize(
    ("generation", "captured"),
    [
        (Generation.TEMPLATE, "v4.0_4.5.3-4.8.2_h100.prom"),
        (Generation.SORTED, "v4.6.0-4.8.3_expfmt_sorted.prom"),
    ],
)
def test_labels_are_those_of_the_field(generation: Generation, captured: str, corpus: Path) -> None:
    """The label names and their order are those of pages met in the field."""
    lines = (corpus / "dcgm_exporter" / captured).read_text(encoding="utf-8").splitlines()
    sample = next(line for line in lines if line.startswith("DCGM_FI_DEV_SM_CLOCK{") and "pod=" not in line)
    names = [part.split('="')[0] for part in sample.partition("{")[2].partition("}")[0].split('",')]

    assert names == [name for name, _ in gpu_labels(0, "GPU-1", "node-a", generation)]


def test_bus_ids_differ() -> None:
    """Sixteen GPUs have sixteen bus ids."""
    assert len({pci_bus_id(gpu) for gpu in range(16)}) == 16
