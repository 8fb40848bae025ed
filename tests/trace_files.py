"""Makes Chrome traces as Kineto writes them, from a few numbers. Times in microseconds, as there."""

from __future__ import annotations

from typing import Any

MAIN, AUTOGRAD = 100, 200


def event(name: str, category: str, begin: float, duration: float, thread: int = MAIN, **args: Any) -> dict[str, Any]:
    """One complete event."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": thread,
        "ts": begin,
        "dur": duration,
        "args": args,
    }


def mark(number: int, begin: float, duration: float) -> dict[str, Any]:
    """One step, as the profiler marks it."""
    return event(f"ProfilerStep#{number}", "user_annotation", begin, duration)


def kernel(
    name: str, begin: float, duration: float, launched: float, thread: int = MAIN, **args: Any
) -> list[dict[str, Any]]:
    """A kernel and its launch on the host, linked by the time of the launch."""
    link = round(launched * 1000)
    return [
        event("cudaLaunchKernel", "cuda_runtime", launched, 1, thread, correlation=link),
        event(name, "kernel", begin, duration, 7, correlation=link, **args),
    ]


def all_reduce(begin: float, duration: float, launched: float, **args: Any) -> list[dict[str, Any]]:
    """A NCCL kernel of a group of two that reduces a million float32."""
    told = {
        "Collective name": "allreduce",
        "In msg nelems": 1_000_000,
        "Out msg nelems": 1_000_000,
        "Group size": 2,
        "dtype": "Float",
        "Process Group Name": "0",
        **args,
    }
    return kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", begin, duration, launched, AUTOGRAD, **told)


def gpu_step(number: int, begin: float, waits: float = 0.0) -> list[dict[str, Any]]:
    """A step of 1,000 us: loads 100, computes 200 forward, 400 backward, 50 in the optimizer; reduces for 250.

    150 us of the all-reduce run beside backward, 100 after it.

    Args:
        number: of the step.
        begin: of the step.
        waits: by how much longer the all-reduce takes, since a peer is late; the step is as much longer.
    """
    return [
        mark(number, begin, 1000 + waits),
        event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation", begin, 100),
        event("aten::linear", "cpu_op", begin + 100, 40),
        event("aten::addmm", "cpu_op", begin + 110, 20),
        *kernel("gemm", begin + 150, 200, begin + 120),
        event("autograd::engine::evaluate_function: AddmmBackward0", "cpu_op", begin + 200, 100, AUTOGRAD),
        *kernel("gemm_backward", begin + 350, 400, begin + 250, AUTOGRAD),
        *all_reduce(begin + 600, 250 + waits, begin + 290),
        event("Optimizer.step#SGD.step", "user_annotation", begin + 400, 60),
        *kernel("fused_sgd", begin + 850 + waits, 50, begin + 430),
    ]


def trace(*events: Any, rank: int | None = 0, world_size: int = 2) -> dict[str, Any]:
    """A whole file."""
    told = {"backend": "nccl", "rank": rank, "world_size": world_size}
    whole = [one for group in events for one in (group if isinstance(group, list) else [group])]
    return {"schemaVersion": 1, "distributedInfo": told if rank is not None else {}, "traceEvents": whole}
