"""What the PyTorch instrument costs a step, next to the plain loop and to the usual alternatives, in one run.

Run ``python tests/bench/torch.py``: one to three minutes. One process, a group of one rank, DistributedDataParallel
with five buckets. All columns train alternately in short rounds, so that what else the machine does hits them alike.
Every step is timed. Printed are, for each column, the median and the quickest twentieth of its steps, less the plain
loop's: the quickest are those that the machine's other users touched least. Nothing fails here: the goals of 60 us a
step, and of 0.5 % of a step of 50 ms, are printed with a verdict, not asserted.

With ``--parts`` instead (two minutes): what the step of one model costs more where the hook sees only its forward, its
backward or its optimizer, and where it sees all but one of them. An optimizer alone ends no step: it writes no record.
Beside them the limits: hooks that do nothing, and the same records made by the fewest lines that can make them.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]  # it has a torch.py

os.environ["KINETO_LOG_LEVEL"] = "5"

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.optim import optimizer as torch_optimizer  # noqa: E402

from straggler.hook import StepTimer  # noqa: E402
from straggler.hook.torch import install  # noqa: E402
from straggler.hook.torch.waits import hook_gradient  # noqa: E402
from straggler.wire import layout  # noqa: E402

ROUNDS = 15
WARM_UP = 60
"""Steps before those that count: the ring is made, DDP puts its buckets in order, Python specialises its code."""
GOAL_US = 60
PROFILER = "torch.profiler"
"""Comes last: for the rest of a process in which it once ran, hooks in Python cost half as much again."""
GOAL_RATIO = 1.005
"""Of a step of 50 ms."""
Trial = Callable[[], list[float]]
"""Trains one round; seconds of each step."""


def loop(model: nn.Module, steps: int, pause: float) -> list[float]:
    """Train; seconds of each step. ``pause`` makes the step longer without making it noisier."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    x = torch.randn(8, 64)
    times = []
    for step in range(-WARM_UP, steps):
        began = time.perf_counter()
        if pause and step >= 0:
            time.sleep(pause)
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - began)
    return times[WARM_UP:]


def make_model(hook: Any = None) -> nn.Module:
    """Forty parameters in five buckets."""
    net = nn.Sequential(*(nn.Linear(64, 64) for _ in range(20)))
    model = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.07)
    if hook is not None:
        model.register_comm_hook(None, hook)
    return model


def comm_hook(_state: Any, bucket: Any) -> Any:
    """The smallest communication hook in Python: what many would time collectives with."""
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda future: future.value()[0])


comm_hook.__annotations__.clear()  # torch compares them with classes


def trials(steps: int, pause: float) -> dict[str, Trial]:
    """The columns."""
    plain, hooked = make_model(), make_model(comm_hook)

    def instrumented() -> list[float]:
        install.start()
        try:
            return loop(make_model(), steps, pause)
        finally:
            install.stop()

    def profiled() -> list[float]:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            return loop(plain, steps, pause)

    return {
        "plain": lambda: loop(plain, steps, pause),
        "straggler": instrumented,
        "comm hook in Python": lambda: loop(hooked, steps, pause),
        PROFILER: profiled,
    }


def compare(steps: int, pause: float, *without: str) -> None:
    """Print a table of the columns, but for some."""
    columns = {name: trial for name, trial in trials(steps, pause).items() if name not in without}
    times: dict[str, list[float]] = {name: [] for name in columns}
    for trial in columns.values():
        trial()
    for _ in range(ROUNDS):
        for name, trial in columns.items():
            times[name] += trial()
    quick, median = (
        {name: statistics.quantiles(of_column, n=20)[at] for name, of_column in times.items()} for at in (0, 9)
    )
    print(f"\na step of {quick['plain'] * 1e3:.2f} ms; {ROUNDS} rounds of {steps} steps")
    for name in columns:
        extra = (quick[name] - quick["plain"]) * 1e6
        ratio = quick[name] / quick["plain"]
        goal = f"{(GOAL_RATIO - 1) * 100:.1f} %" if pause else f"{GOAL_US} us"
        met = ratio <= GOAL_RATIO if pause else extra <= GOAL_US
        print(
            f"  {name:20s} quickest {extra:+8.1f} us a step, x {ratio:.4f}"
            f"   median {(median[name] - median['plain']) * 1e6:+8.1f} us, x {median[name] / median['plain']:.4f}"
            + (f"   goal {goal}: {'met' if met else 'MISSED'}" if name == "straggler" else "")
        )


class Hooks(NamedTuple):
    """What is in the places where torch calls us; ``None``: nothing."""

    before_forward: Any
    after_forward: Any
    before_optimizer: Any
    after_optimizer: Any
    backward: Callable[..., None]
    """Instead of ``torch.autograd.backward``."""


def nothing(*_: Any) -> None:
    """As a hook of torch's."""


def calling_back(plain: Callable[..., None], arrive: Callable[[], None], begin: Any, end: Any) -> Callable[..., None]:
    """A ``backward`` that asks torch for what ours asks it for."""
    queue_callback = torch.autograd.Variable._execution_engine.queue_callback

    def at_first_gradient(_gradient: torch.Tensor) -> None:
        queue_callback(arrive)

    def backward(loss: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        begin()
        hooks, key = hook_gradient(loss, at_first_gradient)
        try:
            plain(loss, *args, **kwargs)
        finally:
            end()
            hooks.pop(key, None)

    return backward


def straight(timer: StepTimer, plain: Callable[..., None]) -> Hooks:
    """The same phases and the same records for this one loop, and for nothing else: as few lines as can do it.

    No other thread, no other optimizer, no evaluation, no accumulation, no GPU, no compiler, no error is thought of.
    """
    record, arrive, clock = timer.record_timed, timer.arrive_timed, time.monotonic_ns
    sums = [0] * layout.PHASE_COUNT
    open_phases = [layout.OTHER]
    began = since = clock()

    def change(now: int) -> None:
        nonlocal since
        sums[open_phases[-1]] += now - since
        since = now

    def enter(phase: int) -> Callable[..., None]:
        def begin(*_: Any) -> None:
            change(clock())
            open_phases.append(phase)

        return begin

    def leave(*_: Any) -> None:
        change(clock())
        open_phases.pop()

    def arrives() -> None:
        now = clock()
        change(now)
        open_phases.append(layout.WAIT)
        arrive(now)

    def end_backward() -> None:
        change(clock())
        del open_phases[1:]

    def before_optimizer(*_: Any) -> None:
        nonlocal sums, began
        now = clock()
        change(now)
        record(now, now - began, sums, None, 0, 0)
        sums, began = [0] * layout.PHASE_COUNT, now
        open_phases.append(layout.PHASE_INDEX["optimizer"])

    forward, backward = (enter(layout.PHASE_INDEX[name]) for name in ("forward", "backward"))
    return Hooks(forward, leave, before_optimizer, leave, calling_back(plain, arrives, backward, end_backward))


def parts() -> None:
    """Print what each part costs: the hook stays in, and is taken out of some of the three places that a step meets."""
    plain_backward = torch.autograd.backward
    instrument = install.start()
    model = make_model()
    loop(model, 0, 0.0)
    timer = instrument.tracker.timer
    assert timer is not None
    places: list[dict[int, Any]] = [
        model._forward_pre_hooks,
        model._forward_hooks,
        torch_optimizer._global_optimizer_pre_hooks,
        torch_optimizer._global_optimizer_post_hooks,
    ]
    keys = [next(iter(place)) for place in places]
    ours = Hooks._make([*(place[key] for place, key in zip(places, keys, strict=True)), torch.autograd.backward])
    forward: dict[str, Any] = {"before_forward": None, "after_forward": None}
    backward: dict[str, Any] = {"backward": plain_backward}
    optimizer: dict[str, Any] = {"before_optimizer": None, "after_optimizer": None}
    none = Hooks(None, None, None, None, plain_backward)
    columns = {
        "nothing": none,
        "hooks that do nothing": Hooks(
            nothing, nothing, nothing, nothing, calling_back(plain_backward, nothing, nothing, nothing)
        ),
        "all, in one straight piece": straight(timer, plain_backward),
        "forward, backward, optimizer": ours,
        "forward": ours._replace(**backward, **optimizer),
        "backward": ours._replace(**forward, **optimizer),
        "optimizer": ours._replace(**forward, **backward),
        "backward, optimizer": ours._replace(**forward),
        "forward, optimizer": ours._replace(**backward),
        "forward, backward": ours._replace(**optimizer),
    }
    times: dict[str, list[float]] = {name: [] for name in columns}
    for _ in range(3 * ROUNDS):
        for name in random.sample(list(columns), len(columns)):
            for place, key, hook in zip(places, keys, columns[name], strict=False):
                place.clear()
                place.update({} if hook is None else {key: hook})
            torch.autograd.backward = columns[name].backward
            times[name] += loop(model, 60, 0.0)
    quick = {name: statistics.quantiles(of_column, n=20)[0] for name, of_column in times.items()}
    print(f"a step of {quick['nothing'] * 1e3:.2f} ms; of what the hook sees, the quickest twentieth")
    for name, time_s in quick.items():
        print(f"  {name:32s} {(time_s - quick['nothing']) * 1e6:+8.1f} us a step")


def main() -> None:
    """Both lengths of step, or the parts."""
    torch.set_num_threads(1)
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as directory:
        os.environ.update(STRAGGLER_DIR=directory, STRAGGLER_ALLOW_ANY_FILESYSTEM="1")
        dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=0, world_size=1)
        if "--parts" in sys.argv:
            parts()
        else:
            compare(60, 0.0, PROFILER)
            compare(8, 0.048, PROFILER)
            for steps, pause in ((60, 0.0), (8, 0.048)):
                compare(steps, pause, "straggler", "comm hook in Python")
        sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort an interpreter that ends in order


if __name__ == "__main__":
    main()
