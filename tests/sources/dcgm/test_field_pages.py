"""Pages met in the field, as a table: what each says, worked out by hand from its text. Skipped where they are absent.

Values in base units: MHz times 1,000,000; MiB times 1,048,576; percent by 100; mJ by 1,000; NVLink "MB/s" times
1,024,000.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from straggler.model.gpu import GpuKey
from straggler.sources.dcgm.parse import GpuPageParser
from straggler.sources.dcgm.text import TextParser

Values = dict[str, float]
Gpus = dict[tuple[int, int | None], Values]
"""By number (the eight hex digits with which the made-up UUIDs begin) and GPU instance."""


class Said(NamedTuple):
    """What a page says."""

    samples: int
    """Lines that are samples with a number."""
    gpus: Gpus
    lost: dict[str, int] = {}  # noqa: RUF012 - never changed
    """Lines or values that are refused, by reason."""
    refused: str = ""


A: Values = {
    "sm_clock_hertz": 1_980_000_000,
    "memory_clock_hertz": 2_619_000_000,
    "memory_temperature_celsius": 54,
    "temperature_celsius": 48,
    "power_watts": 612.382,
    "energy_joules_total": 129_931_554.972,
    "pcie_replays_total": 0,
    "utilization_ratio": 1,
    "memory_copy_utilization_ratio": 0.41,
    "memory_free_bytes": 11_822_694_400,
    "memory_used_bytes": 73_221_013_504,
    "nvlink_bytes_per_second": 46_092_288_000,
    "graphics_engine_active_ratio": 0.998127,
    "sm_active_ratio": 0.871034,
    "sm_occupancy_ratio": 0.41221,
    "tensor_active_ratio": 0.412345,
    "dram_active_ratio": 0.5033,
    "pcie_transmit_bytes_per_second": 1_043_129_873,
    "pcie_receive_bytes_per_second": 903_412_221,
}
B: Values = {
    "sm_clock_hertz": 1_980_000_000,
    "memory_clock_hertz": 2_619_000_000,
    "memory_temperature_celsius": 71,
    "temperature_celsius": 68,
    "power_watts": 349.106,
    "energy_joules_total": 128_996.013,
    "pcie_replays_total": 9,
    "utilization_ratio": 1,
    "memory_copy_utilization_ratio": 0.08,
    "memory_free_bytes": 82_837_504_000,
    "memory_used_bytes": 2_181_038_080,
    "nvlink_bytes_per_second": 0,
    "graphics_engine_active_ratio": 0.997001,
    "sm_active_ratio": 0.381124,
    "sm_occupancy_ratio": 0.151909,
    "tensor_active_ratio": 0.022137,
    "dram_active_ratio": 0.101,
    "pcie_transmit_bytes_per_second": 14_045,
    "pcie_receive_bytes_per_second": 0,
}
"""The two GPUs that most of the pages are about."""


def some(of: Values, names: str, **more: float) -> Values:
    """A part of a GPU's values, and others."""
    return {name: of[name] for name in names.split()} | more


def two(names: str, first: Values | None = None, second: Values | None = None) -> Gpus:
    """Both GPUs with these values."""
    return {(1, None): some(A, names) | (first or {}), (2, None): some(B, names) | (second or {})}


CLOCKS = "sm_clock_hertz memory_clock_hertz memory_temperature_celsius temperature_celsius power_watts"
DEVICE = (
    f"{CLOCKS} energy_joules_total pcie_replays_total utilization_ratio memory_copy_utilization_ratio "
    "memory_free_bytes memory_used_bytes nvlink_bytes_per_second"
)
ALL = " ".join(A)

GIB_24_000_MIB = 25_165_824_000.0  # 24,000 MiB

FIELD_PAGES: dict[str, Said] = {
    "1x_csv_uppercase_UUID.prom": Said(
        7,
        {
            (1, None): {
                "sm_clock_hertz": 585_000_000,
                "temperature_celsius": 54,
                "power_watts": 30.982,
                "energy_joules_total": 55_491_669.881,
                "utilization_ratio": 0,
                "graphics_engine_active_ratio": 0.008246,
                "tensor_active_ratio": 0,
            }
        },
    ),
    "bare_HELP_no_text_and_README_spaces.prom": Said(2, {(1, None): {"sm_clock_hertz": 139_000_000}}),
    "crlf_and_no_final_newline.prom": Said(6, two("sm_clock_hertz memory_clock_hertz memory_temperature_celsius")),
    "dra_labels.prom": Said(1, {(1, None): {"utilization_ratio": 0.97}}),
    "duplicate_label_name_pod_label_collision.prom": Said(
        1, {(1, None): {"utilization_ratio": 0.97}}, {"duplicate_label": 1}
    ),
    "empty_body_http_200.prom": Said(0, {}, {"empty_body": 1}, "empty_body"),
    "entities_gpu_link_switch_cpu_duplicate_HELP_TYPE.prom": Said(5, {(1, None): {"temperature_celsius": 48}}),
    "exporter_owned_DCGM_EXP_families.prom": Said(10, {(1, None): {}, (2, None): {}}),
    "hpc_job_two_jobs_one_gpu_and_blank_line.prom": Said(
        3, {(1, None): {"utilization_ratio": 0.97}, (2, None): {"utilization_ratio": 0.04}}
    ),
    "html_500_body.txt": Said(0, {}, {"not_metrics": 1}, "not_metrics"),
    "legacy_bytes_names_with_trailing_space_csv_DEC_UTIL.prom": Said(1, {(1, None): {}}),
    "main_2026-05-12_lowercase_hostname.prom": Said(38, two(ALL)),
    "mig_gke_and_full_gpu_mixed.prom": Said(
        3,
        {
            (1, None): {"memory_free_bytes": GIB_24_000_MIB},
            (2, None): {"memory_free_bytes": 11_822_694_400},
            (3, 3): {"memory_free_bytes": 2_314_207_232},
        },
    ),
    "non_numeric_value_whole_body_must_survive.prom": Said(
        1, {(1, None): {"sm_clock_hertz": 1_980_000_000}}, {"not_a_number": 2, "missing_value": 1}
    ),
    "pod_labels_enabled.prom": Said(1, {(1, None): {"utilization_ratio": 0.97}}),
    "prometheus_side_exported_pod.prom": Said(1, {(1, None): {"temperature_celsius": 48}}),
    "sentinels_blank_nan.prom": Said(
        11,
        {(1, None): {}, (2, None): {"sm_occupancy_ratio": 0.2}},
        {"nan_or_inf": 1, "sentinel": 8, "impossible_value": 2},
    ),
    "timeslicing_vgpu_label_same_value.prom": Said(3, {(1, None): {"graphics_engine_active_ratio": 0.714}}),
    "v2.0_no_model_no_host.prom": Said(12, two(f"{CLOCKS} graphics_engine_active_ratio")),
    "v3.1.8-3.1.5_k8s_empty_pod.prom": Said(24, two(DEVICE)),
    "v3.3.6-3.4.2_dcp_csv_no_pci.prom": Said(39, two(ALL, {"xid_last": 0})),
    "v4.0_4.5.3-4.8.2_h100.prom": Said(40, two(ALL, {"xid_last": 31}, {"xid_last": 0})),
    "v4.6.0-4.8.3_expfmt_sorted.prom": Said(38, two(ALL)),
    "v4.9.0_UNVERIFIED_names_new_units.prom": Said(
        24,
        two(
            "power_watts memory_used_bytes temperature_celsius utilization_ratio memory_clock_hertz "
            "nvlink_bytes_per_second sm_clock_hertz sm_occupancy_ratio sm_active_ratio tensor_active_ratio",
            {"memory_total_bytes": 85_520_809_984, "energy_joules_total": 129_931_554},
            {"memory_total_bytes": 85_520_809_984, "energy_joules_total": 128_996},
        ),
    ),
}

UTIL = "utilization_ratio"
TEMP = "temperature_celsius"
NOTHING: Gpus = {}

THREADS: dict[str, Said] = {
    "NVIDIA__DCGM__138.prom": Said(
        3,
        {
            (1, 7): {"graphics_engine_active_ratio": 1},
            (1, 3): {"graphics_engine_active_ratio": 0.5},
            (1, 1): {"graphics_engine_active_ratio": 0.33},
        },
    ),
    "NVIDIA__DCGM__226.prom": Said(1, {(1, None): {"graphics_engine_active_ratio": 0}}),
    "NVIDIA__DCGM__235.prom": Said(1, {}, {"no_uuid": 1, "no_gpu_samples": 1}, "no_gpu_samples"),
    "NVIDIA__dcgm-exporter__127.prom": Said(1, {(1, None): {UTIL: 0.98}}),
    "NVIDIA__dcgm-exporter__129.prom": Said(2, {(1, None): {}}, {"conflicting_duplicates": 1}),
    "NVIDIA__dcgm-exporter__144.prom": Said(1, {(1, None): {UTIL: 0.88}}),
    "NVIDIA__dcgm-exporter__150.prom": Said(1, {(1, None): {UTIL: 0.03}}),
    "NVIDIA__dcgm-exporter__16.prom": Said(1, {(1, None): {UTIL: 0.97}}),
    "NVIDIA__dcgm-exporter__164.prom": Said(
        4, {(1, None): {UTIL: 0.97}, (2, None): {UTIL: 0.97}, (3, None): {TEMP: 55}, (4, None): {UTIL: 0.97}}
    ),
    "NVIDIA__dcgm-exporter__190.prom": Said(2, {(1, None): {"xid_last": 31}}),
    "NVIDIA__dcgm-exporter__216.prom": Said(1, {(1, 1): {}}, {"meaningless_under_mig": 1}),
    "NVIDIA__dcgm-exporter__237.prom": Said(2, {(1, None): {}}, {"conflicting_duplicates": 1}),
    "NVIDIA__dcgm-exporter__239.prom": Said(1, {(1, None): {}}),
    "NVIDIA__dcgm-exporter__250.prom": Said(
        5,
        {
            (1, None): {"power_limit_watts": 300, UTIL: 0},
            (2, None): {"power_limit_watts": 300},
            (3, None): {"power_limit_watts": 300},
            (4, None): {"power_limit_watts": 300},
        },
    ),
    "NVIDIA__dcgm-exporter__27.prom": Said(1, {(1, None): {TEMP: 41}}),
    "NVIDIA__dcgm-exporter__277.prom": Said(1, {(3, None): {UTIL: 0.07}}),
    "NVIDIA__dcgm-exporter__312.prom": Said(3, {(1, None): {}, (2, None): {}, (3, None): {}}, {"impossible_value": 3}),
    "NVIDIA__dcgm-exporter__317.prom": Said(
        5,
        {
            (1, 3): {"memory_temperature_celsius": 35},
            (1, 4): {"memory_temperature_celsius": 35},
            (1, 5): {"memory_temperature_celsius": 35},
            (1, 6): {"memory_temperature_celsius": 35},
            (2, 3): {"memory_temperature_celsius": 34},
        },
    ),
    "NVIDIA__dcgm-exporter__340.prom": Said(3, {(1, None): {TEMP: 48}}),
    "NVIDIA__dcgm-exporter__345.prom": Said(
        2, {(1, None): {"memory_copy_utilization_ratio": 0.01, "memory_used_bytes": 33_099_350_016}}
    ),
    "NVIDIA__dcgm-exporter__349.prom": Said(1, {(1, None): {UTIL: 0.03}}),
    "NVIDIA__dcgm-exporter__369.prom": Said(2, {(1, 7): {"sm_active_ratio": 0.4}}),
    "NVIDIA__dcgm-exporter__372.prom": Said(0, {}, {"not_metrics": 1}, "not_metrics"),
    "NVIDIA__dcgm-exporter__418.prom": Said(1, {(3, None): {}}, {"impossible_value": 1}),
    "NVIDIA__dcgm-exporter__446.prom": Said(2, {}, {"no_gpu_samples": 1}, "no_gpu_samples"),
    "NVIDIA__dcgm-exporter__490.prom": Said(3, {(1, None): {UTIL: 0}, (2, None): {UTIL: 0}, (3, None): {UTIL: 0}}),
    "NVIDIA__dcgm-exporter__502.prom": Said(1, {(1, None): {}}),
    "NVIDIA__dcgm-exporter__512.prom": Said(
        3, {(1, instance): {"graphics_engine_active_ratio": 0} for instance in (7, 8, 9)}
    ),
    "NVIDIA__dcgm-exporter__544.prom": Said(1, {(1, 9): {"sm_active_ratio": 0.1}}),
    "NVIDIA__dcgm-exporter__572.prom": Said(1, {(1, None): {UTIL: 0.05}}),
    "NVIDIA__dcgm-exporter__58.prom": Said(
        2, {(1, None): {"sm_clock_hertz": 135_000_000}, (2, None): {"sm_clock_hertz": 1_335_000_000}}
    ),
    "NVIDIA__dcgm-exporter__582.prom": Said(4, {(1, None): {"power_watts": 27.311}}),
    "NVIDIA__dcgm-exporter__607.prom": Said(1, {}, {"no_gpu_samples": 1}, "no_gpu_samples"),
    "NVIDIA__dcgm-exporter__642.prom": Said(2, {(1, None): {UTIL: 0.77}}),
    "NVIDIA__dcgm-exporter__655.prom": Said(1, {(1, None): {UTIL: 0.05}}),
    "NVIDIA__dcgm-exporter__68.prom": Said(2, {(1, 1): {}}, {"conflicting_duplicates": 1}),
    "NVIDIA__dcgm-exporter__721.prom": Said(1, {(1, None): {"pcie_transmit_bytes_per_second": 0}}),
    "NVIDIA__dcgm-exporter__78.prom": Said(1, {(1, None): {UTIL: 0.12}}),
    "NVIDIA__dcgm-exporter__87.prom": Said(2, {(1, None): {}}, {"conflicting_duplicates": 1}),
    "NVIDIA__dcgm-exporter__88.prom": Said(1, {(1, None): {"pcie_transmit_bytes_per_second": 1_043_129_873}}),
    "NVIDIA__dcgm-exporter__92.prom": Said(1, {(1, 7): {"graphics_engine_active_ratio": 0.31}}),
    "NVIDIA__gpu-monitoring-tools__138.prom": Said(
        2, {(1, None): {"power_watts": 302.206, "energy_joules_total": 4_335_301.032}}
    ),
    "NVIDIA__gpu-monitoring-tools__152.prom": Said(1, {(1, None): {}}, {"sentinel": 1}),
    "NVIDIA__gpu-monitoring-tools__189.prom": Said(
        4,
        {
            (1, None): {
                "dram_active_ratio": 0,
                "pcie_transmit_bytes_per_second": 0,
                "power_watts": 167.362,
                "energy_joules_total": 129_931_554.972,
            }
        },
    ),
    "NVIDIA__gpu-monitoring-tools__97.prom": Said(2, {(1, None): {}}, {"sentinel": 2}),
    "guilbaults__slurm-job-exporter__30.prom": Said(2, {}, {"no_gpu_samples": 1}, "no_gpu_samples"),
}


def check(path: Path, said: Said) -> None:
    """Compare one page with what it says, first as text, then as GPUs."""
    text = path.read_bytes().decode()
    samples: list[tuple[Any, float]] = TextParser(lambda name, labels: (name, labels)).parse(text).samples
    page = GpuPageParser().parse(text)

    assert len(samples) == said.samples
    assert page.refused == said.refused
    assert {problem.reason: problem.count for problem in page.problems} == said.lost
    assert page.blind == ()
    assert {gpu.key: dict(gpu.values) for gpu in page.facts} == {
        GpuKey(f"GPU-{number:08x}-1111-2222-3333-{number:012x}", instance): values
        for (number, instance), values in said.gpus.items()
    }


@pytest.mark.parametrize("name", FIELD_PAGES)
def test_page(corpus: Path, name: str) -> None:
    """Each page of each exporter version gives exactly these values, and loses exactly these lines."""
    check(corpus / "dcgm_exporter" / name, FIELD_PAGES[name])


@pytest.mark.parametrize("name", THREADS)
def test_thread(corpus: Path, name: str) -> None:
    """Each page that somebody reported gives exactly these values, and loses exactly these lines."""
    check(corpus / "issues" / name, THREADS[name])


def test_no_page_is_left_out(corpus: Path) -> None:
    """The tables name every page that there is."""
    pages = {path.name for path in (corpus / "dcgm_exporter").iterdir()}
    threads = {path.name for path in (corpus / "issues").glob("*.prom")}

    assert (set(FIELD_PAGES), set(THREADS)) == (pages, threads)


def test_labels_of_the_field(corpus: Path) -> None:
    """Index, bus id, model, host and pod of the page of 4.8.2 are these."""
    text = (corpus / "dcgm_exporter" / "v4.0_4.5.3-4.8.2_h100.prom").read_text()
    first, second = GpuPageParser().parse(text).facts

    assert (first.gpu, first.pci_bus_id, first.model, first.hostname) == (
        0,
        "00000000:1B:00.0",
        "NVIDIA H100 80GB HBM3",
        "node-a",
    )
    assert (first.namespace, first.pod, first.container) == ("ml", "job-worker-0", "trainer")
    assert (second.gpu, second.pci_bus_id, second.pod) == (1, "00000000:2B:00.0", "")
    assert first.labels["err_msg"] == "GPU memory page fault"


def test_reasons_of_the_field(corpus: Path) -> None:
    """96 on the page with a bare HELP is heat, noticed by software and by hardware."""
    text = (corpus / "dcgm_exporter" / "bare_HELP_no_text_and_README_spaces.prom").read_text()
    (gpu,) = GpuPageParser().parse(text).facts

    assert {reason for reason, active in gpu.clocks_event_reasons.items() if active} == {"sw_thermal", "hw_thermal"}
