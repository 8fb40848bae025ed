"""Checks the CUDA clock on a real GPU: ``python tests/gpu/test_on_gpu.py`` prints a table and exits 1 if a line fails.

A minute on one GPU, for whatever cannot be shown by the model of a GPU (``tests/gpu_model.py``). With two GPUs or
more it also runs DistributedDataParallel, FSDP1 and FSDP2 over NCCL with one slow rank, a job of half a minute each.
Under pytest it is one test, which is skipped where there is no GPU. ``... test_on_gpu.py cpu`` runs the jobs alone,
over gloo, to try the script itself.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SLEEP_MS = 30
STEPS = 30
SETTLING = 5
WARM_UP_CYCLES = 500_000_000
"""A quarter of a second: the clock has come up to speed."""
PLACES = ("data", "forward", "backward", "optimizer")
CHECKS: list[tuple[str, Callable[[], tuple[bool, str]]]] = []


def check(claim: str) -> Callable[[Callable[[], tuple[bool, str]]], Callable[[], tuple[bool, str]]]:
    """Add a line to the table."""

    def add(function: Callable[[], tuple[bool, str]]) -> Callable[[], tuple[bool, str]]:
        CHECKS.append((claim, function))
        return function

    return add


def gpu_sleep(milliseconds: float) -> None:
    """Keep the current stream busy without the host; without a GPU, the host."""
    import torch

    if torch.cuda.is_available():
        torch.cuda._sleep(int(milliseconds * _cycles_per_ms()))
    else:
        time.sleep(milliseconds / 1e3)


_cycles: list[float] = []


def _cycles_per_ms() -> float:
    import torch

    if not _cycles:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(WARM_UP_CYCLES)
        begin.record()
        torch.cuda._sleep(50_000_000)
        end.record()
        torch.cuda.synchronize()
        _cycles.append(50_000_000 / begin.elapsed_time(end))
    return _cycles[0]


def meter_on_gpu() -> tuple[Any, list[Any]]:
    """A real event meter and what it published."""
    from straggler.hook.torch.cuda_clock import EventMeter
    from straggler.hook.torch.cuda_device import CudaEvents

    steps: list[Any] = []
    return EventMeter(steps.append, CudaEvents(lambda: False)), steps


def phase(step: Any, name: str) -> float:
    """A phase in milliseconds."""
    from straggler.wire import layout

    return float(step.phase_ns[layout.PHASE_INDEX[name]] / 1e6)


def near(value: float, wanted: float) -> bool:
    """Within a tenth and half a millisecond."""
    return abs(value - wanted) <= wanted / 10 + 0.5


@check("importing and installing the instrument does not initialise CUDA")
def no_initialisation() -> tuple[bool, str]:
    code = (
        "import torch, straggler.torch; straggler.torch.instrument(); m = torch.nn.Linear(2, 2);"
        "o = torch.optim.SGD(m.parameters(), lr=.1)\n"
        "for _ in range(3): m(torch.randn(2, 2)).sum().backward(); o.step()\n"
        "print(torch.cuda.is_initialized())"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stdout.strip()
    return told == "False", f"initialised: {told}"


@check("phases are the GPU's while the host runs ahead, and the host does not wait")
def host_runs_ahead() -> tuple[bool, str]:
    import torch

    from straggler.wire import layout

    meter, steps = meter_on_gpu()
    gpu_sleep(1)
    torch.cuda.synchronize()
    meter.boundary()
    began = time.perf_counter()
    forward = meter.enter(layout.PHASE_INDEX["forward"])
    gpu_sleep(40)
    meter.leave(forward)
    communication = torch.cuda.Stream()
    with torch.cuda.stream(communication):
        gpu_sleep(100)
    wait = meter.enter(layout.WAIT)
    torch.cuda.current_stream().wait_stream(communication)
    meter.leave(wait)
    meter.boundary()
    host = (time.perf_counter() - began) * 1e3
    early = len(steps)
    torch.cuda.synchronize()
    meter.flush()
    ok = host < 20 and not early and near(phase(steps[0], "forward"), 40) and near(phase(steps[0], "wait"), 60)
    return ok, f"host {host:.1f} ms, forward {phase(steps[0], 'forward'):.1f}, wait {phase(steps[0], 'wait'):.1f}"


@check("a user's copy on another stream is not taken for waiting")
def prefetch() -> tuple[bool, str]:
    import torch

    from straggler.wire import layout

    meter, steps = meter_on_gpu()
    meter.boundary()
    with torch.cuda.stream(torch.cuda.Stream()):
        token = meter.enter(layout.PHASE_INDEX["data"])
        gpu_sleep(10)
        meter.leave(token)
    meter.boundary()
    torch.cuda.synchronize()
    meter.flush()
    return token is None and steps[0].own_reason == "measured", f"{steps[0].own_reason}"


@check("a capture of a CUDA graph succeeds inside a step, and the step says cuda_graph")
def capture() -> tuple[bool, str]:
    import torch

    from straggler.wire import layout

    meter, steps = meter_on_gpu()
    x = torch.zeros(8, device="cuda")
    x += 1  # its kernel is loaded: nothing but capturing is to happen in the capture
    graph = torch.cuda.CUDAGraph()
    meter.boundary()
    outer = meter.enter(layout.PHASE_INDEX["forward"])
    meter.boundary()  # events are under way that a careless clock would query
    with torch.cuda.graph(graph):
        token = meter.enter(layout.WAIT)
        x += 1
        meter.flush()
        meter.leave(token)
        meter.leave(outer)
    graph.replay()
    meter.boundary()
    torch.cuda.synchronize()
    meter.flush()
    reasons = [step.own_reason for step in steps]
    return reasons[-1] == "cuda_graph" and float(x[0]) == 2, f"{reasons}, x {float(x[0])}"


@check("2,000 steps use a bounded pool and no memory of the GPU")
def bounded() -> tuple[bool, str]:
    import torch

    from straggler.wire import layout

    meter, steps = meter_on_gpu()
    before = torch.cuda.memory_allocated()
    meter.boundary()
    for _ in range(2000):
        for name in ("forward", "backward", "wait", "optimizer"):
            meter.leave(meter.enter(layout.PHASE_INDEX[name]))
        meter.boundary()
    torch.cuda.synchronize()
    meter.flush()
    made, grown = meter._made, torch.cuda.memory_allocated() - before
    return len(steps) == 2000 and made <= 128 and grown == 0, f"{made} events, {len(steps)} steps, {grown} bytes"


@check("the events of a step cost less than 60 us of the host")
def cost() -> tuple[bool, str]:
    from straggler.wire import layout

    meter, _ = meter_on_gpu()
    meter.boundary()
    best = 1e9
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(50):
            for name in ("forward", "backward", "wait", "optimizer"):
                meter.leave(meter.enter(layout.PHASE_INDEX[name]))
            meter.boundary()
        best = min(best, (time.perf_counter() - began) / 50 * 1e6)
    return best < 60, f"{best:.1f} us for 9 events"


@check("the GPU's UUID and PCI address are those of the driver")
def identity() -> tuple[bool, str]:
    from straggler.hook.torch import facts

    known = facts.find().texts
    listed = subprocess.run(
        ["nvidia-smi", "--query-gpu=uuid,pci.bus_id", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    listed += subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    told = (known.get("gpu_uuid", "?"), known.get("pci_bus_id", "?"))
    return told[0] in listed and told[1].lower() in listed.lower(), f"{told}"


@check("a whole training on one GPU is published on the CUDA clock, each of its steps")
def training() -> tuple[bool, str]:
    told = job("plain", 1)[0]["data"]
    clock, reasons, count = (told[what] for what in ("clock", "reasons", "steps"))
    return (clock, reasons, count) == ("cuda", ["measured"], STEPS - 1), f"{clock}, {reasons}, {count} steps"


@check("a host that runs far ahead of the GPU loses own time, says so, and has it again afterwards")
def far_ahead() -> tuple[bool, str]:
    import torch

    meter, steps = meter_on_gpu()
    gpu_sleep(1)
    torch.cuda.synchronize()
    meter.boundary()
    for _ in range(20):
        gpu_sleep(5)
        meter.boundary()
    for _ in range(3):
        torch.cuda.synchronize()
        meter.boundary()
    torch.cuda.synchronize()
    meter.flush()
    reasons = [step.own_reason for step in steps]
    ok = len(reasons) == 23 and reasons[0] == reasons[-1] == "measured" and set(reasons[9:19]) == {"too_many_brackets"}
    return ok, f"{reasons.count('measured')} measured, {reasons.count('too_many_brackets')} not"


def _slow(wrap: str, place: str) -> Callable[[], tuple[bool, str]]:
    def compare() -> tuple[bool, str]:
        ranks = [rank[place] for rank in job(wrap, 2)]
        own = [rank["own"] * 1e3 for rank in ranks]
        wall = [rank["wall"] * 1e3 for rank in ranks]
        ok = near(own[1] - own[0], SLEEP_MS) and abs(wall[1] - wall[0]) < SLEEP_MS / 10
        ok = ok and all(rank["reasons"] == ["measured"] for rank in ranks)
        return ok, f"own {own[0]:.1f}/{own[1]:.1f}, wall {wall[0]:.1f}/{wall[1]:.1f} ms, {ranks[0]['reasons']}"

    return compare


for _wrap in ("ddp", "fsdp1", "fsdp2"):
    for _place in PLACES:
        check(f"NCCL, {_wrap}: rank 1 slow by {SLEEP_MS} ms in {_place} (needs two GPUs)")(_slow(_wrap, _place))


# The job that the last checks run


@functools.cache
def job(wrap: str, ranks: int) -> list[dict[str, Any]]:
    """Train on this many GPUs, slow in one place after the other; what each rank's ring says, by place."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as rings, tempfile.TemporaryDirectory() as out:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"),
                *(__file__, "--rank-of", out, wrap),
            ],
            env={**os.environ, "STRAGGLER_DIR": rings},
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
        )
        if done.returncode:
            raise RuntimeError(done.stdout[-2000:])
        return [json.loads((Path(out) / f"{rank}.json").read_text()) for rank in range(ranks)]


def batches(is_slow: bool) -> Iterator[Any]:  # noqa: FBT001 - one flag
    """Batches from a loader of torch's, slow in ``data``."""
    import torch

    class Source(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            while True:
                if is_slow:
                    time.sleep(SLEEP_MS / 1e3)
                yield torch.randn(16, 256)

    return iter(torch.utils.data.DataLoader(Source(), batch_size=None))


def model(wrap: str, slow: str, device: str) -> Any:
    """Three layers that take 5 ms each way, and ``SLEEP_MS`` more where they are ``slow``."""
    import torch
    from torch import nn

    class SlowBackward(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(_ctx: Any, gradient: Any) -> Any:
            gpu_sleep(5 + (SLEEP_MS if slow == "backward" else 0))
            return gradient

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(3))

        def forward(self, x: Any) -> Any:
            gpu_sleep(5 + (SLEEP_MS if slow == "forward" else 0))
            x = self.layers[0](x)
            x = SlowBackward.apply(self.layers[1](x))
            return self.layers[2](x)

    net: nn.Module = Net().to(device)
    if wrap == "ddp":
        return nn.parallel.DistributedDataParallel(net)
    if wrap == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        policy = ModuleWrapPolicy({nn.Linear})
        return FullyShardedDataParallel(
            net, auto_wrap_policy=policy, device_id=torch.device(device), use_orig_params=True
        )
    if wrap == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(torch.device(device).type, (torch.distributed.get_world_size(),))
        for layer in net.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
    return net


def train(wrap: str, slow: str, device: str) -> None:
    """One rank's training. It looks at each loss, so that the host's sleep in ``data`` holds the GPU up as well."""
    import torch

    net = model(wrap, slow, device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    loader = batches(slow == "data")
    for _ in range(STEPS):
        loss = net(next(loader).to(device, non_blocking=True)).square().mean()
        loss.backward()
        if slow == "optimizer":
            gpu_sleep(SLEEP_MS)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()


def rank_of_job(out: str, wrap: str) -> None:
    """One rank: it trains once for each place, and says what its ring holds of that."""
    sys.path.append(str(Path(__file__).parents[1]))
    import torch
    import torch.distributed as dist

    import straggler.torch
    from straggler.hook.torch import install
    from straggler.wire import layout
    from torch_rings import records

    straggler.torch.instrument()
    device = "cpu"
    if torch.cuda.is_available():
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
        gpu_sleep(1)  # gauged before it counts
    dist.init_process_group("gloo" if device == "cpu" else "nccl")
    tracker = install.start().tracker
    told: dict[str, Any] = {}
    seen = 0
    for place in PLACES if wrap != "plain" else PLACES[:1]:
        dist.barrier()
        train(wrap, place if dist.get_rank() == 1 else "", device)
        if device != "cpu":
            torch.cuda.synchronize()
        tracker.flush()
        timer = tracker.timer
        assert timer is not None
        steps = records(str(timer.ring_path), seen)
        seen = steps[-1].serial
        settled = steps[SETTLING:]
        told[place] = {
            "steps": len(steps),
            "wall": statistics.median(step.wall_ns for step in settled) / 1e9,
            "own": statistics.median(step.own_ns or 0 for step in settled) / 1e9,
            "reasons": sorted({layout.OWN_REASONS[step.own_reason] for step in settled}),
            "clock": timer.identity.clock,
        }
    (Path(out) / f"{dist.get_rank()}.json").write_text(json.dumps(told))
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # a backend's threads may abort an interpreter that ends in order; that is not what is tested


def main(*, jobs_alone: bool = False) -> int:
    """Print the table; 1 if a line fails."""
    import torch

    gpus = torch.cuda.device_count()
    print(f"torch {torch.__version__}, " + (f"{gpus} x {torch.cuda.get_device_name(0)}" if gpus else "no GPU"))
    failed = 0
    for claim, function in CHECKS:
        needs_two = "two GPUs" in claim
        if (needs_two and gpus < 2 and not jobs_alone) or (jobs_alone and not needs_two):
            print(f"skipped  {claim}")
            continue
        try:
            ok, told = function()
        except Exception as error:  # noqa: BLE001 - a line of the table fails, the others are still wanted
            ok, told = False, repr(error)
        failed += not ok
        print(f"{'ok' if ok else 'FAILED':8s} {claim}: {told}", flush=True)
    return 1 if failed else 0


def test_on_gpu() -> None:
    """Every line of the table holds."""
    import pytest

    torch = pytest.importorskip("torch", exc_type=ImportError)
    if not torch.cuda.is_available():
        pytest.skip("no GPU here: run `python tests/gpu/test_on_gpu.py` where there is one")
    assert main() == 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank-of"]:
        rank_of_job(*sys.argv[2:4])
    else:
        sys.exit(main(jobs_alone=sys.argv[1:] == ["cpu"]))
