"""What the PyTorch instrument costs a step, next to the plain loop and to the usual alternatives, in one run.

Run ``python tests/bench/torch.py``; a minute. One process, a group of one rank, DistributedDataParallel with five
buckets. All columns train alternately in short rounds, so that whatever else the machine does hits them alike. Every
step is timed. Printed are, for each column, the median and the quickest twentieth of its steps, less the plain loop's:
the quickest are those that the machine's other users touched least. Nothing fails here: the goals of 60 us a step, and
of 0.5 % of a step of 50 ms, are printed with a verdict, not asserted.

With ``--parts`` instead (two minutes): what the step of one model costs more where the hook sees only its forward, its
backward or its optimizer, where it sees all but one of them, and what hooks cost that do nothing. An optimizer alone
ends no step: it writes no record.
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
from typing import Any

sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]  # it has a torch.py

os.environ["KINETO_LOG_LEVEL"] = "5"

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.optim import optimizer as torch_optimizer  # noqa: E402

from straggler.hook.torch import install  # noqa: E402
from straggler.hook.torch.waits import hook_gradient  # noqa: E402

ROUNDS = 15
WARM_UP = 60
"""Steps before those that count: the ring is made, DDP puts its buckets in order, Python specialises its code."""
GOAL_US = 60
PROFILER = "torch.profiler"
"""Comes last: for the rest of a process in which it once ran, hooks in Python cost half as much again."""
GOAL_RATIO = 1.005
"""Of a step of 50 ms."""
IDLE = ("hooks that do nothing",)
"""In all the places where ours are: torch's own price."""
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


def nothing(*_: Any) -> None:
    """As a hook of torch's."""


def backward_that_does_nothing(plain: Callable[..., None]) -> Callable[..., None]:
    """A wrapper of ``backward`` that asks torch for what ours asks it for, and then does nothing."""
    queue_callback = torch.autograd.Variable._execution_engine.queue_callback

    def at_first_gradient(_gradient: torch.Tensor) -> None:
        queue_callback(lambda: None)

    def backward(loss: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        hooks, key = hook_gradient(loss, at_first_gradient)
        try:
            plain(loss, *args, **kwargs)
        finally:
            hooks.pop(key, None)

    return backward


def parts() -> None:
    """Print what each part costs: the hook stays in, and is taken out of some of the three places that a step meets."""
    plain_backward = torch.autograd.backward
    install.start()
    model = make_model()
    loop(model, 0, 0.0)
    hooked_backward = torch.autograd.backward
    forward: list[dict[int, Any]] = [model._forward_pre_hooks, model._forward_hooks]
    optimizer: list[dict[int, Any]] = [
        torch_optimizer._global_optimizer_pre_hooks,
        torch_optimizer._global_optimizer_post_hooks,
    ]
    kept = [("forward", hooks, dict(hooks)) for hooks in forward]
    kept += [("optimizer", hooks, dict(hooks)) for hooks in optimizer]

    idle_backward = backward_that_does_nothing(plain_backward)

    def trial(seen: tuple[str, ...]) -> list[float]:
        for place, hooks, ours in kept:
            hooks.clear()
            hooks.update(dict.fromkeys(ours, nothing) if seen == IDLE else ours if place in seen else {})
        backward = hooked_backward if "backward" in seen else plain_backward
        torch.autograd.backward = idle_backward if seen == IDLE else backward
        return loop(model, 60, 0.0)

    places = ("forward", "backward", "optimizer")
    columns: dict[tuple[str, ...], list[float]] = {(): [], IDLE: [], places: []}
    columns |= {(place,): [] for place in places}
    columns |= {tuple(other for other in places if other != place): [] for place in places}
    for _ in range(3 * ROUNDS):
        for seen in random.sample(list(columns), len(columns)):
            columns[seen] += trial(seen)
    quick = {seen: statistics.quantiles(times, n=20)[0] for seen, times in columns.items()}
    print(f"a step of {quick[()] * 1e3:.2f} ms; of what the hook sees, the quickest twentieth")
    for seen, time_s in quick.items():
        print(f"  {', '.join(seen) or 'nothing':32s} {(time_s - quick[()]) * 1e6:+8.1f} us a step")


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
