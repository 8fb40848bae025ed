"""From a page to GPUs: copies, conflicts, MIG, entities that are no GPUs, labels of all generations."""

from __future__ import annotations

import pytest

from straggler.model.gpu import CLOCKS_EVENT_BITS, GpuFacts, GpuKey
from straggler.sources.dcgm.eras import Era
from straggler.sources.dcgm.parse import GpuPage, GpuPageParser
from straggler.sources.dcgm.reasons import DCGM_REASONS

UUID = "GPU-00000001-1111-2222-3333-000000000001"
OTHER = "GPU-00000002-1111-2222-3333-000000000002"
KEY = GpuKey(UUID)


def row(name: str, value: object, uuid: str = UUID, **labels: str) -> str:
    """One sample line; short names are device fields."""
    full = name if name.lower().startswith("dcgm_") else f"DCGM_FI_DEV_{name}"
    text = ",".join(f'{key}="{text}"' for key, text in {"UUID": uuid, **labels}.items())
    return f"{full}{{{text}}} {value}\n"


def page(*lines: str) -> GpuPage:
    """Parse these lines."""
    parsed = GpuPageParser().parse("".join(lines))
    assert {problem.reason for problem in (*parsed.problems, *parsed.blind)} <= set(DCGM_REASONS)
    return parsed


def gpus(*lines: str) -> dict[GpuKey, GpuFacts]:
    """The GPUs of these lines."""
    return {gpu.key: gpu for gpu in page(*lines).facts}


def problems(*lines: str) -> dict[str, int]:
    """How often something was refused, by reason."""
    return {problem.reason: problem.count for problem in page(*lines).problems}


# --- whole pages that are useless


@pytest.mark.parametrize("text", ["", " \r\n\t\n", "\N{BYTE ORDER MARK}"])
def test_empty_body(text: str) -> None:
    """Exporters up to 3.3.9 answer 200 with nothing when they have nothing."""
    parsed = page(text)

    assert (parsed.refused, parsed.facts) == ("empty_body", ())
    assert [problem.reason for problem in parsed.problems] == ["empty_body"]


@pytest.mark.parametrize(
    "text",
    [
        "<!DOCTYPE html>\n<html>\n<head><title>502 Bad Gateway</title></head>\n</html>\n",
        '{"error": "not found", "code": 404}',
        "internal server error\n",
        "upstream connect error or disconnect/reset before headers",
        "\x00\x01\x02",
    ],
)
def test_not_metrics(text: str) -> None:
    """A page in which no line is a sample is refused whole, with one problem that quotes it."""
    parsed = page(text)

    assert (parsed.refused, parsed.facts) == ("not_metrics", ())
    assert [(problem.reason, problem.count) for problem in parsed.problems] == [("not_metrics", 1)]
    assert parsed.problems[0].detail.isprintable()


@pytest.mark.parametrize(
    "text",
    [
        'node_cpu_seconds_total{cpu="0",mode="idle"} 1234.5\nnode_load1 0.5\n',
        'nvidia_smi_utilization_gpu_ratio{uuid="00000001-1111-2222-3333-000000000001"} 0.97\n',
        "# HELP DCGM_FI_DEV_GPU_UTIL x\n# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n",
        'DCGM_FI_DEV_CPU_UTIL_TOTAL{cpu="0",Hostname="n"} 0.12\n',
    ],
)
def test_no_gpu_samples(text: str) -> None:
    """Metrics of something else, or of no GPU, are refused as that, and it is told what is there instead."""
    parsed = page(text)
    samples = [line for line in text.splitlines() if not line.startswith("#")]

    assert parsed.refused == "no_gpu_samples"
    assert parsed.problems[-1].detail.endswith(f"It begins: {samples[0][:80]}" if samples else "page? ")


def test_one_bad_line_does_not_refuse_the_page() -> None:
    """HTML that a proxy appended loses its lines, and the samples stay."""
    parsed = page(row("GPU_TEMP", 48), "<p>bye</p>\n")

    assert parsed.facts[0].values == {"temperature_celsius": 48}
    assert problems(row("GPU_TEMP", 48), "<p>bye</p>\n") == {"bad_line": 1}


# --- who the GPU is


@pytest.mark.parametrize("label", ["UUID", "uuid", "gpu_uuid"])
@pytest.mark.parametrize("spelling", [UUID, UUID.upper(), UUID.removeprefix("GPU-")])
def test_uuid_in_any_spelling(label: str, spelling: str) -> None:
    """All exporters' labels and all spellings of a UUID give one key."""
    assert list(gpus(f'DCGM_FI_DEV_GPU_TEMP{{{label}="{spelling}"}} 48\n')) == [KEY]


@pytest.mark.parametrize("uuid", ["", "<<<NULL>>>", "<<<NOT_FOUND>>>", "SKIPPING DCGM VALUE", "nvidia0", "not a uuid"])
def test_no_uuid(uuid: str) -> None:
    """A sample whose GPU is not known by UUID is counted and lost; indices repeat on every node."""
    lines = (row("GPU_TEMP", 48, uuid, gpu="0", pci_bus_id="00000000:1B:00.0"), row("GPU_TEMP", 50, OTHER))

    assert list(gpus(*lines)) == [GpuKey(OTHER)]
    assert problems(*lines) == {"no_uuid": 1}


def test_labels_of_a_whole_gpu() -> None:
    """Index, bus id, model, host and pod come from the labels; all others are kept as they are."""
    gpu = gpus(
        row(
            "GPU_TEMP",
            48,
            gpu="3",
            pci_bus_id="00000000:1b:00.0",
            device="nvidia3",
            modelName="NVIDIA H100 80GB HBM3",
            Hostname="node-a",
            DCGM_FI_DRIVER_VERSION="550.54.15",
            container="trainer",
            namespace="ml",
            pod="job-worker-0",
        )
    )[KEY]

    assert (gpu.gpu, gpu.pci_bus_id, gpu.model, gpu.hostname) == (
        3,
        "00000000:1B:00.0",
        "NVIDIA H100 80GB HBM3",
        "node-a",
    )
    assert (gpu.pod, gpu.namespace, gpu.container, gpu.mig_profile) == ("job-worker-0", "ml", "trainer", "")
    assert gpu.labels == {"DCGM_FI_DRIVER_VERSION": "550.54.15", "device": "nvidia3"}
    assert gpu.source == "dcgm"


def test_old_namespace_labels() -> None:
    """The labels of ``--use-old-namespace`` and of the link rows' spelling mean the same."""
    labels = 'hostname="n",model_name="T4",pod_name="p",pod_namespace="ns",container_name="c"'
    gpu = gpus(f'dcgm_gpu_temp{{uuid="{UUID}",{labels}}} 48\n')[KEY]

    assert (gpu.hostname, gpu.model, gpu.pod, gpu.namespace, gpu.container) == ("n", "T4", "p", "ns", "c")


def test_blank_and_null_labels_are_absent() -> None:
    """Blank labels, and DCGM's own spellings of nothing, are no labels."""
    gpu = gpus(
        row("GPU_TEMP", 48, pod="", namespace="", GPU_I_PROFILE="<<<NULL>>>", GPU_I_ID="", x="<<<NOT_SUPPORTED>>>")
    )

    assert (gpu[KEY].pod, gpu[KEY].mig_profile, gpu[KEY].labels) == ("", "", {})


def test_exported_pod_is_the_gpus() -> None:
    """On a page that went through Prometheus ``pod`` is the exporter's, and ``exported_pod`` the GPU's."""
    labels = {"job": "dcgm", "instance": "i:9400", "pod": "dcgm-exporter-x", "namespace": "monitoring"}
    mine = gpus(row("GPU_TEMP", 48, **labels, exported_pod="p", exported_namespace="ml", exported_container="c"))[KEY]
    nobodys = gpus(row("GPU_TEMP", 48, job="x", pod="trainer-0", namespace="ml"))[KEY]

    assert (mine.pod, mine.namespace, mine.container) == ("p", "ml", "c")
    assert (nobodys.pod, nobodys.namespace) == ("", "")


def test_exporters_own_pod_is_nobodys() -> None:
    """With time slicing the kubelet names the exporter's pod; it is not on the GPU."""
    assert gpus(row("GPU_TEMP", 48, pod="nvidia-dcgm-exporter-abc", namespace="gpu"))[KEY].pod == ""


def test_gpu_of_several_pods_is_of_none() -> None:
    """Where rows name different pods, none of them is the GPU's."""
    lines = [row("POWER_USAGE", 27.311, pod=f"p-{n}", namespace="ns", container="c", vgpu=str(n)) for n in range(4)]
    gpu = gpus(*lines)[KEY]

    assert (gpu.pod, gpu.namespace, gpu.container) == ("", "", "")
    assert gpu.labels == {"vgpu": "0,1,2,3"}


def test_hostname_is_no_key() -> None:
    """A GPU under two host names, as after a restart of a pod, is one GPU."""
    assert list(gpus(row("GPU_TEMP", 48, Hostname="pod-a"), row("SM_CLOCK", 1980, Hostname="pod-b"))) == [KEY]


def test_unused_field_proves_the_gpu() -> None:
    """A GPU of which only fields are shown that we do not use is there, without values."""
    assert gpus(row("VGPU_LICENSE_STATUS", 0))[KEY].values == {}


@pytest.mark.parametrize(
    "labels",
    [
        f'nvlink="0",gpu="0",gpu_uuid="{UUID}"',
        f'nvlink="4",nvswitch="nvswitch0",UUID="{UUID}"',
        'nvswitch="nvswitch0"',
        'cpu="0"',
        'cpucore="12",cpu="0"',
    ],
)
def test_links_switches_and_cpus_are_no_gpus(labels: str) -> None:
    """Rows of other entities are neither GPUs nor faults, even where they name a GPU."""
    lines = (row("GPU_TEMP", 48, OTHER), f"DCGM_FI_DEV_GPU_TEMP{{{labels}}} 99\n")

    assert list(gpus(*lines)) == [GpuKey(OTHER)]
    assert problems(*lines) == {}


def test_order() -> None:
    """GPUs come by index, and those without one last."""
    lines = (row("GPU_TEMP", 1, "GPU-cc"), row("GPU_TEMP", 1, "GPU-bb", gpu="1"), row("GPU_TEMP", 1, "GPU-aa", gpu="0"))

    assert [gpu.key.uuid for gpu in page(*lines).facts] == ["GPU-aa", "GPU-bb", "GPU-cc"]


# --- copies and conflicts


@pytest.mark.parametrize(
    "copies",
    [
        [{"hpc_job": "12345"}, {"hpc_job": "12346"}],
        [{"hpc_job": "12345"}, {"hpc_job": ""}],
        [{"hpc_job": "5"}, {"hpc_job": "5"}],
        [{"vgpu": "0", "pod": "a"}, {"vgpu": "1", "pod": "b"}],
        [{"exported_pod": "a"}, {"exported_pod": "b"}, {"exported_pod": "c"}],
        [{}, {}],
        [{"Hostname": "a"}, {"Hostname": "b"}],
    ],
)
def test_equal_copies_are_one_value(copies: list[dict[str, str]]) -> None:
    """However many copies a page has of a value, it is one value, and no fault."""
    lines = [row("POWER_USAGE", 400, **labels) for labels in copies]

    assert gpus(*lines)[KEY].values == {"power_watts": 400}
    assert problems(*lines) == {}


@pytest.mark.parametrize(
    "copies",
    [
        [(1043129873, {}), (14045, {})],
        [(14045, {"Hostname": "a"}), (11997, {"Hostname": "b"})],
        [(1, {"pod": "a"}), (2, {"pod": "b"})],
        [(1, {}), (2, {"pod": "b"})],
    ],
)
def test_unequal_copies_are_refused(copies: list[tuple[float, dict[str, str]]]) -> None:
    """Of two values for one field neither is believed; the GPU's other values stay."""
    lines = [row("DCGM_FI_PROF_PCIE_TX_BYTES", value, **labels) for value, labels in copies]

    assert gpus(*lines, row("GPU_TEMP", 48))[KEY].values == {"temperature_celsius": 48}
    assert problems(*lines) == {"conflicting_duplicates": 1}


@pytest.mark.parametrize(
    ("name", "attribute", "factor"),
    [("GPU_UTIL", "utilization_ratio", 0.01), ("FB_USED", "memory_used_bytes", 1048576)],
)
def test_device_row_before_those_of_processes(name: str, attribute: str, factor: float) -> None:
    """From 4.8.2 on a shared GPU has a row for the device and one for each process: the device's is the value."""
    lines = (
        row(name, 90),
        row(name, 30, pod="a", pod_uid="1"),
        row(name, 60, pod="b", vgpu="2"),
        row(name, 5, pid="7"),
    )

    assert gpus(*lines)[KEY].values[attribute] == pytest.approx(90 * factor)
    assert problems(*lines) == {}


def test_processes_without_a_device_row() -> None:
    """Rows of processes alone do not tell the device's value, and are not added up."""
    lines = (row("GPU_UTIL", 30, pod="a"), row("GPU_UTIL", 60, pod="b"))

    assert gpus(*lines)[KEY].values == {}
    assert problems(*lines) == {"conflicting_duplicates": 1}


def test_rows_of_two_times_have_no_device_row() -> None:
    """On a page from Prometheus a row without a pod may be of another time than the one with: neither is believed."""
    lines = (row("GPU_UTIL", 40, exported_namespace="ml", exported_pod="p-1"), row("GPU_UTIL", 0))

    assert gpus(*lines)[KEY].values == {}
    assert problems(*lines) == {"conflicting_duplicates": 1}


def test_refused_copy_leaves_the_other() -> None:
    """A copy with a blank does not contradict the one with a value."""
    lines = (row("GPU_TEMP", 2147483632, hpc_job="1"), row("GPU_TEMP", 48, hpc_job="2"))

    assert gpus(*lines)[KEY].values == {"temperature_celsius": 48}
    assert problems(*lines) == {"sentinel": 1}


def test_two_names_of_one_quantity() -> None:
    """A page with the old and the new name has the value once, from the first of the table."""
    lines = (
        row("SM_CLOCK_HERTZ", "1.98e+09"),
        row("SM_CLOCK", 1980),
        row("POWER_MGMT_LIMIT", 700),
        row("ENFORCED_POWER_LIMIT", 500),
    )

    assert gpus(*lines)[KEY].values == {"sm_clock_hertz": 1.98e9, "power_limit_watts": 500}
    assert problems(*lines) == {}


def test_second_name_where_the_first_is_blank() -> None:
    """If the preferred name has no value for a GPU, the other one's is taken."""
    lines = (row("ENFORCED_POWER_LIMIT", 2147483632), row("POWER_MGMT_LIMIT", 700))

    assert gpus(*lines)[KEY].values == {"power_limit_watts": 700}


# --- MIG


def mig(name: str, value: object, instance: str, uuid: str = UUID, **labels: str) -> str:
    """A sample of a GPU instance."""
    return row(name, value, uuid, gpu="0", GPU_I_PROFILE="1g.10gb", GPU_I_ID=instance, **labels)


def test_instances_are_gpus_of_their_own() -> None:
    """UUID and GPU instance together are the key; 0 is an instance; the same number on two GPUs is two instances."""
    found = gpus(
        mig("FB_USED", 100, "0"),
        mig("FB_USED", 200, "7"),
        mig("FB_USED", 300, "7", OTHER),
        row("FB_USED", 400, "GPU-whole"),
    )

    assert {key: gpu.values["memory_used_bytes"] / 1048576 for key, gpu in found.items()} == {
        GpuKey(UUID, 0): 100,
        GpuKey(UUID, 7): 200,
        GpuKey(OTHER, 7): 300,
        GpuKey("GPU-whole"): 400,
    }
    assert found[GpuKey(UUID, 0)].mig_profile == "1g.10gb"


def test_states_are_each_instances() -> None:
    """Temperature and clock are those of the chip, so they are true of each of its instances."""
    found = gpus(*(mig(name, 35, number) for name in ("MEMORY_TEMP", "SM_CLOCK") for number in "34"))

    assert [gpu.values for gpu in found.values()] == [{"memory_temperature_celsius": 35, "sm_clock_hertz": 35e6}] * 2


def test_amounts_are_the_gpus_once() -> None:
    """Power and energy, repeated with each instance, are the whole GPU's, once: else a sum would be a multiple."""
    found = gpus(
        *(
            mig(name, 300, number)
            for name in ("POWER_USAGE", "TOTAL_ENERGY_CONSUMPTION", "XID_ERRORS")
            for number in "34"
        ),
        mig("FB_USED", 1, "3"),
    )

    assert found[KEY].values == {"power_watts": 300, "energy_joules_total": 0.3, "xid_last": 300}
    assert (found[KEY].gpu, found[KEY].mig_profile) == (0, "")
    assert found[GpuKey(UUID, 3)].values == {"memory_used_bytes": 1048576}
    assert found[GpuKey(UUID, 4)].values == {}


@pytest.mark.parametrize("value", [0, 57, 9223372036854775792])
def test_utilization_of_an_instance_means_nothing(value: int) -> None:
    """NVML has no utilization under MIG; what exporters print instead is counted and not shown."""
    lines = (mig("GPU_UTIL", value, "1"), mig("MEM_COPY_UTIL", value, "1"), mig("FB_USED", 1, "1"))

    assert gpus(*lines)[GpuKey(UUID, 1)].values == {"memory_used_bytes": 1048576}
    assert problems(*lines) == {"meaningless_under_mig": 2}


def test_activity_over_one_of_an_instance() -> None:
    """DCGM may divide an instance's activity by too few SMs: it is busy, and its ratio is 1."""
    assert gpus(mig("DCGM_FI_PROF_SM_ACTIVE", 1.294, "3"))[GpuKey(UUID, 3)].values == {"sm_active_ratio": 1}


@pytest.mark.parametrize(("text", "key"), [("4294967295", KEY), ("", KEY), ("0", GpuKey(UUID, 0))])
def test_instance_numbers(text: str, key: GpuKey) -> None:
    """The number that means none, and a blank, are whole GPUs; 0 is not."""
    assert list(gpus(row("GPU_TEMP", 48, GPU_I_ID=text))) == [key]


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "99999", "9" * 5000, "\u0661"])
def test_bad_instance(text: str) -> None:
    """A GPU instance that is no number is counted; its sample is not given to the whole GPU."""
    lines = (row("GPU_TEMP", 99, GPU_I_ID=text), row("SM_CLOCK", 1980))

    assert gpus(*lines)[KEY].values == {"sm_clock_hertz": 1.98e9}
    assert problems(*lines) == {"bad_gpu_instance": 1}


def test_instances_own_uuid_is_kept() -> None:
    """What resolves ``MIG-…`` for the join stays with the instance."""
    uuid = "MIG-8f7c2c2e-5d8e-5c3c-9a51-0b9a1f6d3a10"

    assert gpus(mig("FB_USED", 1, "3", dra_mig_device_uuid=uuid))[GpuKey(UUID, 3)].labels == {
        "dra_mig_device_uuid": uuid
    }


# --- the utilization whose unit the name does not tell


RATIO = "GPU_UTIL_RATIO"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((row(RATIO, 97), row(RATIO, 1, OTHER)), [0.97, 0.01]),  # a value over 1: percent
        ((row(RATIO, "0.970000"), row(RATIO, 1, OTHER)), [0.97, 1.0]),  # a fraction: ratio
        ((row(RATIO, 1), row(RATIO, 1, OTHER), row("SM_CLOCK_HERTZ", 1.98e9, "GPU-x")), [1.0, 1.0]),  # a name of 4.7
        ((row(RATIO, 1), row(RATIO, 1, OTHER), row("DEC_UTIL_RATIO", 0, "GPU-x")), [1.0, 1.0]),
        ((row(RATIO, 0), row(RATIO, 0, OTHER)), [0.0, 0.0]),  # nothing is nothing in both
        ((row(RATIO, 0), row(RATIO, 1, OTHER)), [0.0, None]),  # 1 % or 100 %
        ((row(RATIO, 1), row(RATIO, 1, OTHER), row("GPU_TEMP_CELSIUS", 50)), [None, None]),  # a name of 4.6 and 4.7
        ((row(RATIO, 1), row(RATIO, 4294967295, OTHER)), [None, None]),  # a corrupt value is no evidence
    ],
)
def test_unit_of_utilization(lines: tuple[str, ...], expected: list[float | None]) -> None:
    """The page tells whether the value is percent or a ratio; where it does not, a 1 is left out."""
    found = gpus(*lines)

    assert [found[key].values.get("utilization_ratio") for key in (KEY, GpuKey(OTHER))] == expected


def test_undecided_utilization_is_blind() -> None:
    """A utilization that is left out for its unit is a condition, with the number of GPUs."""
    blind = page(row(RATIO, 1), row(RATIO, 1, OTHER)).blind

    assert [(problem.reason, problem.count) for problem in blind] == [("gpu_util_unit_unknown", 2)]
    assert page(row(RATIO, 97)).blind == ()


def test_percent_on_a_page_of_ratios() -> None:
    """Where the page proves ratios, 97 is no utilization."""
    lines = (row(RATIO, 97), row("SM_CLOCK_HERTZ", 1.98e9))

    assert "utilization_ratio" not in gpus(*lines)[KEY].values
    assert problems(*lines) == {"impossible_value": 1}


def test_old_name_beside_the_new() -> None:
    """The old name is always percent, so where a page has both, nothing needs to be decided."""
    parsed = page(row(RATIO, 1), row("GPU_UTIL", 1))

    assert parsed.facts[0].values == {"utilization_ratio": 0.01}


# --- clocks events


def test_mask() -> None:
    """96 is 32 + 64: software and hardware slow down for heat, and all other reasons are known not to hold."""
    gpu = gpus(row("CLOCK_THROTTLE_REASONS", 96))[KEY]
    active = {reason for reason, value in gpu.clocks_event_reasons.items() if value}

    assert active == {"sw_thermal", "hw_thermal"}
    assert set(gpu.clocks_event_reasons) == set(CLOCKS_EVENT_BITS.values())
    assert gpu.values == {}


def test_both_names_of_the_mask() -> None:
    """The mask's new name counts before its old one; they are not two masks."""
    gpu = gpus(row("CLOCK_THROTTLE_REASONS", 0), row("CLOCKS_EVENT_REASONS", 4))[KEY]

    assert gpu.clocks_event_reasons["sw_power_cap"] == 1


def test_event_counters() -> None:
    """Nanoseconds under their reason; the violation and the event counter of one thing are not added."""
    gpu = gpus(
        row("POWER_VIOLATION", 2_000_000_000),
        row("CLOCKS_EVENT_REASON_SW_POWER_CAP_NS", 2_500_000_000),
        row("THERMAL_VIOLATION", 1_500_000_000),
        row("TOTAL_APP_CLOCKS_VIOLATION", 9_000_000_000),
    )[KEY]

    assert gpu.clocks_event_seconds == {"sw_power_cap": 2.5, "thermal": 1.5}


# --- what a page's age is


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        (row("SM_CLOCK", 1980), Era.ANY),
        (row("dcgm_sm_clock", 1980), Era.FIRST),
        (row("DCGM_FI_PROF_SM_UTIL_RATIO", 0.5), Era.RENAMED),
        (row("SM_CLOCK_HERTZ", 1.98e9), Era.BASE_UNITS),
        (row("NVLINK_COUNT_TX_BYTES", 5), Era.ANY),
        (row(RATIO, 97), Era.ANY),
    ],
)
def test_era(line: str, seen: Era) -> None:
    """Names tell how old the page's DCGM is, where they can."""
    assert page(line).seen == seen


# --- one parser, many pages


def test_each_page_stands_alone() -> None:
    """What one page said is not in the next: a parser remembers what heads mean, and no values."""
    parser = GpuPageParser()
    parser.parse(row("GPU_TEMP", 48) + row("SM_CLOCK", 1980))
    second = parser.parse(row("GPU_TEMP", 49))
    third = parser.parse(row("GPU_TEMP", 2147483632))

    assert second.facts[0].values == {"temperature_celsius": 49}
    assert third.facts[0].values == {}


def test_type_and_help_are_not_believed() -> None:
    """A rate that calls itself a counter, twice, in a wrong place, with a wrong unit, is the same rate."""
    lines = (
        "# TYPE DCGM_FI_PROF_PCIE_TX_BYTES counter\n",
        "# HELP DCGM_FI_PROF_SM_ACTIVE in %\n",
        "# TYPE DCGM_FI_PROF_SM_ACTIVE counter\n",
        row("DCGM_FI_PROF_PCIE_TX_BYTES", 14045),
        "# TYPE DCGM_FI_PROF_SM_ACTIVE gauge\n",
        row("DCGM_FI_PROF_SM_ACTIVE", 0.5),
    )

    assert gpus(*lines)[KEY].values == {"pcie_transmit_bytes_per_second": 14045, "sm_active_ratio": 0.5}
