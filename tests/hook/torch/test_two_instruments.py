"""``stop()`` and then ``instrument()``: nothing of the first stays, and the second knows what the first one learnt."""

from __future__ import annotations

import functools
import gc
import io
import os
import pickle
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo import config as dynamo_config

import straggler.torch
from straggler.hook.timer import dead_timer
from straggler.hook.torch import install, patches
from straggler.hook.torch.install import Instrument
from straggler.wire import layout
from torch_loops import loop_with_a_compiled_collective, train
from torch_rings import records

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")


def again() -> Instrument:
    """Stop, and put in a second instrument."""
    install.stop()
    return install.start()


def reasons_of(instrument: Instrument) -> set[str]:
    """Of the steps in its ring."""
    timer = instrument.tracker.timer
    assert timer is not None
    return {layout.OWN_REASONS[step.own_reason] for step in records(str(timer.ring_path), 0)}


@pytest.mark.usefixtures("group", "instrument")
def test_stop_leaves_no_hook_on_a_model_that_lives_on() -> None:
    """DistributedDataParallel is its own again, also where it is pickled."""
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    hooked = pickle.dumps(model)
    train(model)
    install.stop()

    assert (len(model._forward_pre_hooks), len(model._forward_hooks)) == (0, 0)
    assert pickle.dumps(model).count(b"straggler") == hooked.count(b"straggler") == 0
    train(model)


def test_wrappers_of_others_around_ours_stay(instrument: Instrument) -> None:
    """They look like ours, as ``functools.wraps`` makes them; and what is under them is measured again afterwards."""
    del instrument
    ours, called = torch.save, []

    @functools.wraps(ours)
    def theirs(*args: Any, **kwargs: Any) -> Any:
        called.append(1)
        return ours(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "save", theirs)
        install.stop()
        assert torch.save is theirs
        install.start()
        assert torch.save is not theirs
        torch.save({}, io.BytesIO())
        assert called == [1]
        install.stop()
        assert torch.save is theirs


def test_an_object_that_cannot_be_put_back_stops_nothing_else(instrument: Instrument) -> None:
    """``stop`` raises nothing, and takes out all the rest."""

    class Frozen:
        frozen = False

        def step(self) -> None:
            """As an optimizer's."""

        def __setattr__(self, name: str, value: Any) -> None:
            if self.frozen:
                raise AttributeError("frozen")
            super().__setattr__(name, value)

    optimizer = Frozen()
    instrument.watch_optimizer(optimizer)
    backward = torch.autograd.backward
    Frozen.frozen = True
    install.stop()

    assert patches.installed() == []
    assert torch.autograd.backward is not backward
    optimizer.step()


@pytest.mark.slow
def test_a_compiled_model_goes_on_after_stop(instrument: Instrument) -> None:
    """Of a class of torch's own the compiler would find nothing to compile any more."""
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    instrument.watch_model(net)
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    train(compiled)
    install.stop()
    train(compiled)
    compiled(torch.randn(7, 4))


WHOLE = """
import sys, warnings
warnings.simplefilter("ignore")
import torch
from torch.autograd import grad
from straggler.hook.torch import install

def early(x): return grad((x * x).sum(), x)[0]
def late(x): return torch.autograd.grad((x * x).sum(), x)[0]
def nested(x): return torch.compile(lambda y: y + 1)(x)
def train():
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        net(torch.randn(3, 4)).sum().backward()
        optimizer.step()

for act in sys.argv[1].split():
    {"start": install.start, "train": train, "stop": install.stop}[act]()
torch._dynamo.config.trace_autograd_ops = True
for function in (early, late, nested):
    torch._dynamo.reset()
    torch.compile(function, backend="eager", fullgraph=True)(torch.randn(3, requires_grad=True))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(dynamo_config, "trace_autograd_ops"), reason="this torch compiles none of that into one graph"
)
@pytest.mark.parametrize("order", ["", "start", "train start", "start train stop", "start train stop start train"])
def test_whole_graphs_stay_whole_whoever_came_first(rings: Path, order: str) -> None:
    """The compiler knows torch's functions by identity, learnt once in a process: before us, with us, after us."""
    del rings
    done = subprocess.run(
        [sys.executable, "-c", WHOLE, order],
        env={**os.environ, "STRAGGLER_RUN": "r"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-2000:]


FAILS = """
import pickle, sys, torch
import torch.distributed as dist
from torch import nn
from straggler.hook.torch import install

tracker = install.start().tracker
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train():
    for _ in range(3):
        model(torch.randn(3, 4)).sum().backward()
        optimizer.step()

def fails(_token):
    raise RuntimeError("of our own")

train()
tracker._meter.leave = fails
train()
assert tracker._meter is None
assert (len(model._forward_pre_hooks), len(model._forward_hooks)) == (0, 0)
assert b"straggler" not in pickle.dumps(model)
sys.stdout.write("whole")
sys.stdout.flush()
import os
os._exit(0)
"""


def test_an_error_of_ours_after_a_forward_leaves_nothing_on_the_model(rings: Path, tmp_path: Path) -> None:
    """Our hooks go at once, so that the model can be pickled for who does not know us.

    In a process of its own: where an exception is being handled, as in a retry, they stay as hooks that do nothing.
    """
    del rings
    done = subprocess.run(
        [sys.executable, "-c", FAILS, str(tmp_path / "store")],
        env={**os.environ, "STRAGGLER_RUN": "r"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "whole", done.stderr[-2000:]


@pytest.mark.usefixtures("group", "instrument")
def test_a_second_instrument_times_the_forward_of_a_model_made_under_the_first() -> None:
    """It has been wrapped already, and nobody wraps it again."""
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    train(model)
    second = again()
    train(model)

    assert (len(model._forward_pre_hooks), len(model._forward_hooks)) == (1, 1)
    timer = second.tracker.timer
    assert timer is not None
    steps = records(str(timer.ring_path), 0)
    assert len(steps) == 3
    assert all(step.phase_ns[layout.PHASE_INDEX["forward"]] for step in steps)


@pytest.mark.usefixtures("group")
def test_a_second_instrument_knows_when_a_model_made_under_the_first_waits(instrument: Instrument) -> None:
    """Under ``no_sync`` nothing is waited for, so nothing arrives."""
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    train(model)
    assert instrument.tracker.synchronizes()
    second = again()

    assert second.tracker.synchronizes()
    with model.no_sync():
        assert not second.tracker.synchronizes()


@pytest.mark.usefixtures("group")
def test_a_model_is_hooked_once_however_often_it_is_given(instrument: Instrument) -> None:
    """It is seen when it is made; ``instrument(model=…)`` adds nothing."""
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    instrument.watch_model(model)

    assert (len(model._forward_pre_hooks), len(model._forward_hooks)) == (1, 1)


@pytest.mark.usefixtures("group", "instrument")
def test_an_error_of_ours_after_a_forward_that_raises_leaves_the_users_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch goes through a model's hooks just then: taking ours away would put another error in its place."""

    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))
            self.breaks = False

        def forward(self, x: torch.Tensor) -> Any:
            if self.breaks:
                raise ValueError("the user")
            return x * self.weight

    model = nn.parallel.DistributedDataParallel(Broken())
    train(model)
    current = install.current()
    assert current is not None
    meter = current.tracker._meter
    assert meter is not None

    def fails(_token: Any) -> bool:
        raise RuntimeError("of our own")

    monkeypatch.setattr(meter, "leave", fails)
    model.module.breaks = True
    with pytest.raises(ValueError, match="the user"):
        model(torch.randn(3, 4))
    assert current.tracker._meter is None


@pytest.mark.usefixtures("group")
@pytest.mark.slow
def test_a_second_instrument_knows_what_was_compiled_under_the_first(
    instrument: Instrument, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph with the collective is not compiled again, and its waits are as hidden as before."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    loop = loop_with_a_compiled_collective()
    loop()
    assert reasons_of(instrument) == {"hidden_collectives"}
    second = again()
    loop()

    assert reasons_of(second) == {"hidden_collectives"}
    assert second.tracker.lasting.opaque


def test_a_graph_with_a_whole_step_is_known_to_a_second_instrument(instrument: Instrument) -> None:
    """Its replays are steps without own time, and it is reason enough for no profile."""

    class Graph:
        """Can be referred to weakly, as a CUDA graph can."""

    graph = Graph()
    instrument.tracker.capture_begins()
    instrument.tracker.lasting.whole_steps.add(graph)
    instrument.tracker.capture_ends()
    second = again()
    train(nn.Linear(4, 4))
    for _ in range(2):
        with pytest.raises((TypeError, AttributeError)):  # torch's own, for what is no graph
            torch.cuda.CUDAGraph.replay(graph)

    assert "cuda_graph" in reasons_of(second)
    assert second.tracker.lasting.has_graphs


def test_who_calls_it_by_name_is_heard_after_the_process_seemed_to_be_no_rank(instrument: Instrument) -> None:
    """The instrument that a cluster's variable put in has given up; ``instrument()`` in the code puts in another."""
    instrument.tracker.make_timer = lambda **_: dead_timer()
    train(nn.Linear(4, 4))
    assert patches.installed() == []
    straggler.torch.instrument()
    train(nn.Linear(4, 4))

    second = install.current()
    assert second is not None
    assert reasons_of(second) == {"measured"}


def test_a_rank_that_is_forked_from_a_rank_is_measured_if_it_says_so(
    instrument: Instrument, rings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the parent's instrument there is nothing in it but that one must not be mistaken for its own."""
    train(nn.Linear(4, 4))
    monkeypatch.setenv("RANK", "1")
    child = os.fork()
    if child == 0:
        try:
            straggler.torch.instrument()
            train(nn.Linear(4, 4))
        finally:
            os._exit(0)
    os.waitpid(child, 0)

    assert len(list(rings.iterdir())) == 2
    assert reasons_of(instrument) == {"measured"}


def test_nothing_of_a_stopped_instrument_stays(rings: Path) -> None:
    """Neither objects, nor what runs at a fork or at the end of the process, nor what the compiler knows."""
    gc.collect()  # what others left, with their descriptors
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    gone = []
    for _ in range(3):
        gone.append(weakref.ref(install.start().tracker))
        train(nn.Linear(4, 4))
        install.stop()
    gc.collect()

    assert [reference() for reference in gone] == [None] * 3
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
    assert len(list(rings.iterdir())) == 3
