"""When own time is measured, and what is said where it is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hook_process import PRELUDE, train
from straggler.hook.gpu_clock import gpu_is_open
from straggler.wire import layout

Make = Callable[..., Any]


def reasons(one: Any) -> list[str]:
    """Of each step."""
    return [layout.OWN_REASONS[record.own_reason] for record in one.records]


def test_without_a_wait_phase_there_is_none(rank: Make) -> None:
    """A loop that never marks waiting has no own time: it would equal the step."""
    one = rank()
    for _ in range(3):
        with one.timer.step():
            one.clock.ms(10)

    assert reasons(one) == ["no_wait_phase"] * 3
    last = one.records[-1]
    assert (last.own_ns, last.total_own_ns, last.total_wait_ns, last.total_unmeasured_steps) == (None, 0, 0, 3)
    assert one.ring.identity.own_reason == "no_wait_phase"


def test_it_begins_with_the_first_step_that_waits(rank: Make) -> None:
    """Steps before the first wait are unmeasured; from then on a step without a wait waited for nobody."""
    one = rank()
    with one.timer.step():
        one.clock.ms(10)
    one.step(own=10, wait=5)
    with one.timer.step():
        one.clock.ms(10)

    assert reasons(one) == ["no_wait_phase", "measured", "measured"]
    assert [record.own_ns for record in one.records] == [None, 10_000_000, 10_000_000]
    assert one.records[-1].total_own_ns == 20_000_000
    assert one.records[-1].total_wait_ns == 5_000_000


def test_a_barrier_in_a_checkpoint_proves_nothing(rank: Make) -> None:
    """A wait inside checkpoint or eval is no sign that the loop marks its waits."""
    one = rank()
    with one.timer.step(), one.timer.phase("checkpoint"), one.timer.phase("wait"):
        one.clock.ms(10)

    assert reasons(one) == ["no_wait_phase"]


def test_alone_it_is_the_step(rank: Make) -> None:
    """A rank without peers waits for nobody."""
    one = rank(world_size=1)
    with one.timer.step():
        one.clock.ms(10)

    assert (reasons(one), one.records[0].own_ns) == (["measured"], 10_000_000)
    assert one.ring.identity.own_reason == "measured"


def test_it_can_be_switched_off(rank: Make) -> None:
    """The user's word is final."""
    one = rank(own_time=False)
    one.step()

    assert (reasons(one), one.ring.identity.own_reason) == (["switched_off"], "switched_off")


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ([], False),
        (["/dev/null", "socket:[12]", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-caps/nvidia-cap1"], False),
        (["/dev/nvidiactl", "/dev/nvidia0"], True),
        (["/dev/kfd"], True),
        (["/home/me/dev/nvidia0"], False),
    ],
)
def test_a_gpu_is_known_by_its_open_device(tmp_path: Path, targets: list[str], expected: bool) -> None:  # noqa: FBT001
    """A CUDA or ROCm context holds its device file open; who only counts GPUs opens the control device."""
    for number, target in enumerate(targets):
        (tmp_path / str(number)).symlink_to(target)

    assert gpu_is_open(str(tmp_path)) is expected


def test_no_proc_is_no_gpu(tmp_path: Path) -> None:
    """Where descriptors cannot be listed, nothing is claimed."""
    assert gpu_is_open(str(tmp_path / "missing")) is False


NAMESPACE = """
import ctypes, os
libc = ctypes.CDLL(None)
if libc.unshare(0x00020000) or libc.mount(b"none", b"/", None, 0x44000, None):
    print("no namespace")
    raise SystemExit
if libc.mount(b"tmpfs", b"/dev", b"tmpfs", 0, None):
    print("no namespace")
    raise SystemExit
open("/dev/null", "w").close()
"""
"""A /dev of its own, in which a regular file may be called like a GPU."""


@pytest.mark.parametrize(
    ("promise", "expected", "reports"),
    [("", "gpu_clock_missing", 1), (", gpu_synchronized=True", "measured", 0)],
    ids=["asynchronous", "synchronized"],
)
def test_a_gpu_behind_the_hosts_back(tmp_path: Path, promise: str, expected: str, reports: int) -> None:
    """On a GPU the host's clock cannot see waiting: from the first step on there is no own time, unless promised."""
    prelude = NAMESPACE + PRELUDE.replace("world_size=2", "world_size=2" + promise)
    done = train("gpu = open('/dev/nvidia0', 'w')\nsteps(40)", tmp_path, prelude=prelude, flags=())
    if done.out:
        pytest.skip("needs a mount namespace: root")

    (ring,) = done.rings
    assert (done.code, len(done.reports)) == (0, reports), done.err
    assert {layout.OWN_REASONS[record.own_reason] for record in ring.records} == {expected}
