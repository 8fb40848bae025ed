"""A profile on demand: from the request beside the ring to the trace, and everything that may go wrong on the way."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from straggler.hook.torch import install, profiler, profiling
from straggler.hook.torch.install import Instrument
from straggler.hook.torch.profiling import NoProfileError, NsysProfiling, TorchProfiling, make_profiling
from straggler.sources.trace.parse import parse_trace
from straggler.sources.trace.read import read_entries
from straggler.sources.trace.steps import step_times
from straggler.wire import layout
from straggler.wire.profile import ANSWER_SUFFIX, REQUEST_SUFFIX, TRACE_SUFFIX, Answer, Request, decode_answer, encode
from straggler.wire.records import StepRecord
from torch_rings import records

FAR = 1 << 62
ALWAYS = {"steps": 3, "first_step": 0, "expires_realtime_ns": FAR}


class Loop:
    """A training loop, step by step, and what lies beside its ring."""

    def __init__(self, instrument: Instrument) -> None:
        self.instrument = instrument
        instrument.profiler._now = lambda: self.now  # a clock that the test sets
        self.now = 0
        self._model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-3)
        data = torch.utils.data.TensorDataset(torch.randn(256, 8))
        self._batches = iter(torch.utils.data.DataLoader(data, batch_size=2))
        self.steps(2)

    def steps(self, count: int, seconds: float = 2.0) -> None:
        """Train so many steps, each as long."""
        for _ in range(count):
            (batch,) = next(self._batches)
            self._model(batch).square().mean().backward()
            self._optimizer.step()
            self._optimizer.zero_grad()
            self.now += round(seconds * 1e9)

    @property
    def ring(self) -> Path:
        """The ring file."""
        assert self.instrument.tracker.timer is not None
        return Path(str(self.instrument.tracker.timer.ring_path))

    def beside(self, suffix: str) -> Path:
        """A file beside it."""
        return self.ring.with_suffix(suffix)

    def ask(self, id: str = "a1", **changes: Any) -> Path:  # noqa: A002 - as the wire calls it
        """Write a request."""
        path = self.beside(REQUEST_SUFFIX)
        path.unlink(missing_ok=True)
        path.write_bytes(encode(Request(id, **{**ALWAYS, **changes})))
        return path

    def answer(self) -> Answer | None:
        """What the rank says."""
        path = self.beside(ANSWER_SUFFIX)
        return decode_answer(path.read_bytes()) if path.exists() else None

    def records(self) -> list[StepRecord]:
        """What is in the ring."""
        return records(str(self.ring), 0)

    def profiled(self) -> list[int]:
        """Numbers of the steps that are marked."""
        return [record.step for record in self.records() if record.flags & layout.FLAG_PROFILED]


@pytest.fixture
def loop(rings: Path) -> Iterator[Loop]:
    """A loop whose first steps are done."""
    del rings
    install.stop()
    yield Loop(install.start())
    install.stop()


def test_a_request_gives_a_trace_of_its_steps(loop: Loop) -> None:
    """The trace has the steps that were asked for, by the numbers that the ring gives them, and loads in inspect."""
    loop.ask()
    loop.steps(8)
    answer = loop.answer()

    assert answer is not None
    assert (answer.id, answer.state, answer.reason, answer.steps) == ("a1", "done", "", 3)
    trace = loop.beside(TRACE_SUFFIX)
    assert (answer.trace, answer.trace_bytes) == (trace.name, trace.stat().st_size)
    steps = step_times(parse_trace(read_entries(trace)))
    assert [step.number for step in steps] == list(range(answer.first_step, answer.first_step + 3))
    assert all(step.forward_seconds and step.backward_seconds and step.optimizer_seconds for step in steps)
    assert all(step.loading_seconds for step in steps)


def test_profiled_steps_are_marked_and_no_others(loop: Loop) -> None:
    """One step to warm up, three marked ones, one in which the trace is written; before and after it costs nothing."""
    loop.ask()
    loop.steps(12)
    answer = loop.answer()

    assert answer is not None
    assert loop.profiled() == list(range(answer.first_step - 1, answer.first_step + 4))
    assert not torch.autograd._profiler_enabled()


def test_nothing_is_left_beside_the_trace(loop: Loop) -> None:
    """No half-written file stays, and the trace is the group's to read and nobody's to write."""
    loop.ask()
    loop.steps(8)

    assert sorted(path.suffix for path in loop.ring.parent.iterdir()) == [".gz", ".profile", ".profiled", ".ring"]
    assert loop.beside(TRACE_SUFFIX).stat().st_mode & 0o777 == 0o640


def test_a_request_is_served_once(loop: Loop) -> None:
    """The file may stay where it is: no second profile comes of it."""
    loop.ask()
    loop.steps(8)
    first = loop.answer()
    loop.steps(60)

    assert loop.answer() == first


def test_it_is_looked_for_once_a_second(loop: Loop) -> None:
    """Steps of 10 ms do not look at the directory each time."""
    loop.ask()
    looked_at = loop.instrument.profiler._look_at
    loop.now = looked_at - 990_000_000
    loop.steps(90, seconds=0.01)
    assert loop.answer() is None
    loop.steps(20, seconds=0.01)

    assert loop.answer() is not None


def test_two_ranks_can_profile_the_same_steps(loop: Loop) -> None:
    """A request that names its first step waits for it."""
    loop.ask(first_step=12)
    loop.steps(20)
    answer = loop.answer()

    assert answer is not None
    assert answer.first_step in (12, 13)
    assert min(loop.profiled()) in (11, 12)


def test_a_second_request_within_a_minute_is_refused(loop: Loop) -> None:
    """Rate-limited, with when to ask again; afterwards it is served."""
    loop.ask()
    loop.steps(8)
    loop.ask("b2")
    loop.steps(2)
    refused = loop.answer()
    loop.steps(30)
    loop.ask("c3")
    loop.steps(8)
    served = loop.answer()

    assert refused is not None
    assert (refused.id, refused.state, refused.reason) == ("b2", "refused", "too_soon")
    assert served is not None
    assert (served.id, served.state) == ("c3", "done")


def test_an_old_request_does_nothing(loop: Loop) -> None:
    """Somebody asked long ago and has gone away."""
    loop.ask(expires_realtime_ns=time.time_ns() - 1)
    loop.steps(8)

    assert loop.answer() is None
    assert loop.profiled() == []


def _link(path: Path) -> None:
    target = path.with_name("elsewhere")
    path.rename(target)
    path.symlink_to(target)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


STRANGE: dict[str, Callable[[Path], object]] = {
    "a link": _link,
    "a pipe": _pipe,
    "a second name": lambda path: os.link(path, path.with_name("again")),
    "writable by the group": lambda path: path.chmod(0o664),
    "too long": lambda path: path.write_bytes(path.read_bytes() + b" " * 9000),
    "no JSON": lambda path: path.write_bytes(b"profile!"),
    "of another version": lambda path: path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 9')),
    "too many steps": lambda path: path.write_bytes(path.read_bytes().replace(b'"steps": 3', b'"steps": 3000')),
    "steps as a text": lambda path: path.write_bytes(path.read_bytes().replace(b'"steps": 3', b'"steps": "3"')),
    "an id that is a path": lambda path: path.write_bytes(path.read_bytes().replace(b'"a1"', b'"../a1"')),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_a_strange_request_is_ignored(loop: Loop, caplog: pytest.LogCaptureFixture, kind: str) -> None:
    """It is no request of ours: one line in the log, no profile, no answer to whoever it was."""
    STRANGE[kind](loop.ask())
    loop.steps(8)

    assert loop.answer() is None
    assert loop.profiled() == []
    assert [record.message.startswith("a request for a profile is ignored") for record in caplog.records] == [True]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_request_of_a_stranger_is_ignored(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    """Anybody may create files in the shared directory, in its group even: the owner tells."""
    loop.ring.parent.chmod(0o3733)
    os.chown(loop.ask(), 4711, -1)
    loop.steps(8)

    assert loop.answer() is None
    assert "belongs to user 4711, who may not ask" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_the_owner_of_the_directory_may_ask(loop: Loop) -> None:
    """That is the sidecar's user."""
    os.chown(loop.ring.parent, 4711, -1)
    loop.ring.parent.chmod(0o3733)
    os.chown(loop.ask(), 4711, -1)
    loop.steps(8)
    answer = loop.answer()

    assert answer is not None
    assert answer.state == "done"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_in_a_pods_directory_the_sidecar_may_ask(loop: Loop) -> None:
    """There it owns nothing: the directory is root's, of mode 2773, and who gets there is of the pod or the sidecar."""
    os.chown(loop.ring.parent, 0, 4712)
    loop.ring.parent.chmod(0o2773)
    os.chown(loop.ask(), 4711, 4712)
    loop.steps(8)
    answer = loop.answer()

    assert answer is not None
    assert answer.state == "done"
    assert loop.beside(TRACE_SUFFIX).stat().st_gid == 4712


def test_the_trainings_own_profiler_goes_first(loop: Loop) -> None:
    """While it runs a request is refused, and it never notices."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
        loop.ask()
        loop.steps(4)
    answer = loop.answer()

    assert answer is not None
    assert (answer.state, answer.reason) == ("refused", "profiler_busy")
    assert any(event.name == "aten::linear" for event in own.events())


@pytest.mark.parametrize("begin", [torch.profiler.profile, torch.autograd.profiler.profile])
def test_ours_gives_way_to_the_trainings_own(loop: Loop, begin: Any) -> None:
    """A profiler that the training starts during ours works as ever; ours ends without a trace."""
    loop.ask()
    loop.steps(3)
    running = loop.answer()
    with begin() as own:
        loop.steps(3)
    loop.steps(3)
    answer = loop.answer()

    assert running is not None
    assert running.state == "running"
    assert answer is not None
    assert (answer.state, answer.reason) == ("refused", "profiler_busy")
    assert any("linear" in average.key for average in own.key_averages())
    assert not loop.beside(TRACE_SUFFIX).exists()
    assert not torch.autograd._profiler_enabled()


def test_no_space_no_trace(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace that would fill the ring's tmpfs is not written, and the answer says what to do."""
    monkeypatch.setattr(profiling, "_MAX_TRACE_BYTES", 1000)
    loop.ask()
    loop.steps(8)
    answer = loop.answer()

    assert answer is not None
    assert (answer.state, answer.reason) == ("refused", "no_space")
    assert "STRAGGLER_TRACE_DIR" in answer.detail
    assert sorted(path.suffix for path in loop.ring.parent.iterdir()) == [".profile", ".profiled", ".ring"]


def test_traces_can_go_elsewhere(loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``STRAGGLER_TRACE_DIR`` names a directory with more room; where it is not there, that is said."""
    monkeypatch.setattr(loop.instrument.profiler, "_directory", str(tmp_path))
    loop.ask()
    loop.steps(8)
    answer = loop.answer()
    assert answer is not None
    assert Path(answer.trace).parent == tmp_path
    assert Path(answer.trace).stat().st_size == answer.trace_bytes

    monkeypatch.setattr(loop.instrument.profiler, "_directory", str(tmp_path / "none"))
    loop.steps(40)
    loop.ask("b2")
    loop.steps(8)
    answer = loop.answer()
    assert answer is not None
    assert (answer.id, answer.reason) == ("b2", "cannot_write")


def test_a_profile_that_takes_too_long_ends_early(loop: Loop) -> None:
    """Steps of 25 s: after a minute the profile has fewer steps than were asked for, and says how many."""
    loop.ask(steps=20)
    loop.steps(8, seconds=25)
    answer = loop.answer()

    assert answer is not None
    assert (answer.state, answer.steps) == ("done", 2)


def test_stopping_meanwhile_leaves_no_profiler(loop: Loop) -> None:
    """``stop()`` in the middle of a profile ends it with everything else."""
    loop.ask()
    loop.steps(3)
    assert torch.autograd._profiler_enabled()
    install.stop()

    assert not torch.autograd._profiler_enabled()


class FakeCudaProfiler:
    """Takes down what CUDA's profiler is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def start(self) -> None:
        """As ``torch.cuda.profiler.start``."""
        self.told.append("start")

    def stop(self) -> None:
        """As ``torch.cuda.profiler.stop``."""
        self.told.append("stop")


class FakeNsys(NsysProfiling):
    """nsys around a process with a GPU, as far as can be told without one."""

    def __init__(self, switch: FakeCudaProfiler) -> None:
        self.start = switch.start  # type: ignore[method-assign]  # everything else is the real one's
        self.stop = switch.stop  # type: ignore[method-assign]  # likewise


def test_with_nsys_its_capture_is_switched(loop: Loop) -> None:
    """The same request switches the capture on and off again; there is no trace of ours, and the steps are marked."""
    switch = FakeCudaProfiler()
    loop.instrument.profiler._make = lambda: FakeNsys(switch)
    loop.ask()
    loop.steps(8)
    answer = loop.answer()

    assert switch.told == ["start", "stop"]
    assert answer is not None
    assert (answer.state, answer.trace, answer.steps) == ("done", "", 3)
    assert len(loop.profiled()) == 5


def test_nsys_is_known_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nsys sets decides; without a GPU in use it is refused, and CUDA is not woken up."""
    assert isinstance(make_profiling(), TorchProfiling)
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "4242")
    nsys = make_profiling()

    assert isinstance(nsys, NsysProfiling)
    with pytest.raises(NoProfileError, match="no_gpu"):
        nsys.start()
    assert not torch.cuda.is_initialized()


class Broken(TorchProfiling):
    """A profiler that fails where it is told to."""

    def __init__(self, where: str) -> None:
        super().__init__()
        setattr(self, where, self._raise)

    def _raise(self, *_: Any) -> None:
        raise RuntimeError("kineto")


@pytest.mark.parametrize("where", ["start", "step", "save"])
def test_a_profiler_that_fails_harms_nobody(loop: Loop, where: str) -> None:
    """Whatever it raises, training goes on, the ring is written, and the answer says what happened."""
    loop.instrument.profiler._make = lambda: Broken(where)
    loop.ask()
    loop.steps(8)
    answer = loop.answer()

    assert answer is not None
    assert (answer.state, answer.reason) == ("refused", "failed")
    assert "RuntimeError: kineto" in answer.detail
    assert len(loop.records()) == 9
    assert not torch.autograd._profiler_enabled()


def test_a_process_with_cuda_graphs_is_not_profiled(loop: Loop) -> None:
    """The end of a profile may crash it: refused, and the next request is not made to wait for a minute."""
    loop.instrument.tracker.capture_begins()
    loop.instrument.tracker.capture_ends()
    for id in ("a1", "b2"):  # noqa: A001 - as the wire calls it
        loop.ask(id)
        loop.steps(3)
        answer = loop.answer()

        assert answer is not None
        assert (answer.id, answer.state, answer.reason) == (id, "refused", "cuda_graph")


def test_limits_are_what_the_documents_say() -> None:
    """A minute between two profiles, a minute at most, looked for once a second."""
    assert (profiler._GAP_NS, profiler._LOOK_EVERY_NS, profiler._MOST_SECONDS) == (60 * 10**9, 10**9, 60)
