"""The GPU's clock on a model of a GPU that runs behind the host."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_model import ModelGpu
from straggler.hook.torch.cuda_clock import MAX_LATE, POOL_EVENTS, STEP_EVENTS, EventDevice, EventMeter
from straggler.hook.torch.meter import HostMeter, TimedStep
from straggler.wire import layout

DATA, FORWARD, BACKWARD, WAIT, OPTIMIZER, CHECKPOINT, EVAL = (
    layout.PHASE_INDEX[name] for name in ("data", "forward", "backward", "wait", "optimizer", "checkpoint", "eval")
)
_: EventDevice = ModelGpu()


class Bench:
    """A meter on a model GPU, and what it published."""

    def __init__(self) -> None:
        self.gpu = ModelGpu()
        self.steps: list[TimedStep] = []
        self.meter = EventMeter(self.steps.append, self.gpu, lambda: self.gpu.now_ns)

    def catch_up(self) -> None:
        """Let the GPU finish everything."""
        self.gpu.host(max([0, *self.gpu.free_at_ns.values()]))
        self.meter.flush()


def phases_of(step: TimedStep) -> dict[str, int]:
    """The phases that took time, by name."""
    return {name: time for name, time in zip(layout.PHASES, step.phase_ns, strict=True) if time}


def test_a_step_is_timed_by_the_gpu_while_the_host_runs_ahead() -> None:
    """The host orders a step in 5 ns; the GPU's own times come out, and the wait for the other stream is wait."""
    bench = Bench()
    gpu, meter = bench.gpu, bench.meter
    meter.boundary()
    forward = meter.enter(FORWARD)
    gpu.launch(100)
    meter.leave(forward)
    backward = meter.enter(BACKWARD)
    gpu.launch(200)
    gpu.free_at_ns[1] = 450  # the all-reduce ends at 450 on its own stream
    waiting = meter.enter(WAIT)
    gpu.wait_for(1)
    meter.leave(waiting)
    meter.leave(backward)
    gpu.launch(50)
    gpu.host(5)
    meter.boundary()
    assert bench.steps == []  # the GPU is not there yet, and nobody waited for it
    bench.catch_up()

    assert phases_of(bench.steps[0]) == {"forward": 100, "backward": 200, "wait": 150, "other": 50}
    assert bench.steps[0].wall_ns == 500


def test_a_slow_loader_starves_the_gpu_and_is_told_apart_from_the_hosts_wait() -> None:
    """While the host waits 300 ns for a batch the GPU works for 100 ns more, and then idles in ``data`` for 200."""
    bench = Bench()
    bench.meter.boundary()
    bench.gpu.launch(100)
    data = bench.meter.enter(DATA)
    bench.gpu.host(300)
    bench.meter.leave(data)
    bench.gpu.launch(40)
    bench.meter.boundary()
    bench.catch_up()

    assert phases_of(bench.steps[0]) == {"data": 200, "other": 140}
    assert bench.steps[0].host_data_ns == 300


def test_a_loader_on_a_stream_of_its_own_is_not_the_training_waiting() -> None:
    """A phase that is entered on another stream is not marked, and the step stays measured."""
    bench = Bench()
    bench.meter.boundary()
    bench.gpu.current = 7
    assert bench.meter.enter(DATA) is None
    bench.gpu.launch(1000)
    bench.gpu.current = 0
    bench.gpu.launch(10)
    bench.meter.boundary()
    bench.catch_up()

    assert phases_of(bench.steps[0]) == {"other": 10}
    assert bench.steps[0].own_reason == "measured"


def test_a_phase_left_on_another_stream_has_no_order() -> None:
    """A phase entered on the compute stream and left on another cannot be timed, and the step says so."""
    bench = Bench()
    bench.meter.boundary()
    wait = bench.meter.enter(WAIT)
    bench.gpu.current = 7
    bench.meter.leave(wait)
    bench.gpu.current = 0
    bench.meter.boundary()
    bench.catch_up()

    assert bench.steps[0].own_reason == "hidden_collectives"


def test_nothing_is_recorded_or_asked_while_a_graph_is_captured() -> None:
    """A capture that begins inside a phase loses the step's own time and nothing else (the model asserts the rest)."""
    bench = Bench()
    bench.meter.boundary()
    forward = bench.meter.enter(FORWARD)
    bench.gpu.capturing = True
    assert bench.meter.enter(WAIT) is None
    bench.meter.leave(forward)
    bench.meter.flush()
    bench.gpu.capturing = False
    bench.meter.boundary()
    forward = bench.meter.enter(FORWARD)
    bench.gpu.launch(5)
    bench.meter.leave(forward)
    bench.meter.boundary()
    bench.catch_up()

    assert [step.own_reason for step in bench.steps] == ["cuda_graph", "measured"]
    assert phases_of(bench.steps[1]) == {"forward": 5}


@pytest.mark.parametrize("brackets", [STEP_EVENTS, 3 * STEP_EVENTS])
def test_a_step_with_too_many_brackets_is_unmeasured_and_the_next_one_is_not(brackets: int) -> None:
    """Too many waits for the pool: the step has its length on the host's clock, no own time, and a reason."""
    bench = Bench()
    bench.meter.boundary()
    for _ in range(brackets):
        bench.meter.leave(bench.meter.enter(WAIT))
    bench.gpu.host(77)
    bench.meter.boundary()
    bench.gpu.launch(9)
    bench.meter.boundary()
    bench.catch_up()

    assert [(step.own_reason, step.wall_ns) for step in bench.steps] == [("too_many_brackets", 77), ("measured", 9)]
    assert bench.gpu.made <= POOL_EVENTS


def test_a_host_that_runs_far_ahead_gets_steps_without_own_time_not_more_events() -> None:
    """At most ``MAX_LATE`` steps are under way; what ends beyond them is unmeasured, and all come in order."""
    bench = Bench()
    bench.meter.boundary()
    for number in range(3 * MAX_LATE):
        bench.gpu.launch(1000)
        bench.meter.boundary(amounts={"number": number})
    bench.catch_up()
    bench.gpu.launch(10)
    bench.meter.boundary(amounts={"number": "next"})
    bench.gpu.launch(10)
    bench.meter.boundary(amounts={"number": "last"})
    bench.catch_up()

    assert [step.own_reason for step in bench.steps[:MAX_LATE]] == ["measured"] * MAX_LATE
    assert {step.own_reason for step in bench.steps[MAX_LATE : 3 * MAX_LATE]} == {"too_many_brackets"}
    assert [step.amounts["number"] for step in bench.steps] == [*range(3 * MAX_LATE), "next", "last"]
    assert bench.steps[-1].own_reason == "measured"
    assert bench.gpu.made <= MAX_LATE + 2


PHASES = st.sampled_from([DATA, FORWARD, BACKWARD, WAIT, OPTIMIZER, CHECKPOINT, EVAL])
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), PHASES),
        st.tuples(st.just("leave"), st.integers(0, 5)),
        st.tuples(st.just("launch"), st.integers(0, 50)),
        st.tuples(st.just("host"), st.integers(0, 50)),
        st.tuples(st.just("boundary"), st.just(0)),
        st.tuples(st.just("wait_for"), st.just(1)),
    ),
    max_size=60,
)


@given(ACTIONS)
def test_any_loop_gives_each_moment_to_one_phase_of_one_step(actions: list[tuple[str, int]]) -> None:
    """Whatever a loop does: steps come once each and in order, phases add up, and no time of the GPU is lost."""
    bench = Bench()
    gpu, meter = bench.gpu, bench.meter
    first: int | None = None
    tokens: list[int | None] = []
    boundaries = last = 0
    for action, value in actions:
        if action == "enter":
            tokens.append(meter.enter(value))
        elif action == "leave" and tokens:
            meter.leave(tokens[value % len(tokens)])
        elif action == "launch":
            gpu.launch(value)
        elif action == "host":
            gpu.host(value)
        elif action == "wait_for":
            gpu.free_at_ns[1] = gpu.now_ns + 30
            gpu.wait_for(1)
        elif action == "boundary":
            last = max(gpu.free_at_ns.get(0, 0), gpu.now_ns)
            first = last if first is None else first
            meter.boundary(amounts={"number": boundaries})
            boundaries += 1
            if boundaries % 4 == 0:
                bench.catch_up()
    bench.catch_up()

    assert [step.amounts["number"] for step in bench.steps] == list(range(1, boundaries))
    assert all(sum(step.phase_ns) == step.wall_ns for step in bench.steps)
    assert all(step.own_reason == "measured" for step in bench.steps)
    assert sum(step.wall_ns for step in bench.steps) == (0 if first is None else last - first)
    assert gpu.made <= POOL_EVENTS


@given(ACTIONS)
def test_on_a_device_that_keeps_up_both_clocks_say_the_same(actions: list[tuple[str, int]]) -> None:
    """If the host waits for each kernel, the GPU's clock and the host's give the same phases."""
    bench = Bench()
    gpu = bench.gpu
    host_steps: list[TimedStep] = []
    meters = (bench.meter, HostMeter(host_steps.append, lambda: gpu.now_ns))
    tokens: list[list[int | None]] = []
    for action, value in actions:
        if action == "enter":
            tokens.append([meter.enter(value) for meter in meters])
        elif action == "leave" and tokens:
            for meter, token in zip(meters, tokens[value % len(tokens)], strict=True):
                meter.leave(token)
        elif action in ("launch", "host"):
            gpu.host(value)
        elif action == "boundary":
            for meter in meters:
                meter.boundary()
    bench.catch_up()

    assert [step.phase_ns for step in bench.steps] == [step.phase_ns for step in host_steps]
