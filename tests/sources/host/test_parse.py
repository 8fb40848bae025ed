"""The kernel's files as numbers."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from straggler.errors import ParseError
from straggler.sources.host.parse import (
    Groups,
    Stat,
    parse_groups,
    parse_inner_pid,
    parse_numbers,
    parse_pressure,
    parse_run_delay,
    parse_stat,
    throttling,
)

STAT = (
    "4242 ({}) S 4480 4480 7571 0 -1 4194304 3090 6537 7 0 55 1 3 1 20 0 1 0 581501 17764352 3547 18446744073709551615 "
    "1 1 1 0 0 0 0 16781318 0 1 0 0 17 0 0 0 250 0 0 1 1 1 1 1 1 1 0"
)


@pytest.mark.parametrize("name", ["python3", "a b", "a) S 1 2 (", "((", ""])
def test_name_of_the_process_cannot_shift_the_fields(name: str) -> None:
    """Blanks and brackets in a name, which anybody may choose, change no number."""
    expected = Stat(major_faults=7, user_ticks=55, system_ticks=1, start_ticks=581501, io_wait_ticks=250)

    assert parse_stat(STAT.format(name)) == expected


@pytest.mark.parametrize("text", ["", "4242 (python3) S 1 2", STAT.format("x").replace(" 55 ", " many ")])
def test_bad_stat_is_refused(text: str) -> None:
    """What is not in the form is no process."""
    with pytest.raises(ParseError):
        parse_stat(text)


def test_run_delay() -> None:
    """The second number of schedstat is nanoseconds of waiting for a CPU."""
    assert parse_run_delay("564828616 2743046987 411\n") == pytest.approx(2.743046987)


def test_kernel_that_does_not_count_run_delay() -> None:
    """Three zeros are no measurement: a process that runs has run."""
    assert parse_run_delay("0 0 0\n") is None


def test_inner_pid_is_the_last() -> None:
    """NSpid lists the pid from the reader's namespace inwards."""
    assert parse_inner_pid("Name:\tpython3\nNSpid:\t31337\t17\t1\n") == 1
    assert parse_inner_pid("Name:\tpython3\n") is None


def test_groups_of_both_versions() -> None:
    """The second version's line has no controller; the first version's may have several."""
    text = "9:name=systemd:/\n4:memory:/job:a\n2:cpu,cpuacct:/limits\n0::/unified\n"

    assert parse_groups(text) == Groups(unified="/unified", cpu="/limits", memory="/job:a")


def test_group_outside_the_readers_namespace() -> None:
    """A path upwards leads to another group than the process's, so it is not followed."""
    assert parse_groups("0::/../kubepods/pod1\n") == Groups()


def test_pressure() -> None:
    """Microseconds since boot become seconds."""
    text = "some avg10=0.00 avg60=0.12 avg300=0.22 total=34949316\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"

    assert parse_pressure(text) == pytest.approx({"some": 34.949316, "full": 5e-6})


def test_throttling_in_both_versions_words() -> None:
    """Microseconds in one version, nanoseconds in the other."""
    second = throttling({"usage_usec": 1, "nr_periods": 100, "nr_throttled": 25, "throttled_usec": 1_500_000})
    first = throttling({"nr_periods": 100, "nr_throttled": 25, "throttled_time": 1_500_000_000})

    assert first == pytest.approx(second)
    assert second["cpu_throttled_seconds_total"] == pytest.approx(1.5)


def test_group_without_a_cpu_controller_has_no_throttling() -> None:
    """Where nothing can be limited, nothing is said, and not zero."""
    assert throttling({"usage_usec": 12}) == {}


@example("nr_periods ²")
@example("some avg10=0.00 total=²")
@example("NSpid: ²")
@given(st.text())
def test_any_text(text: str) -> None:
    """Any text is read or refused, and nothing else happens."""
    for parse in (parse_stat, parse_run_delay, parse_inner_pid, parse_groups, parse_pressure, parse_numbers):
        with contextlib.suppress(ParseError):
            parse(text)
