"""The host's clock: phases that nest, threads, and what is excluded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from straggler.hook.torch.meter import HostMeter, TimedStep
from straggler.wire import layout

FORWARD, BACKWARD, WAIT, CHECKPOINT = (
    layout.PHASE_INDEX[name] for name in ("forward", "backward", "wait", "checkpoint")
)


class Bench:
    """A meter whose clock is moved by hand."""

    def __init__(self) -> None:
        self.now = 0
        self.steps: list[TimedStep] = []
        self.meter = HostMeter(self.steps.append, lambda: self.now)
        self.meter.boundary()

    def end(self) -> dict[str, int]:
        """End the step; its phases by name."""
        self.meter.boundary()
        return {name: time for name, time in zip(layout.PHASES, self.steps[-1].phase_ns, strict=True) if time}


def test_an_inner_phase_is_taken_out_of_the_outer_one() -> None:
    """A wait inside backward is wait, once, however many marks are around it."""
    bench = Bench()
    backward = bench.meter.enter(BACKWARD)
    bench.now += 10
    outer, inner = bench.meter.enter(WAIT), bench.meter.enter(WAIT)
    bench.now += 5
    bench.meter.leave(inner)
    bench.meter.leave(outer)
    bench.now += 1
    bench.meter.leave(backward)
    bench.now += 2

    assert bench.end() == {"backward": 11, "wait": 5, "other": 2}


def test_a_phase_that_an_exception_left_open_ends_with_the_one_around_it() -> None:
    """What is left open inside ends with the outer phase, and its own late end changes nothing."""
    bench = Bench()
    outer = bench.meter.enter(FORWARD)
    lost = bench.meter.enter(WAIT)
    bench.now += 3
    bench.meter.leave(outer)
    bench.now += 4
    newer = bench.meter.enter(BACKWARD)
    bench.meter.leave(lost)
    bench.now += 5
    bench.meter.leave(newer)

    assert bench.end() == {"wait": 3, "backward": 5, "other": 4}


def test_a_checkpoint_keeps_all_time_inside_it() -> None:
    """A collective inside a checkpoint is checkpoint: it is no waiting of the training."""
    bench = Bench()
    outer = bench.meter.enter(CHECKPOINT)
    inner = bench.meter.enter(WAIT)
    bench.now += 9
    bench.meter.leave(inner)
    assert bench.meter.excluded() == CHECKPOINT
    bench.meter.leave(outer)

    assert bench.meter.excluded() is None
    assert bench.end() == {"checkpoint": 9}


def test_a_phase_goes_on_in_the_next_step() -> None:
    """A step that ends inside a phase shares it with the next one: an optimizer's closure runs forward and backward."""
    bench = Bench()
    token = bench.meter.enter(FORWARD)
    bench.now += 2
    first = bench.end()
    bench.now += 3
    bench.meter.leave(token)

    assert (first, bench.end()) == ({"forward": 2}, {"forward": 3})


def test_other_threads_neither_mark_nor_step() -> None:
    """What a checkpoint thread waits for is not the training thread's; work that it lends out is."""
    bench = Bench()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(bench.meter.enter, WAIT).result() is None
        assert pool.submit(bench.meter.boundary).result() is False
        token = pool.submit(bench.meter.enter, WAIT, borrowed=True).result()
    bench.now += 6
    bench.meter.leave(token)

    assert bench.end() == {"wait": 6}
