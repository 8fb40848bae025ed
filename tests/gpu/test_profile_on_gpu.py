"""Checks profiles and counted operations on a real GPU: ``python tests/gpu/test_profile_on_gpu.py`` prints a table.

Ten seconds on one GPU. ``… test_profile_on_gpu.py cpu`` does the same without one, to try the script itself; under
pytest it runs on whatever is there.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

if "pytest" in sys.modules:  # as a script it does without
    import pytest

    pytestmark = pytest.mark.slow

WIDTH, LAYERS, BATCH = 256, 8, 32
EXPECTED_FLOPS = (3 * LAYERS - 1) * 2 * BATCH * WIDTH * WIDTH
"""One product forward, two backward for each layer, without the gradient of the input."""
ASKED = 3


class Trained:
    """A training that was profiled, and what it left."""

    def __init__(self, device: str) -> None:
        import torch

        from straggler.hook.torch import install
        from straggler.wire.profile import Request, encode

        # Threads that spin for each other take seconds a step on a busy machine, and a profile lasts a minute at most.
        torch.set_num_threads(1)
        instrument = install.start()
        net = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]).to(device)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
        data = torch.utils.data.TensorDataset(torch.randn(4096, WIDTH))
        batches = iter(torch.utils.data.DataLoader(data, batch_size=BATCH))

        def steps(count: int) -> None:
            for _ in range(count):
                (batch,) = next(batches)
                net(batch.to(device, non_blocking=True)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()

        steps(12)
        timer = instrument.tracker.timer
        assert timer is not None
        self.ring = Path(str(timer.ring_path))
        self.ring.with_suffix(".profile").write_bytes(encode(Request("a1", ASKED, 0, 1 << 62)))
        instrument.profiler._look_at = 0
        steps(40)
        if device == "cuda":
            torch.cuda.synchronize()
        instrument.tracker.flush()
        assert instrument.throughput.count is not None
        self.flops = instrument.throughput.count.flops
        self.enabled = timer.enabled


def claims(trained: Trained, device: str) -> list[tuple[str, Callable[[], tuple[bool, Any]]]]:
    """The lines of the table."""
    from straggler.sources.trace.parse import parse_trace
    from straggler.sources.trace.read import read_entries
    from straggler.sources.trace.steps import step_times
    from straggler.wire import layout
    from straggler.wire.profile import decode_answer
    from torch_rings import records

    answer = decode_answer(trained.ring.with_suffix(".profiled").read_bytes())
    steps = records(str(trained.ring), 0)

    def done() -> tuple[bool, Any]:
        return (answer.state, answer.steps) == ("done", ASKED), answer

    def divided() -> tuple[bool, Any]:
        trace = parse_trace(read_entries(trained.ring.with_suffix(".trace.json.gz")))
        times = step_times(trace)
        numbers = [one.number for one in times] == [answer.first_step + more for more in range(ASKED)]
        whole = all(
            one.loading_seconds and one.forward_seconds and one.backward_seconds and one.optimizer_seconds
            for one in times
        )
        return numbers and whole and bool(trace.kernels) == (device == "cuda"), times[-1]

    def marked() -> tuple[bool, Any]:
        found = [one.step for one in steps if one.flags & layout.FLAG_PROFILED and one.step > 10]
        return found == list(range(answer.first_step - 1, answer.first_step + ASKED + 1)), found

    def measured() -> tuple[bool, Any]:
        last = steps[-1]
        return (
            trained.enabled and last.own_reason == 0,
            f"{len(steps)} steps, the last: {layout.OWN_REASONS[last.own_reason]}",
        )

    def counted() -> tuple[bool, Any]:
        return trained.flops == EXPECTED_FLOPS, f"{trained.flops} of {EXPECTED_FLOPS}"

    return [
        ("a request gives a profile", done),
        ("its trace has kernels, and their phases", divided),
        ("the profiled steps are marked, and no others", marked),
        ("own time is measured afterwards", measured),
        ("the operations of a step are counted, backward's too", counted),
    ]


def main(device: str) -> int:
    """Print the table; 1 if a line fails."""
    failed = 0
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as rings:
        os.environ.update(STRAGGLER_DIR=rings, STRAGGLER_ALLOW_ANY_FILESYSTEM="1", STRAGGLER_FLOPS_PER_STEP="count")
        for claim, function in claims(Trained(device), device):
            ok, told = function()
            failed += not ok
            print(f"{'ok' if ok else 'FAILED':8s} {claim}: {told}", flush=True)
    return 1 if failed else 0


def test_profile() -> None:
    """Every line of the table holds, on a GPU where there is one; in a process of its own, since it changes torch."""
    import subprocess

    torch = pytest.importorskip("torch", exc_type=ImportError)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    done = subprocess.run([sys.executable, __file__, device], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1]))
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "cuda"))
