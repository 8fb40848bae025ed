"""How long a page of dcgm-exporter takes to read, against the parser of prometheus_client."""

from __future__ import annotations

from statistics import median
from time import perf_counter

from prometheus_client.parser import text_string_to_metric_families

from straggler.sources.dcgm.fields import FIELDS, Into
from straggler.sources.dcgm.parse import GpuPageParser
from straggler.sources.dcgm.text import TextParser

LOOKS = 50


def page(samples: int, gpus: int = 8) -> str:
    """A page with so many samples: all fields of all GPUs, then copies for jobs."""
    names = [field.names[0] for field in FIELDS if field.into is not Into.UTILIZATION]
    lines = []
    for number in range(samples):
        copy, rest = divmod(number, len(names) * gpus)
        gpu, name = rest % gpus, names[rest // gpus]
        lines.append(
            f'{name}{{gpu="{gpu}",UUID="GPU-{gpu:08x}-1111-2222-3333-000000000000",pci_bus_id="00000000:1{gpu}:00.0",'
            f'device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",Hostname="node-a",'
            f'DCGM_FI_DRIVER_VERSION="550.54.15",container="trainer",namespace="ml",pod="job-{gpu}",'
            f'hpc_job="{copy}"}} 1\n'
        )
    return "".join(lines)


def milliseconds(call: object, *arguments: object) -> float:
    """One call."""
    began = perf_counter()
    call(*arguments)  # type: ignore[operator]  # any parser's reading function
    return (perf_counter() - began) * 1e3


def main() -> None:
    """Print a table."""
    columns = ("client", "text cold", "text warm", "GPUs cold", "GPUs warm")
    print(f"{'samples':>8} {'kB':>6} " + " ".join(f"{column:>10}" for column in columns) + "  (ms)")
    for samples in (200, 3_000):
        text = page(samples)
        client = milliseconds(lambda page: list(text_string_to_metric_families(page)), text)
        lines, gpus = TextParser(lambda name, labels: (name, labels)), GpuPageParser()
        text_cold, gpus_cold = milliseconds(lines.parse, text), milliseconds(gpus.parse, text)
        text_warm = median(milliseconds(lines.parse, text) for _ in range(LOOKS))
        gpus_warm = median(milliseconds(gpus.parse, text) for _ in range(LOOKS))
        row = (client, text_cold, text_warm, gpus_cold, gpus_warm)
        print(f"{samples:>8} {len(text) // 1000:>6} " + " ".join(f"{value:>10.2f}" for value in row))


if __name__ == "__main__":
    main()
