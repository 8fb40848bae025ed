"""What the PyTorch instrument costs a step, next to the plain loop and to the usual alternatives, in one run.

Run ``python tests/bench/torch.py``; half a minute. One process, a group of one rank, DistributedDataParallel with five
buckets. All columns train alternately in short rounds, so that whatever else the machine does hits them alike; what is
printed is the median over the rounds of each column's step less the plain one of the same round, their ratio, and the
difference of the two quickest rounds, which is what the machine's other users touch least.
Nothing fails here: the goal of 60 us a step is printed with a verdict, not asserted.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]  # it has a torch.py

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from straggler.hook.torch import install  # noqa: E402

ROUNDS = 15
GOAL_US = 60
Trial = Callable[[], float]
"""Trains one round; seconds a step."""


def loop(model: nn.Module, steps: int, pause: float) -> float:
    """Train; seconds a step. ``pause`` makes the step longer without making it noisier."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    x = torch.randn(8, 64)
    began = 0.0
    for step in range(steps + 2):  # the first steps begin things
        if step == 2:
            began = time.perf_counter()
        if pause:
            time.sleep(pause)
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return (time.perf_counter() - began) / steps


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

    def instrumented() -> float:
        install.start()
        try:
            model = make_model()
            loop(model, 20, 0.0)  # the ring is made, and DDP's buckets are put in order
            return loop(model, steps, pause)
        finally:
            install.stop()

    def profiled() -> float:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            return loop(plain, steps, pause)

    return {
        "plain": lambda: loop(plain, steps, pause),
        "straggler": instrumented,
        "comm hook in Python": lambda: loop(hooked, steps, pause),
        "torch.profiler": profiled,
    }


def compare(steps: int, pause: float) -> None:
    """Print a table."""
    columns = trials(steps, pause)
    for trial in columns.values():
        trial()
    rounds = [{name: trial() for name, trial in columns.items()} for _ in range(ROUNDS if pause == 0 else 8)]
    base = statistics.median(one["plain"] for one in rounds)
    print(f"\na step of {base * 1e3:.2f} ms, {len(rounds)} rounds of {steps} steps")
    for name in columns:
        extra = statistics.median(one[name] - one["plain"] for one in rounds) * 1e6
        quickest = (min(one[name] for one in rounds) - min(one["plain"] for one in rounds)) * 1e6
        ratio = statistics.median(one[name] / one["plain"] for one in rounds)
        verdict = f"  goal {GOAL_US} us: {'met' if quickest <= GOAL_US else 'MISSED'}" if name == "straggler" else ""
        print(f"  {name:22s} {extra:+8.1f} us a step   x {ratio:.4f}   quickest {quickest:+8.1f} us{verdict}")


def main() -> None:
    """Both lengths of step."""
    torch.set_num_threads(1)
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as directory:
        os.environ.update(KINETO_LOG_LEVEL="5", STRAGGLER_DIR=directory, STRAGGLER_ALLOW_ANY_FILESYSTEM="1")
        dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=0, world_size=1)
        compare(steps=60, pause=0.0)
        compare(steps=6, pause=0.048)
        sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort an interpreter that ends in order


if __name__ == "__main__":
    main()
