"""What a step did besides taking time: tokens, samples, operations, bytes given to all-reduce."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import straggler.torch
from straggler.hook.torch import install
from straggler.hook.torch.flops import COUNTED_STEP
from straggler.hook.torch.install import Instrument
from straggler.hook.torch.throughput import Rule, parse_rule
from straggler.wire import layout
from straggler.wire.records import StepRecord
from torch_rings import records

HAS_DTENSOR = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 5)
BATCH, LENGTH, WIDTH = 4, 8, 16
TOKENS = BATCH * LENGTH
MATRIX_FLOPS = 2 * TOKENS * WIDTH * WIDTH
"""Of one product of the batch with one weight."""


class Batches(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Batches of a few tokens."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        del index
        return {"input_ids": torch.zeros(LENGTH, dtype=torch.long), "x": torch.randn(LENGTH, WIDTH)}


def loader() -> Any:
    """Endless enough."""
    return torch.utils.data.DataLoader(Batches(), batch_size=BATCH)


class Net(nn.Module):
    """Two matrices."""

    def __init__(self, *, recompute: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.recompute = recompute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = checkpoint(self.half, x, use_reentrant=False) if self.recompute else self.half(x)
        return self.second(x)

    def half(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.first(x))


@pytest.fixture
def put_in(rings: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Puts the instrument in with these variables set."""
    del rings

    def put(**variables: str) -> Instrument:
        for name, value in variables.items():
            monkeypatch.setenv(f"STRAGGLER_{name}", value)
        install.stop()
        return install.start()

    yield put
    install.stop()


def train(model: nn.Module, steps: int = 8, micro: int = 1, batches: Any = None) -> None:
    """A plain loop; ``micro`` batches in each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    source = iter(loader() if batches is None else batches)
    for _ in range(steps):
        for _ in range(micro):
            batch = next(source)
            model(batch["x"].requires_grad_()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def ring(instrument: Instrument) -> list[StepRecord]:
    """What is in it."""
    assert instrument.tracker.timer is not None
    return records(str(instrument.tracker.timer.ring_path), 0)


def test_tokens_and_samples_are_those_of_the_batches(put_in: Any) -> None:
    """The named tensor's elements are tokens, its first dimension samples, also over several batches in a step."""
    instrument = put_in(TOKENS="input_ids", SAMPLES="input_ids")
    train(Net(), steps=5, micro=2)
    steps = ring(instrument)

    assert [step.total_tokens for step in steps] == [2 * TOKENS * number for number in range(1, 5)]
    assert [step.total_samples for step in steps] == [2 * BATCH * number for number in range(1, 5)]
    assert all(step.flags & layout.FLAG_TOKENS and step.flags & layout.FLAG_SAMPLES for step in steps)


def test_ranks_that_get_the_same_batch_count_a_part_each(put_in: Any) -> None:
    """Of 32 tokens for five ranks each counts 6.4 on average, and no rounding adds up."""
    instrument = put_in(TOKENS="input_ids/5")
    train(Net(), steps=11)

    assert ring(instrument)[-1].total_tokens == 10 * TOKENS // 5


def test_nothing_is_counted_that_nobody_asked_for(put_in: Any) -> None:
    """Without a rule tokens, samples and operations are unknown: their flags say so, and zero is not published."""
    instrument = put_in()
    train(Net(), steps=3)
    known = layout.FLAG_TOKENS | layout.FLAG_SAMPLES | layout.FLAG_FLOPS | layout.FLAG_ALLREDUCE

    assert [step.flags & known for step in ring(instrument)] == [0, 0]


def test_batches_of_an_evaluation_are_not_trained_on(put_in: Any) -> None:
    """A validation loop between two steps reads batches that count for nothing."""
    instrument = put_in(TOKENS="input_ids")
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(4):
        model.train()
        batch = next(iter(loader()))
        model(batch["x"]).square().mean().backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            for number, batch in enumerate(loader()):
                model(batch["x"])
                if number == 3:
                    break

    assert ring(instrument)[-1].total_tokens == 3 * TOKENS


def test_the_given_loader_is_looked_at(put_in: Any) -> None:
    """An iterable that is no DataLoader counts as well, through the one that ``instrument`` gives back."""
    instrument = put_in(TOKENS="input_ids")
    watched = instrument.watch_loader(list(loader()))
    train(Net(), steps=4, batches=watched)

    assert ring(instrument)[-1].total_tokens == 3 * TOKENS


def test_a_batch_without_the_tensor_is_said(put_in: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A wrong name leaves tokens unknown, and the log says so once; the training notices nothing."""
    instrument = put_in(TOKENS="inputs.ids")
    train(Net(), steps=16)
    train(Net(), steps=4)

    assert not ring(instrument)[-1].flags & layout.FLAG_TOKENS
    assert [record.message for record in caplog.records if "no batch had the tensor" in record.message] != []
    assert len(caplog.records) == 1


def test_a_rule_that_is_none_is_said(put_in: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Nonsense in a variable is one line in the log, and no token."""
    instrument = put_in(TOKENS="input ids", FLOPS_PER_STEP="many")
    train(Net(), steps=3)

    assert not ring(instrument)[-1].flags & (layout.FLAG_TOKENS | layout.FLAG_FLOPS)
    assert sorted(record.message[:30] for record in caplog.records) == [
        "STRAGGLER_FLOPS_PER_STEP='many",
        "STRAGGLER_TOKENS='input ids' n",
    ]


@pytest.mark.parametrize(
    ("rule", "batch"),
    [
        ("input_ids", {"input_ids": torch.zeros(3, 5)}),
        ("1", (torch.zeros(1), torch.zeros(3, 5))),
        ("*", torch.zeros(3, 5)),
        ("net_input.src", {"net_input": {"src": torch.zeros(3, 5)}}),
        ("ids", SimpleNamespace(ids=torch.zeros(3, 5))),
        ("0.ids", [SimpleNamespace(ids=torch.zeros(3, 5))]),
    ],
)
def test_a_rule_finds_its_tensor(rule: str, batch: Any) -> None:
    """Keys, attributes, indices and the batch itself."""
    parsed = parse_rule(rule)

    assert parsed is not None
    assert parsed.shape(batch) == (3, 5)


@pytest.mark.parametrize("rule", ["", "a b", "a/0", "a/x", "/2", "*/", "a/1000000"])
def test_what_is_no_rule(rule: str) -> None:
    """Anything but a name, and a number of ranks behind a slash, is refused."""
    assert parse_rule(rule) is None


def test_a_rule_with_a_share() -> None:
    """The number behind the slash is how many ranks get the same batch."""
    assert parse_rule(" input_ids/8 ") == Rule(("input_ids",), 8)


def test_the_training_may_say_it_by_itself(put_in: Any) -> None:
    """Amounts add up within a step, go before the rule's, and are nothing before the first step."""
    instrument = put_in(TOKENS="input_ids")
    straggler.torch.add(tokens=10**6)
    model, batches = Net(), loader()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        for batch in [next(iter(batches)), next(iter(batches))]:
            model(batch["x"]).square().mean().backward()
            straggler.torch.add(tokens=7, flops=1e9)
        optimizer.step()

    assert [step.total_tokens for step in ring(instrument)] == [14, 28]
    assert ring(instrument)[-1].total_flops == 4e9


@pytest.mark.parametrize("value", ["5", torch.ones(1), -1, float("nan")])
def test_what_is_no_number_is_ignored(put_in: Any, caplog: pytest.LogCaptureFixture, value: Any) -> None:
    """A tensor is not waited for, nonsense is not added up; it is said once, and the rest goes on."""
    instrument = put_in(FLOPS_PER_TOKEN="6")
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(4):
        model(torch.randn(2, WIDTH)).sum().backward()
        straggler.torch.add(tokens=value, samples=2)
        optimizer.step()

    assert not ring(instrument)[-1].flags & (layout.FLAG_TOKENS | layout.FLAG_FLOPS)
    assert ring(instrument)[-1].total_samples == 6
    assert [record.message[:13] for record in caplog.records] == ["tokens: this "]


def test_adding_without_an_instrument_does_nothing() -> None:
    """A training that says its tokens runs without us as well."""
    install.stop()
    straggler.torch.add(tokens=5)


# Operations


def test_given_operations(put_in: Any) -> None:
    """A number for each step."""
    instrument = put_in(FLOPS_PER_STEP="2.5e12")
    train(Net(), steps=5)

    assert [step.total_flops for step in ring(instrument)] == [2.5e12, 5e12, 7.5e12, 1e13]


def test_the_worked_example(put_in: Any) -> None:
    """1,557,611,200 parameters, 6 N operations a token: in 5.9513 s 262,144 tokens are 44,048 a second and 41.6 %.

    Of one H100 with 989.4 TFLOP/s; here with a batch of 32 tokens, which takes 32 / 262,144 of that time.
    """
    parameters, seconds, peak = 1_557_611_200, 5.9513, 989.4e12
    instrument = put_in(TOKENS="input_ids", FLOPS_PER_TOKEN=str(6 * parameters))
    train(Net(), steps=3)
    step = ring(instrument)[-1]
    in_step = step.total_tokens / 2, step.total_flops / 2
    share = TOKENS / 262_144 * seconds

    assert round(in_step[0] / share) == 44_048
    assert round(in_step[1] / share / peak, 3) == 0.416


def test_one_step_is_counted_and_stands_for_all(put_in: Any) -> None:
    """Forward 2 products; backward 2 for the weights and 2 for the inputs. Only the counted step is marked."""
    instrument = put_in(FLOPS_PER_STEP="count")
    train(Net(), steps=8)
    steps = ring(instrument)

    assert instrument.throughput.count is not None
    assert instrument.throughput.count.flops == 6 * MATRIX_FLOPS
    assert [step.step for step in steps if step.flags & layout.FLAG_PROFILED] == [COUNTED_STEP + 1]
    assert next(step.step for step in steps if step.flags & layout.FLAG_FLOPS) == COUNTED_STEP + 2
    assert steps[-1].total_flops == (len(steps) - COUNTED_STEP - 1) * 6 * MATRIX_FLOPS


def test_recomputation_counts(put_in: Any) -> None:
    """Activation checkpointing runs a product once more, and that is counted: the docs say so."""
    instrument = put_in(FLOPS_PER_STEP="count")
    train(Net(recompute=True), steps=6)

    assert instrument.throughput.count.flops == 7 * MATRIX_FLOPS


def test_a_compiled_step_is_not_counted(put_in: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Its operators cannot be seen: no count, one line in the log that says why, and no number from a part of it."""
    instrument = put_in(FLOPS_PER_STEP="count")
    model = torch.compile(Net(), backend="eager")
    train(model, steps=7)

    assert instrument.throughput.count.flops is None
    assert not ring(instrument)[-1].flags & layout.FLAG_FLOPS
    assert "parts of it are compiled" in caplog.text


def test_a_formula_that_fails_harms_nobody(
    put_in: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in torch's own table ends the count, not the training."""
    from straggler.hook.torch.flops import FORMULAS

    def broken(*_args: Any, **_kwargs: Any) -> int:
        raise RuntimeError("a formula")

    monkeypatch.setitem(FORMULAS, torch.ops.aten.mm, broken)
    instrument = put_in(FLOPS_PER_STEP="count")
    train(Net(), steps=7)

    assert instrument.throughput.count.flops is None
    assert "RuntimeError in the formula of aten.mm" in caplog.text
    assert len(ring(instrument)) == 6


def test_a_mode_of_the_users_on_top_of_ours_stays(put_in: Any) -> None:
    """A dispatch mode that the training enters in the counted step and leaves later is not removed by us."""
    from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

    class Users(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            del types
            return func(*args, **(kwargs or {}))

    instrument = put_in(FLOPS_PER_STEP="count")
    model = Net()
    train(model, steps=COUNTED_STEP + 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with Users() as users:
        for _ in range(3):
            model(torch.randn(BATCH, LENGTH, WIDTH)).sum().backward()
            optimizer.step()
            assert _get_current_dispatch_mode() is users
    for _ in range(3):
        model(torch.randn(BATCH, LENGTH, WIDTH)).sum().backward()
        optimizer.step()

    assert _get_current_dispatch_mode() is None
    assert instrument.throughput.count.flops is None


def test_stopping_in_the_counted_step_leaves_no_mode(put_in: Any) -> None:
    """``stop()`` takes the mode back with everything else."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    instrument = put_in(FLOPS_PER_STEP="count")
    train(Net(), steps=COUNTED_STEP + 1)
    assert instrument.throughput.count.is_counting
    install.stop()

    assert _get_current_dispatch_mode() is None


@pytest.mark.skipif(not HAS_DTENSOR, reason="torch.distributed.tensor came with torch 2.5")
def test_tensor_parallelism_is_not_counted(put_in: Any, group: None, caplog: pytest.LogCaptureFixture) -> None:
    """A DTensor has the shape of the whole, of which this rank computes a part: no count instead of a wrong one."""
    del group
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    instrument = put_in(FLOPS_PER_STEP="count")
    plan = {"first": ColwiseParallel(), "second": RowwiseParallel()}
    train(parallelize_module(Net(), init_device_mesh("cpu", (1,)), plan), steps=7)

    assert instrument.throughput.count.flops is None
    assert "ran on a DTensor, whose shape is not what this rank computes" in caplog.text
    assert len(ring(instrument)) == 6


# All-reduce


def test_gradients_of_a_ddp_are_given_to_all_reduce(put_in: Any, group: None) -> None:
    """Four bytes for each of 512 parameters, once for each backward that synchronizes; frozen ones have no gradient."""
    del group
    instrument = put_in()
    net = Net()
    net.frozen = nn.Parameter(torch.zeros(100), requires_grad=False)
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=1e-3)
    for _ in range(4):
        with model.no_sync():
            model(torch.randn(2, WIDTH)).sum().backward()
        model(torch.randn(2, WIDTH)).sum().backward()
        optimizer.step()

    assert [step.total_allreduce_bytes for step in ring(instrument)] == [
        number * 4 * 2 * WIDTH * WIDTH for number in (1, 2, 3)
    ]


def test_a_communication_hook_makes_the_bytes_unknown(put_in: Any, group: None) -> None:
    """Compressed gradients are fewer bytes than we know: none are published."""
    del group
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    instrument = put_in()
    model = nn.parallel.DistributedDataParallel(Net())
    model.register_comm_hook(None, fp16_compress_hook)
    train(model, steps=4)

    assert [step.flags & layout.FLAG_ALLREDUCE for step in ring(instrument)] == [0, 0, 0]


def test_a_module_that_only_looks_like_a_ddp_has_unknown_bytes(put_in: Any) -> None:
    """Other libraries' wrappers have the same attribute and not what is behind it: unknown, and we stay in."""
    instrument = put_in()
    model = Net()
    model.require_backward_grad_sync = True
    instrument.watch_model(model)
    instrument.throughput.runs_forward(model)
    instrument.throughput.reduces()
    train(model, steps=4)

    assert [step.flags & layout.FLAG_ALLREDUCE for step in ring(instrument)] == [0, 0, 0]


def test_a_forward_without_gradients_reduces_nothing(put_in: Any, group: None) -> None:
    """Only the model whose backward runs gives bytes: not the one that was merely asked."""
    del group
    instrument = put_in()
    teacher, model = (nn.parallel.DistributedDataParallel(Net()) for _ in range(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        with torch.no_grad():
            teacher(torch.randn(2, WIDTH))
        model(torch.randn(2, WIDTH)).sum().backward()
        optimizer.step()

    assert ring(instrument)[-1].total_allreduce_bytes == 2 * 4 * 2 * WIDTH * WIDTH
