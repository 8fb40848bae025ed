"""The hook on a loss that leads to the end of ``backward``: once each time, gone afterwards, and nobody else's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from straggler.hook.torch.install import Instrument
from straggler.hook.torch.waits import hook_gradient
from torch_rings import records

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")

Backward = Callable[[nn.Module], None]


@pytest.fixture
def model(instrument: Instrument, group: None) -> nn.Module:
    """A DistributedDataParallel in a group of one."""
    del instrument, group
    return nn.parallel.DistributedDataParallel(nn.Linear(4, 4))


def arrivals_of_a_step(instrument: Instrument, model: nn.Module, backward: Backward) -> int:
    """How often a step arrives in which this is what goes backward."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(4):
        backward(model)
        optimizer.step()
    timer = instrument.tracker.timer
    assert timer is not None
    *_, before, last = records(str(timer.ring_path), 0)
    return last.arrivals - before.arrivals


def once(model: nn.Module) -> None:
    """As nearly everybody."""
    model(torch.randn(2, 4)).sum().backward()


def from_two_roots(model: nn.Module) -> None:
    """Two losses at a time."""
    output = model(torch.randn(2, 4))
    torch.autograd.backward([output[0].sum(), output[1].sum()])


def twice_with_a_hook(model: nn.Module) -> None:
    """The same loss again, with a hook of the user's on it."""
    loss = model(torch.randn(2, 4)).sum()
    loss.register_hook(lambda gradient: gradient * 2)
    loss.backward(retain_graph=True)
    loss.backward()


def plainly_twice(model: nn.Module) -> None:
    """The same loss again."""
    loss = model(torch.randn(2, 4)).sum()
    loss.backward(retain_graph=True)
    loss.backward()


@pytest.mark.parametrize(
    ("backward", "arrivals"), [(once, 1), (from_two_roots, 1), (plainly_twice, 2), (twice_with_a_hook, 2)]
)
def test_each_backward_arrives_once(
    instrument: Instrument, model: nn.Module, backward: Backward, arrivals: int
) -> None:
    """However many roots it has, and also where a loss goes backward a second time."""
    assert arrivals_of_a_step(instrument, model, backward) == arrivals


def test_the_hook_leaves_and_the_users_stay() -> None:
    """Ours is called until it is removed; what the user hooks onto the same tensor meanwhile goes on."""
    weight = torch.ones(2, requires_grad=True)
    loss = weight.sum()
    ours: list[float] = []
    users: list[float] = []
    hooks, key = hook_gradient(loss, lambda gradient: ours.append(float(gradient)))
    handle = loss.register_hook(lambda gradient: users.append(float(gradient)))

    loss.backward(retain_graph=True)
    del hooks[key]
    loss.backward(retain_graph=True)
    handle.remove()
    loss.backward()

    assert (ours, users) == ([1.0], [1.0, 1.0])
    assert weight.grad is not None
    assert weight.grad.tolist() == [3.0, 3.0]


def test_a_leaf_can_be_hooked_too() -> None:
    """A loss without a history is a leaf."""
    leaf = torch.ones((), requires_grad=True)
    seen: list[float] = []
    hooks, key = hook_gradient(leaf, lambda gradient: seen.append(float(gradient)))
    leaf.backward()
    del hooks[key]
    leaf.backward()

    assert seen == [1.0]
