"""User code stays whole: what it compiles, hooks, pickles and breaks works with us as without us.

All in one process, as a group of one rank.
"""

from __future__ import annotations

import copy
import gc
import io
import logging
import os
import pickle
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import straggler.torch
from straggler.hook.torch import patches
from straggler.hook.torch.install import Instrument
from straggler.wire import layout
from straggler.wire.decode import decode_live
from straggler.wire.records import StepRecord
from torch_loops import loop_with_a_compiled_collective, train
from torch_rings import records

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*:UserWarning", "ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning"
)


def steps_of(instrument: Instrument) -> list[StepRecord]:
    """What is in the ring."""
    timer = instrument.tracker.timer
    assert timer is not None
    assert timer.ring_path is not None
    return records(timer.ring_path, 0)


def live_of(instrument: Instrument) -> Any:
    """The live block of the ring."""
    timer = instrument.tracker.timer
    assert timer is not None
    data = Path(str(timer.ring_path)).read_bytes()
    return decode_live(data[layout.LIVE_OFFSET : layout.LIVE_OFFSET + layout.LIVE_BYTES])


def test_a_process_that_never_steps_gets_no_ring(instrument: Instrument, rings: Path) -> None:
    """A model that is only evaluated, or only differentiated, is no training."""
    model = nn.Linear(4, 4)
    for _ in range(3):
        model(torch.randn(3, 4)).sum().backward()

    assert list(rings.iterdir()) == []
    assert instrument.tracker.timer is None


def test_a_single_process_is_measured_whole(instrument: Instrument) -> None:
    """Without peers nothing is waited for, so own time is the step."""
    train(nn.Linear(4, 4))

    steps = steps_of(instrument)
    assert len(steps) == 3
    assert all(step.own_ns == step.wall_ns for step in steps)


def test_without_any_settings_it_measures(instrument: Instrument, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``STRAGGLER_DISABLED`` the first step takes every patch back."""
    monkeypatch.setenv("STRAGGLER_DISABLED", "1")
    train(nn.Linear(4, 4))

    assert instrument.tracker.timer is None
    assert patches.installed() == []


class Descent(torch.optim.Optimizer):
    """Not one of torch's own: from those torch 2.1 strips all hooks once something was compiled in the process."""

    def step(self, closure: Any = None) -> None:
        del closure
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.add_(parameter.grad, alpha=-0.01)


@pytest.mark.usefixtures("instrument")
def test_global_hooks_of_the_users_survive_our_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch iterates over all optimizer hooks when the first step tells us to go: a hook less would be its error."""
    from torch.optim import optimizer as torch_optimizer

    called = []
    handles = [
        torch_optimizer.register_optimizer_step_pre_hook(lambda *_: called.append("before")),
        torch_optimizer.register_optimizer_step_post_hook(lambda *_: called.append("after")),
    ]
    monkeypatch.setenv("STRAGGLER_DISABLED", "1")
    net = nn.Linear(4, 4)
    train(net, 2, Descent(net.parameters(), {}))
    for handle in handles:
        handle.remove()

    assert called == ["before", "after"] * 2


@pytest.mark.usefixtures("group")
@pytest.mark.slow
@pytest.mark.parametrize("form", ["plain", "inside", "outside"])
def test_what_compiles_without_us_compiles_with_us(instrument: Instrument, form: str) -> None:
    """``torch.compile`` meets nothing of ours that it cannot trace, also as one whole graph, and steps are seen.

    Around DistributedDataParallel torch itself can make no whole graph.
    """
    if form == "inside" and patches.VERSION < (2, 2):
        pytest.skip("torch 2.1 itself cannot do that")
    net: nn.Module = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    if form == "plain":
        straggler.torch.instrument(model=net)
        net = torch.compile(net, backend="eager", fullgraph=True)
    elif form == "inside":
        net = nn.parallel.DistributedDataParallel(torch.compile(net, backend="eager", fullgraph=True))
    else:
        net = torch.compile(nn.parallel.DistributedDataParallel(net), backend="eager")
    train(net)

    assert [layout.OWN_REASONS[step.own_reason] for step in steps_of(instrument)] == ["measured"] * 3


@pytest.mark.usefixtures("group")
@pytest.mark.slow
def test_a_compiled_collective_hides_its_wait(instrument: Instrument, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collective inside a compiled graph is not seen when it runs, so own time is absent and says why."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    loop_with_a_compiled_collective()()

    assert {layout.OWN_REASONS[step.own_reason] for step in steps_of(instrument)} == {"hidden_collectives"}


@pytest.mark.usefixtures("group")
def test_an_eager_functional_collective_is_a_wait(instrument: Instrument) -> None:
    """Outside of graphs a functional collective ends in Python, where its wait is timed."""
    from torch.distributed import _functional_collectives as functional

    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(4):
        total = functional.all_reduce(torch.randn(3, 4), "sum", dist.group.WORLD)
        net(total + 0).sum().backward()
        optimizer.step()

    steps = steps_of(instrument)[1:]
    assert all(step.wait_ns > 0 for step in steps)
    assert {layout.OWN_REASONS[step.own_reason] for step in steps} == {"measured"}


@pytest.mark.usefixtures("group")
def test_a_users_comm_hook_is_the_only_one(instrument: Instrument) -> None:
    """DDP takes one communication hook, and it is the user's."""
    called = []

    def hook(_state: Any, bucket: Any) -> Any:
        called.append(bucket.index())
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    hook.__annotations__.clear()  # torch compares them with classes, and here they are texts
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    model.register_comm_hook(None, hook)
    train(model)

    assert called == [0, 0, 0, 0]
    assert len(steps_of(instrument)) == 3


@pytest.mark.usefixtures("group")
def test_a_checkpoint_of_the_whole_module_knows_nothing_of_us(instrument: Instrument) -> None:
    """A pickled model loads where this package is not installed; a copy trains as the original does."""
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    straggler.torch.instrument(model=model)
    train(model)
    file = io.BytesIO()
    torch.save(model.module, file)

    assert b"straggler" not in file.getvalue()
    assert b"straggler" not in pickle.dumps(model)
    train(copy.deepcopy(model.module))
    assert len(steps_of(instrument)) >= 3 + 3


def test_saving_is_checkpoint_and_said_at_once(instrument: Instrument) -> None:
    """While ``torch.save`` runs the live block says so; afterwards its time is in the phase ``checkpoint``."""
    seen = []

    class Slow(io.BytesIO):
        def write(self, data: Any) -> int:
            seen.append(live_of(instrument).excluded_phase)
            return super().write(data)

    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, 2, optimizer)
    torch.save(model.state_dict(), Slow())
    train(model, 1, optimizer)

    assert set(seen) == {layout.PHASE_INDEX["checkpoint"]}
    assert live_of(instrument).excluded_phase is None
    assert steps_of(instrument)[-1].phase_ns[layout.PHASE_INDEX["checkpoint"]] > 0


@pytest.mark.usefixtures("group")
def test_a_distributed_checkpoint_is_checkpoint(instrument: Instrument, tmp_path: Path) -> None:
    """Also if its package is imported long after training began."""
    from torch.distributed import checkpoint

    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, 2, optimizer)
    save = getattr(checkpoint, "save", None) or checkpoint.save_state_dict
    save(model.state_dict(), storage_writer=checkpoint.FileSystemWriter(str(tmp_path / "dcp")))
    train(model, 1, optimizer)

    assert steps_of(instrument)[-1].phase_ns[layout.PHASE_INDEX["checkpoint"]] > 0


def test_validation_is_neither_own_nor_slow(instrument: Instrument) -> None:
    """From ``eval()`` of the model that trains to its ``train()``; a frozen teacher's ``eval()`` is nothing."""
    model, teacher = nn.Linear(4, 4), nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, 2, optimizer)
    teacher.eval()
    assert live_of(instrument).excluded_phase is None
    model.eval()
    assert live_of(instrument).excluded_phase == layout.PHASE_INDEX["eval"]
    with torch.no_grad():
        model(torch.randn(3, 4))
    model.train()

    assert live_of(instrument).excluded_phase is None


def test_our_own_fault_is_told_once_and_takes_everything_back(
    instrument: Instrument, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of ours reaches nobody: it is logged once, the patches go, and training ends as it would have."""
    originals = (torch.autograd.backward.__wrapped__, torch.save.__wrapped__)

    def broken() -> dict[str, Any]:
        raise RuntimeError("of our own")

    instrument.tracker.amounts = broken
    model = nn.Linear(4, 4)
    before = model.weight.detach().clone()
    with caplog.at_level(logging.WARNING):
        train(model, 6)

    assert not torch.equal(model.weight, before)
    assert len([record for record in caplog.records if "of our own" in record.getMessage()]) == 1
    assert patches.installed() == []
    assert (torch.autograd.backward, torch.save) == originals


def test_a_users_error_passes_and_the_next_step_is_whole(instrument: Instrument) -> None:
    """A backward that raises reaches the user as it is, and leaves no phase open."""

    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            del ctx
            return x.clone()

        @staticmethod
        def backward(_ctx: Any, _gradient: torch.Tensor) -> torch.Tensor:
            raise ValueError("the user's")

    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, 2, optimizer)
    with pytest.raises(ValueError, match="the user's"):
        Broken.apply(model(torch.randn(3, 4))).sum().backward()
    train(model, 2, optimizer)

    last = steps_of(instrument)[-1]
    assert sum(last.phase_ns) == last.wall_ns
    assert len(steps_of(instrument)) == 3


def test_another_thread_that_trains_is_not_the_rank(instrument: Instrument) -> None:
    """The thread that stepped first is measured; a model trained beside it adds no step."""
    train(nn.Linear(4, 4), 3)
    thread = threading.Thread(target=train, args=(nn.Linear(4, 4), 5))
    thread.start()
    thread.join()

    assert len(steps_of(instrument)) == 2


@pytest.mark.usefixtures("group")
def test_the_group_and_the_model_may_go(instrument: Instrument) -> None:
    """A destroyed process group and a deleted model are the user's business."""
    model: Any = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    train(model)
    del model
    gc.collect()
    dist.destroy_process_group()
    train(nn.Linear(4, 4))

    assert len(steps_of(instrument)) >= 3 + 3  # the new optimizer may first be taken for a second one


def test_loader_workers_write_nothing(instrument: Instrument, rings: Path) -> None:
    """A forked worker neither steps nor says goodbye; the rank's batches are phase ``data``."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, 2, optimizer)
    loader = torch.utils.data.DataLoader(torch.randn(8, 4).split(2), batch_size=None, num_workers=1)
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()

    assert len(list(rings.iterdir())) == 1
    assert live_of(instrument).status == layout.STATUS_RUNNING
    assert steps_of(instrument)[-1].phase_ns[layout.PHASE_INDEX["data"]] > 0


def test_a_forked_child_destroys_nothing_of_the_rank(instrument: Instrument) -> None:
    """The meter has the events of a GPU, which only the process that made them may destroy."""
    train(nn.Linear(4, 4))
    meter = weakref.ref(instrument.tracker._meter)
    gc.collect()  # not in the child: garbage of others may hold a process group, which waits for its threads
    child = os.fork()
    if child == 0:
        is_whole = instrument.tracker._meter is None and meter() is not None
        os._exit(0 if is_whole else 1)

    assert os.waitpid(child, 0)[1] == 0


def test_a_forked_child_of_a_rank_is_no_rank(instrument: Instrument, rings: Path) -> None:
    """It may train whatever it likes: there is no second ring of the same rank."""
    train(nn.Linear(4, 4))
    child = os.fork()
    if child == 0:
        try:
            train(nn.Linear(4, 4))
        finally:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

    assert len(list(rings.iterdir())) == 1
    assert len(steps_of(instrument)) == 3


def test_optimizers_that_step_inside_backward_make_one_step_of_it(instrument: Instrument) -> None:
    """The trick that frees each gradient at once has many optimizers, and a step for each backward."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    for parameter in model.parameters():
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        parameter.register_post_accumulate_grad_hook(lambda _, optimizer=optimizer: optimizer.step())
    for _ in range(5):
        model(torch.randn(3, 4)).sum().backward()

    assert len(steps_of(instrument)) == 4


def test_a_loop_that_lives_by_autograd_grad_trains(instrument: Instrument) -> None:
    """Gradients that the loop assigns itself make steps too."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        gradients = torch.autograd.grad(model(torch.randn(3, 4)).sum(), list(model.parameters()))
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()

    assert len(steps_of(instrument)) == 3


@pytest.mark.usefixtures("group")
def test_of_several_losses_the_first_that_autograd_meets_begins(instrument: Instrument) -> None:
    """``backward`` of a list whose first loss is of no model: the model's reducer is waited for all the same."""
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        aside = torch.ones(1, requires_grad=True).sum()
        torch.autograd.backward([aside, model(torch.randn(3, 4)).sum()])
        optimizer.step()

    assert all(step.wait_ns > 0 for step in steps_of(instrument))


def test_lbfgs_makes_one_step_of_many_closures(instrument: Instrument) -> None:
    """An optimizer that evaluates its closure several times steps once."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    x, y = torch.randn(16, 4), torch.randn(16, 1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        return loss

    for _ in range(5):
        optimizer.step(closure)

    assert len(steps_of(instrument)) == 3  # the first call knew of no backward yet, the second began the first step


def test_an_optimizer_that_is_none_of_torchs_is_seen_if_given(instrument: Instrument) -> None:
    """Anything with a ``step`` method, and any iterable as a loader."""

    class Own:
        def __init__(self, model: nn.Module) -> None:
            self.model = model

        def step(self) -> str:
            return "the user's result"

    model = nn.Linear(4, 4)
    given = straggler.torch.instrument(optimizer=Own(model), loader=[torch.randn(3, 4)] * 4)
    for batch in given.loader:
        model(batch).sum().backward()
        assert given.optimizer.step() == "the user's result"

    assert len(given.loader) == 4
    assert len(steps_of(instrument)) == 3
    assert all(step.phase_ns[layout.PHASE_INDEX["data"]] > 0 for step in steps_of(instrument))


@pytest.mark.usefixtures("instrument")
def test_many_optimizers_make_no_deeper_calls() -> None:
    """Torch 2.1 puts a layer around a class's ``step`` where an optimizer finds none: there is never a second."""

    def depth() -> int:
        step, layers = Optimizer.step, 0
        while hasattr(step, "__wrapped__"):
            step, layers = step.__wrapped__, layers + 1
        return layers

    class Optimizer(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    model = nn.Linear(4, 4)
    depths = []
    for _ in range(4):
        train(model, 2, Optimizer(model.parameters(), lr=0.1))
        depths.append(depth())

    assert depths == [depths[0]] * 4


def test_stop_puts_everything_back(instrument: Instrument) -> None:
    """After ``stop`` torch's functions are its own again, and the ring says goodbye."""
    wrapped = torch.autograd.backward
    train(nn.Linear(4, 4))
    timer = instrument.tracker.timer
    assert timer is not None
    path = Path(str(timer.ring_path))
    straggler.torch.stop()

    data = path.read_bytes()
    assert (
        decode_live(data[layout.LIVE_OFFSET : layout.LIVE_OFFSET + layout.LIVE_BYTES]).status == layout.STATUS_FINISHED
    )
    assert torch.autograd.backward is not wrapped
    train(nn.Linear(4, 4))
