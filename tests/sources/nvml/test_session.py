"""What a session makes of answers that the stub of the library does not give."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import FakeNvml
from straggler.errors import ParseError
from straggler.sources.nvml.binding import FUNCTION_NOT_FOUND, LibNvml, NvmlError
from straggler.sources.nvml.page import NvmlPage, decode, encode
from straggler.sources.nvml.session import Session

_KEYS = st.sampled_from(["facts", "problems", "blind", "xids", "watched", "failure", "detail", "key", "xid_events"])
_JSON = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(_KEYS, inner), max_leaves=20
)


def _values(nvml: FakeNvml) -> dict[str, float]:
    return dict(Session(nvml).look(0.0).facts[0].values)


def test_gpu_without_any_value_is_there() -> None:
    """A GPU that supports nothing is a GPU with a name."""
    page = Session(FakeNvml()).look(0.0)

    assert (page.failure, page.problems) == ("", ())
    assert [(gpu.key.uuid, gpu.values) for gpu in page.facts] == [("GPU-00000000-0000-0000-0000-000000000000", {})]


def test_counter_that_wraps_gives_no_rate() -> None:
    """Bytes that went back are no rate; the next difference is one again."""
    nvml = FakeNvml()
    nvml.answers["nvmlDeviceGetPerformanceState"] = 0
    session = Session(nvml)
    rates = []
    for now, total in [(0.0, 1e9), (10.0, 3e9), (20.0, 5.0), (30.0, 1005.0)]:
        nvml.field_values[197] = (0, total)
        rates.append(session.look(now).facts[0].values.get("pcie_transmit_bytes_per_second"))

    assert rates == [None, 2e8, None, 100.0]


def test_mean_over_a_long_pause_is_not_shown() -> None:
    """After minutes without a look the first one is a new beginning."""
    nvml = FakeNvml()
    nvml.answers["nvmlDeviceGetPerformanceState"] = 0
    nvml.answers["nvmlGpmQueryDeviceSupport"] = SimpleNamespace(isSupportedDevice=1)
    nvml.answers["nvmlGpmSampleAlloc"] = object
    nvml.answers["nvmlGpmSampleGet"] = None
    nvml.gpm_values[2] = (0, 40.0)
    session = Session(nvml)
    shown = [session.look(now).facts[0].values.get("sm_active_ratio") for now in (0.0, 15.0, 15.05, 600.0, 615.0)]

    assert shown == [None, 0.4, 0.4, None, 0.4]


def test_gpm_samples_are_given_back() -> None:
    """As many samples are freed as were made, two for each GPU."""
    nvml = FakeNvml()
    nvml.answers["nvmlDeviceGetPerformanceState"] = 0
    nvml.answers["nvmlGpmQueryDeviceSupport"] = SimpleNamespace(isSupportedDevice=1)
    nvml.answers["nvmlGpmSampleAlloc"] = object
    nvml.answers["nvmlGpmSampleGet"] = nvml.answers["nvmlGpmSampleFree"] = None
    session = Session(nvml)
    for now in range(5):
        session.look(float(now))
    session.close()

    assert nvml.called.count("nvmlGpmSampleAlloc") == nvml.called.count("nvmlGpmSampleFree") == 2


@pytest.mark.parametrize("raw", [4_294_967_295, 101])
def test_impossible_value_is_refused(raw: int) -> None:
    """A utilization over 100 % is not shown and counted."""
    nvml = FakeNvml()
    nvml.answers["nvmlDeviceGetPerformanceState"] = 0
    nvml.answers["nvmlDeviceGetUtilizationRates"] = SimpleNamespace(gpu=raw, memory=10)
    page = Session(nvml).look(0.0)

    assert "utilization_ratio" not in page.facts[0].values
    assert page.facts[0].values["memory_copy_utilization_ratio"] == 0.1
    assert [problem.reason for problem in page.problems] == ["impossible_value"]


def test_memory_temperature_of_zero_is_no_sensor() -> None:
    """Drivers say 0 where the memory has no sensor."""
    nvml = FakeNvml()
    nvml.field_values[82] = (0, 0.0)
    nvml.field_values[5] = (0, 0.0)
    values = _values(nvml)

    assert "memory_temperature_celsius" not in values
    assert values["ecc_single_bit_errors_total"] == 0


def test_supported_reasons_decide_what_is_shown() -> None:
    """Where the driver says which reasons it knows, exactly these are shown, and any that it names anyway."""
    nvml = FakeNvml()
    nvml.answers["nvmlDeviceGetCurrentClocksEventReasons"] = 0x400
    nvml.answers["nvmlDeviceGetSupportedClocksEventReasons"] = 0x44
    reasons = Session(nvml).look(0.0).facts[0].clocks_event_reasons

    assert reasons == {"sw_power_cap": 0.0, "hw_thermal": 0.0, "reliability": 1.0}


def test_unknown_count_is_no_page() -> None:
    """Without the number of GPUs there is nothing to say."""
    nvml = FakeNvml()
    nvml.answers["nvmlDeviceGetCount"] = NvmlError(9, "nvmlDeviceGetCount")
    session = Session(nvml)

    with pytest.raises(NvmlError):
        session.look(0.0)


def test_page_survives_the_pipe() -> None:
    """What is read from the line is what was written."""
    nvml = FakeNvml(gpus=2)
    nvml.field_values[74] = (0, 2.5e9)
    page = Session(nvml).look(0.0)
    failure = NvmlPage(failure="absent", detail="no\nlibrary")

    assert decode(encode(page)) == page
    assert decode(encode(failure)) == failure
    assert encode(failure).count(b"\n") == 1


@given(st.one_of(st.binary(), st.text().map(str.encode), _JSON.map(lambda value: json.dumps(value).encode())))
def test_any_line_is_a_page_or_refused(line: bytes) -> None:
    """Whatever comes through the pipe is a page, or an error that is expected."""
    try:
        page = decode(line)
    except ParseError:
        return
    assert isinstance(page, NvmlPage)


def test_function_that_the_binding_does_not_have() -> None:
    """An old nvidia-ml-py is like an old driver: the function is not found."""
    with pytest.raises(NvmlError) as error:
        LibNvml().call("nvmlDeviceGetWhatIsToCome")

    assert error.value.code == FUNCTION_NOT_FOUND
