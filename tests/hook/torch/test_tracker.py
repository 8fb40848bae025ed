"""What a step is, whose waits count, and what is known of the rank, without a process group."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gpu_model import ModelGpu
from straggler.hook.torch import facts
from straggler.hook.torch.cuda_clock import EventMeter
from straggler.hook.torch.install import Instrument
from straggler.hook.torch.rounds import Rounds
from straggler.hook.torch.tracker import Tracker
from straggler.wire import layout
from straggler.wire.records import StepRecord
from torch_rings import records

FORWARD = layout.PHASE_INDEX["forward"]
OPTIMIZER = object()


@pytest.fixture
def tracker(instrument: Instrument, monkeypatch: pytest.MonkeyPatch) -> Tracker:
    """A rank of two, as far as the environment tells."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    return instrument.tracker


@pytest.fixture
def gpu(tracker: Tracker) -> Iterator[ModelGpu]:
    """A model of a GPU that the tracker's first step found."""
    device = ModelGpu()
    a_step(tracker, object())
    tracker._rounds = Rounds()
    tracker._meter = EventMeter(tracker._publish, device, lambda: device.now_ns)
    yield device
    device.capturing = False


def a_step(tracker: Tracker, *optimizers: object) -> None:
    """One backward, and then these optimizers."""
    tracker.end_backward(tracker.begin_backward([torch.zeros(1, requires_grad=True)]))
    for optimizer in optimizers:
        tracker.optimizer_begins(optimizer)


def steps_of(tracker: Tracker) -> list[StepRecord]:
    """What is in the ring."""
    assert tracker.timer is not None
    return records(str(tracker.timer.ring_path), 0)


def reasons(tracker: Tracker) -> list[str]:
    """Of each step in the ring."""
    return [layout.OWN_REASONS[step.own_reason] for step in steps_of(tracker)]


def test_a_round_of_several_optimizers_is_one_step(tracker: Tracker) -> None:
    """Two models trained in turn, each with a backward of its own: a step a round, whichever came first."""
    generator, critic = object(), object()
    for _ in range(4):
        a_step(tracker, critic)
        a_step(tracker, generator)

    assert len(steps_of(tracker)) == 3


def test_optimizers_in_a_row_are_one_step(tracker: Tracker) -> None:
    """An optimizer for each group of parameters, and each fires its hooks twice."""
    first, second = object(), object()
    for _ in range(4):
        a_step(tracker, first, first, second, second)

    assert len(steps_of(tracker)) == 3


def test_a_critic_that_steps_more_often_makes_the_steps(tracker: Tracker) -> None:
    """Five steps of one optimizer to one of the other: no step lasts longer than until one of them comes again."""
    generator, critic = object(), object()
    for _ in range(3):
        a_step(tracker, generator)
        for _ in range(5):
            a_step(tracker, critic)

    assert len(steps_of(tracker)) == 3 * 5 - 1


def test_a_new_optimizer_for_each_step_still_ends_steps(tracker: Tracker) -> None:
    """Nobody comes twice, but a round of so many different optimizers is none."""
    kept = [object() for _ in range(200)]
    for optimizer in kept:
        a_step(tracker, optimizer)

    assert len(steps_of(tracker)) >= 2


def test_what_the_gpu_has_finished_is_published_before_the_goodbye(tracker: Tracker, gpu: ModelGpu) -> None:
    """A step is published when its events are done, of which nobody would hear after ``stop``."""
    for _ in range(3):
        a_step(tracker, OPTIMIZER)
        gpu.host(1000)
    gpu.launch(100)
    a_step(tracker, OPTIMIZER)
    published = len(steps_of(tracker))
    gpu.host(1000)
    assert tracker.timer is not None
    path = str(tracker.timer.ring_path)
    tracker.stop()

    assert len(records(path, 0)) == published + 1


def test_a_rank_of_many_that_never_waits_has_no_own_time(tracker: Tracker) -> None:
    """Without any wait seen own time would be the step: absent, until the first wait."""
    optimizer = object()
    a_step(tracker, optimizer)
    a_step(tracker, optimizer)
    tracker.end(tracker.begin_wait())
    a_step(tracker, optimizer)

    assert reasons(tracker) == ["no_wait_phase", "measured"]


def test_a_wait_on_the_compute_stream_is_measured_on_the_gpu(tracker: Tracker, gpu: ModelGpu) -> None:
    """Through the tracker into the ring: the clock, the phases, and the host's time for the end."""
    optimizer = object()
    a_step(tracker, optimizer)
    gpu.launch(100)
    gpu.free_at_ns[1] = 250
    token = tracker.begin_wait()
    gpu.wait_for(1)
    tracker.end(token)
    a_step(tracker, optimizer)
    gpu.host(1000)
    tracker.flush()

    step = steps_of(tracker)[-1]
    assert (step.wall_ns, step.wait_ns, step.own_ns) == (250, 150, 100)


def test_a_wait_on_another_stream_makes_own_time_absent(tracker: Tracker, gpu: ModelGpu) -> None:
    """The compute stream will wait for that stream, somewhere unknown to us: no value, never a wrong one."""
    optimizer = object()
    a_step(tracker, optimizer)
    gpu.current = 3
    tracker.end(tracker.begin_wait())
    gpu.current = 0
    a_step(tracker, optimizer)
    tracker.side_waits_are_seen += 1  # as inside of FSDP's functions
    gpu.current = 3
    tracker.end(tracker.begin_wait())
    gpu.current = 0
    tracker.side_waits_are_seen -= 1
    a_step(tracker, optimizer)
    tracker.flush()

    assert reasons(tracker)[-2:] == ["hidden_collectives", "measured"]


def test_a_replayed_step_is_a_step_without_own_time(tracker: Tracker, gpu: ModelGpu) -> None:
    """A graph in which an optimizer stepped: each replay is a step with a length and the reason ``cuda_graph``."""
    tracker.capture_begins()
    gpu.capturing = True
    a_step(tracker, object())
    gpu.capturing = False
    assert tracker.capture_ends()
    for _ in range(4):
        tracker.step_replayed()
        gpu.launch(50)
        gpu.host(80)
    tracker.flush()

    assert reasons(tracker)[-3:] == ["cuda_graph"] * 3
    assert [step.wall_ns for step in steps_of(tracker)[-2:]] == [80, 80]


def test_a_graph_without_an_optimizer_is_none_of_a_step(tracker: Tracker) -> None:
    """A captured forward is replayed inside of ordinary steps."""
    tracker.capture_begins()
    assert not tracker.capture_ends()


def state(**answers: Any) -> types.ModuleType:
    """A module with these functions."""
    module = types.ModuleType("stand-in")
    for name, answer in answers.items():
        setattr(module, name, lambda answer=answer: answer)
    return module


def test_megatron_tells_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline rank of an initialised Megatron with more than one stage is the peer group."""
    known = {"model_parallel_is_initialized": True, "get_pipeline_model_parallel_rank": 3}
    monkeypatch.setitem(
        sys.modules, "megatron.core.parallel_state", state(**known, get_pipeline_model_parallel_world_size=4)
    )
    assert facts.find().numbers["peer_group"] == "3"
    monkeypatch.setitem(
        sys.modules, "megatron.core.parallel_state", state(**known, get_pipeline_model_parallel_world_size=1)
    )
    assert "peer_group" not in facts.find().numbers


def test_a_device_mesh_tells_the_stage() -> None:
    """The place in the dimension ``pp``; a mesh without one tells nothing."""

    class Mesh:
        def __init__(self, *names: str) -> None:
            self.mesh_dim_names = names

        def get_coordinate(self) -> list[int]:
            return [0, 2, 1]

    data, pipeline = Mesh("dp", "tp", "cp"), Mesh("dp", "pp", "tp")
    facts.remember_mesh(data)
    assert "peer_group" not in facts.find().numbers
    facts.remember_mesh(pipeline)
    assert facts.find().numbers["peer_group"] == "2"


def test_deepspeeds_grid_tells_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pipeline grid is the ``mpu`` of its groups."""
    groups = types.ModuleType("deepspeed.utils.groups")
    groups.mpu = SimpleNamespace(  # type: ignore[attr-defined] # a stand-in
        get_pipe_parallel_rank=lambda: 1, get_pipe_parallel_world_size=lambda: 2
    )
    monkeypatch.setitem(sys.modules, "deepspeed.utils.groups", groups)

    assert facts.find().numbers["peer_group"] == "1"


def test_the_users_peer_group_wins_and_a_broken_framework_knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """``STRAGGLER_PEER_GROUP`` asks nobody; whatever a framework raises means that it does not know."""
    broken = types.ModuleType("megatron.core.parallel_state")
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", broken)
    assert "peer_group" not in facts.find().numbers
    known = {"model_parallel_is_initialized": True, "get_pipeline_model_parallel_rank": 3}
    monkeypatch.setitem(
        sys.modules, "megatron.core.parallel_state", state(**known, get_pipeline_model_parallel_world_size=4)
    )
    monkeypatch.setenv("STRAGGLER_PEER_GROUP", "mine")

    assert "peer_group" not in facts.find().numbers


@pytest.mark.parametrize(
    ("name", "uuid", "wanted"),
    [
        ("NVIDIA H100 80GB HBM3", "a1b2", "GPU-a1b2"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "a1b2", "MIG-a1b2"),
        ("NVIDIA H100 80GB HBM3", "GPU-a1b2", "GPU-a1b2"),
    ],
)
def test_a_gpu_is_spelt_as_the_drivers_tools_spell_it(name: str, uuid: str, wanted: str) -> None:
    """``GPU-`` or, for a MIG instance, ``MIG-`` before the UUID; eight digits of PCI domain."""
    properties = SimpleNamespace(name=name, uuid=uuid, pci_domain_id=0, pci_bus_id=0x1B, pci_device_id=0)

    assert facts.gpu_texts(properties) == {"gpu_uuid": wanted, "pci_bus_id": "00000000:1B:00.0"}


def test_an_old_torch_that_knows_no_uuid_says_nothing() -> None:
    """Torch 2.1: the sidecar maps by index instead."""
    assert facts.gpu_texts(SimpleNamespace(name="Tesla T4")) == {}
